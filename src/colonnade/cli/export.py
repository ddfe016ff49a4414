"""`colonnade export`: a trained model as ONNX, TorchScript, coefficients by column, or an object of scikit-learn."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.names import EXPORT_FORMS, offering
from colonnade.cli.options import json_option
from colonnade.cli.output import console


def export(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A run's directory, or a folder of models or of one model.", show_default=False
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help=f"The form: {', '.join(EXPORT_FORMS)}.",
            autocompletion=offering(EXPORT_FORMS),
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Where to write it: a folder; for sklearn a .json file, for coefficients a .csv or .json file.",
            show_default=False,
        ),
    ],
    party: Annotated[
        str, typer.Option("--party", metavar="NAME", help="This party's model alone. Default: all.", show_default=False)
    ] = "",
    as_json: Annotated[bool, json_option("Print {to, files}.")] = False,
) -> None:
    """Write a trained model in the form of another program."""
    from colonnade.exports.exporting import export as write

    files = write(model, to, out, party)
    if as_json:
        print(json.dumps({"to": to, "files": [str(path) for path in files]}))
        return
    for path in files:
        console.print(str(path), markup=False, soft_wrap=True)
