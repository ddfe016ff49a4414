"""`colonnade demo`: asynchronous against synchronous on real data, in less than a minute."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import json_option
from colonnade.cli.output import InterruptedCommandError, console, megabytes, shown
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from colonnade.data import FederatedData
    from colonnade.federation.file import Federation
    from colonnade.reports import ComparisonRow

TARGET_ACCURACY = 0.95
EPOCHS = 40.0
ALGORITHMS = ("split", "vafl", "centralised")


def demo(
    out: Annotated[Path, typer.Option(help="Where the runs and the report go; a number is added if it exists.")] = Path(
        "colonnade-demo"
    ),
    as_json: Annotated[bool, json_option("Print the table as JSON.")] = False,
) -> None:
    """Train on handwritten digits: four parties hold a quarter of each image, one of them is three times slower."""
    from colonnade.data import load
    from colonnade.reports import comparison_rows, read_run
    from colonnade.reports.comparison_page import write_comparison
    from colonnade.reports.run_page import write_report

    out = _free(out)
    federation = _federation()
    data = load(federation.data, {}, federation.label_party, Path())
    if not as_json:
        console.print(
            f"{data.rows} digits; four parties hold 16 of the 64 pixels each, a fifth holds the labels.\n"
            "party4 is three times slower. Times are virtual: what the parties would have taken."
        )
    for name in ALGORITHMS:
        _train(federation, data, name, out / name, quiet=as_json)
    federated = [out / "split", out / "vafl"]
    for directory in federated:
        write_report(directory)
    page = write_comparison(federated, out / "report.html", TARGET_ACCURACY)
    runs = [read_run(directory) for directory in federated]
    rows = comparison_rows(runs, TARGET_ACCURACY)
    central = read_run(out / "centralised").final_metric
    if as_json:
        print(json.dumps({"report": str(page), "centralised_accuracy": central, "rows": rows}))
        return
    console.print(_table(rows, central))
    rates = {run.algorithm: run.summary["exchanges"] / run.summary["virtual_seconds"] for run in runs}
    console.print(_conclusion(rows, rates), markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)


def _federation() -> "Federation":
    from colonnade.algorithms.training import Training
    from colonnade.data.settings import DataSettings
    from colonnade.federation.file import Federation
    from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty

    return Federation(
        name="demo",
        data=DataSettings(set="digits", parties=4),
        training=Training(epochs=EPOCHS, batch_size=32, learning_rate=0.1, evaluate_every_epochs=0.5),
        # Ten milliseconds per step, one millisecond per message; party4 is three times slower than the others.
        simulate=Simulate(parties={"party4": SimulatedParty(slowdown=3.0)}),
    )


def _train(shared: "Federation", data: "FederatedData", name: str, out: Path, quiet: bool) -> None:
    """One algorithm's run of the demo."""
    from colonnade import algorithms
    from colonnade.cli.progress import progress_of
    from colonnade.federation.file import federation_values
    from colonnade.launch.experiment import train_plan
    from colonnade.launch.run_options import RunOptions
    from colonnade.runtimes.interrupt import stop_on_interrupt

    federation = replace(shared, algorithm=algorithms.find(name).settings())
    with stop_on_interrupt() as stop, progress_of(federation, data, quiet, f"{name:12}") as progress:
        options = RunOptions(out, watch=progress.watch, stop_requested=stop, settings=federation_values(federation))
        outcome = train_plan(data, federation.plan(data), federation.simulate, options)
    if not outcome.finished:
        raise InterruptedCommandError("Stopped. Run the demo again to see it whole.", ExitCode.INTERRUPTED)


def _table(rows: "Sequence[ComparisonRow]", central: float | None) -> "Table":
    from rich.table import Table

    table = Table()
    table.add_column("algorithm")
    for heading in (
        f"virtual seconds to {TARGET_ACCURACY:.0%}",
        "speed-up",
        "bytes",
        "final accuracy",
        "against centralised",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        final = row["final_metric"]
        difference = "–" if final is None or central is None else f"{100 * (final - central):+.1f} points"
        table.add_row(
            row["algorithm"],
            shown(row["seconds_to_target"], "{:.2f}"),
            shown(row["speed_up"], "{:.2f}×"),
            shown(row["bytes_to_target"], "{}", megabytes),
            shown(final, "{:.4f}"),
            difference,
        )
    table.add_row("centralised", "–", "–", "–", shown(central, "{:.4f}"), "")
    return table


def _conclusion(rows: "Sequence[ComparisonRow]", rates: "Mapping[str, float]") -> str:
    """What the table means, in words; only what the figures say. `rates`: exchanges per virtual second."""
    seconds = {row["algorithm"]: row["seconds_to_target"] for row in rows}
    slow, fast = seconds["split"], seconds["vafl"]
    if slow is None or fast is None:
        return f"Not every run reached {TARGET_ACCURACY:.0%}."
    return (
        f"vafl reached {TARGET_ACCURACY:.0%} {slow / fast:.1f} times as fast as split. At equal exchanges it is "
        f"{rates['vafl'] / rates['split']:.1f} times as fast:\nsplit waits for party4. The rest is that vafl updates "
        "the label party's model after every exchange, split after four."
    )


def _free(out: Path) -> Path:
    """The first of out, out-2, out-3, … that does not exist: an earlier demo is never overwritten."""
    candidate, number = out, 1
    while candidate.exists():
        number += 1
        candidate = out.with_name(f"{out.name}-{number}")
    return candidate
