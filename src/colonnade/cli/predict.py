"""`colonnade predict`: what a finished run's model says of rows of its parties' tables."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import RunDirectory, json_option
from colonnade.cli.output import console


def predict(
    run: RunDirectory,
    out: Annotated[
        Path,
        typer.Option("--out", help="Where to write them: a .csv or .parquet file.", show_default=False),
    ],
    ids: Annotated[
        Path | None,
        typer.Option(
            "--ids",
            help="Only these rows: a file with one id per line, or a table whose id column has them. Default: every "
            "row that all parties hold, or that any holds, if the model was trained with data.rows = 'any'.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="PARTY=FILE",
            help="Another file in the place of a party's own, with the same columns. May be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, json_option("Print {out, predicted, unknown, left_out}; and lacking, if any.")] = False,
) -> None:
    """Score rows with the model of a finished run, where all parties' tables are at hand."""
    from colonnade.launch.predict import predict_run

    predictions = predict_run(run, out, ids, table or [])
    told = {
        "out": str(out),
        "predicted": len(predictions.ids),
        "unknown": len(predictions.unknown),
        "left_out": dict(predictions.left_out or {}),
    }
    if predictions.present is not None:
        told["lacking"] = predictions.lacking
    if as_json:
        print(json.dumps(told))
        return
    console.print(f"{len(predictions.ids):,} rows predicted: {out}", markup=False, soft_wrap=True)
    if predictions.unknown:
        whom = "every party" if predictions.present is None else "any party"
        console.print(f"{len(predictions.unknown):,} ids are not held by {whom}; they have no prediction.")
    for name, count in predictions.lacking.items():
        if count:
            console.print(f"{name}: lacks {count:,} of them, and its stand-in was used", markup=False)
    for name, count in (predictions.left_out or {}).items():
        if count:
            console.print(f"{name}: {count:,} of its rows are not held by the others", markup=False)
