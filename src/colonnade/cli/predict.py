"""`colonnade predict`: what a trained model says of rows; in one place, or as one party over the network."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.names import RUNTIMES, offering
from colonnade.cli.one_party import one_party
from colonnade.cli.options import PartyModel, json_option
from colonnade.cli.output import console, show_learnt, tell
from colonnade.errors import SettingsError
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from colonnade.prediction.tables import Predictions


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FEDERATION.toml",
            help="A run's directory; with --party, what all parties share.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where to write them: a .csv or .parquet file. Feature parties write none.",
            show_default=False,
        ),
    ] = None,
    party: Annotated[
        Path | None,
        typer.Option(
            "--party",
            metavar="PARTY.toml",
            help="This party's own file: takes part over the network. Without: all models and tables lie here.",
            show_default=False,
        ),
    ] = None,
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
            help="Another file in place of a party's own, with the same columns. May be repeated. With --party: "
            "FILE, in place of its own.",
            show_default=False,
        ),
    ] = None,
    model: PartyModel = None,
    aligned: Annotated[
        Path | None,
        typer.Option(help="With --party: another folder of colonnade align, such as of new rows.", show_default=False),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            help="With --party: where its state is kept. Default: runs/NAME-PARTY-predict-NUMBER, the next one.",
            show_default=False,
        ),
    ] = None,
    runtime: Annotated[
        str,
        typer.Option(
            help=f"Without --party: let the parties talk to one another, by {', '.join(RUNTIMES)}. Default: put their "
            "models together.",
            autocompletion=offering(RUNTIMES),
            show_default=False,
        ),
    ] = "",
    trace: Annotated[bool, typer.Option("--trace", help="With --party: record every event and effect.")] = False,
    as_json: Annotated[bool, json_option("Print {out, predicted, unknown, …} and nothing else.")] = False,
) -> None:
    """Score rows with a trained model: of a finished run in one place, or each party its own over the network."""
    if party is not None:
        _as_party(run, party, _Given(out, ids, table or [], model, aligned, directory, runtime, trace), as_json)
        return
    if out is None:
        raise SettingsError("Predictions must be written somewhere: give --out, a .csv or .parquet file.")
    for name, given in (("--model", model), ("--aligned", aligned), ("--directory", directory)):
        if given is not None:
            raise SettingsError(f"{name} is for one party over the network: give --party as well, or leave it out.")
    from colonnade.federation.file import read_federation
    from colonnade.launch.predict import ids_in, tables_given, write_predictions
    from colonnade.launch.predict import predict as predict_run
    from colonnade.prediction.tables import check_ending

    check_ending(out)
    wanted = None
    if ids is not None and (run / "federation.toml").exists():
        wanted = ids_in(ids, read_federation(run / "federation.toml").data.id)
    predictions = predict_run(run, wanted, tables_given(table or []), runtime)
    write_predictions(predictions, out, run)
    _show(predictions, out, as_json)


class _Given:
    """What the command line says of one party's part."""

    def __init__(
        self,
        out: Path | None,
        ids: Path | None,
        table: list[str],
        model: Path | None,
        aligned: Path | None,
        directory: Path | None,
        runtime: str,
        trace: bool,
    ) -> None:
        if runtime:
            raise SettingsError("--runtime is for models in one place; with --party it is the network: leave it out.")
        if len(table) > 1 or any(not one for one in table):
            raise SettingsError("With --party, --table names one file, in place of this party's own.")
        self.out, self.ids, self.trace = out, ids, trace
        self.table = table[0] if table else ""
        self.model, self.aligned, self.directory = model, aligned, directory

    def again(self) -> list[str]:
        """The options, to be given once more."""
        named = {"--out": self.out, "--ids": self.ids, "--model": self.model, "--aligned": self.aligned}
        named |= {"--directory": self.directory}
        options = [word for name, given in named.items() if given is not None for word in (name, str(given))]
        return [*options, *(["--table", self.table] if self.table else []), *(["--trace"] if self.trace else [])]


def _as_party(federation: Path, party: Path, given: _Given, as_json: bool) -> None:
    """One party of a prediction over the network, at its own organisation."""
    again = shlex.join(["colonnade", "predict", str(federation), "--party", str(party), *given.again()])
    with one_party(party, again) as (own, stop):
        from colonnade.federation.file import read_federation
        from colonnade.launch.predict import ids_in
        from colonnade.launch.prediction_network import Asked, predict_party
        from colonnade.prediction.tables import check_ending

        shared = read_federation(federation)
        leads = own.party.name == shared.label_party
        if leads != (given.out is not None):
            raise SettingsError(
                "The label party has the predictions: give --out, a .csv or .parquet file."
                if leads
                else f"--out is the label party's: {own.party.name} has no predictions to write. Leave it out."
            )
        if given.out is not None:
            check_ending(given.out)
        ids = None if given.ids is None else ids_in(given.ids, shared.data.id)
        asked = Asked(given.model, given.directory, given.table, str(given.aligned or ""), ids)
        done = predict_party(shared, own, asked, trace=given.trace, stop_requested=stop)
        if done.predictions is not None and given.out is not None:
            done.predictions.write(given.out, shared.data.id)
    if not done.finished:
        tell(f"Stopped. Continue with: {again}")
        raise typer.Exit(ExitCode.STOPPED)
    if done.predictions is not None and given.out is not None:
        _show(done.predictions, given.out, as_json, done.summary["learnt"])
    elif as_json:
        print(json.dumps(done.summary))
    else:
        console.print(f"{own.party.name}: {done.summary['requests']:,} requests answered", markup=False)
        if done.summary.get("refused"):
            console.print(f"  {done.summary['refused']:,} rows were refused: their budget is spent")
        show_learnt(done.summary["learnt"])


def _show(predictions: "Predictions", out: Path, as_json: bool, learnt: list[str] | None = None) -> None:
    counts = predictions.counts()
    told: dict[str, Any] = {"out": str(out), **counts}
    if as_json:
        print(json.dumps(told if learnt is None else {**told, "learnt": learnt}))
        return
    console.print(f"{len(predictions.ids):,} rows predicted: {out}", markup=False, soft_wrap=True)
    if predictions.unknown:
        whom = "every party" if predictions.present is None else "any party"
        hint = "" if predictions.ids else " Are they written as in the tables?"
        console.print(
            f"{len(predictions.unknown):,} ids are not held by {whom}; they have no prediction.{hint}", soft_wrap=True
        )
    if predictions.refused:
        console.print(f"{len(predictions.refused):,} rows have no prediction: their privacy budget is spent.")
    for name, count in (predictions.left_out or {}).items():
        if count:
            console.print(f"{name}: {count:,} of its rows are not held by the others", markup=False)
    which = "the rows asked for" if predictions.present is None else "them, and its stand-in was used"
    for name, count in counts.get("lacking", {}).items():
        if count:
            console.print(f"{name}: lacks {count:,} of {which}", markup=False)
    show_learnt(learnt or [])
