"""`colonnade explain`: which parties and columns a model rests on; in one place, or as one party over the network."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from colonnade.cli.names import ROW_PARTS, RUNTIMES, offering
from colonnade.cli.one_party import one_party
from colonnade.cli.options import PartyModel, json_option
from colonnade.cli.output import console, show_learnt, tell
from colonnade.errors import SettingsError
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from colonnade.explanation.results import Explanation
    from colonnade.explanation.settings import ExplainSettings


def explain(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FEDERATION.toml",
            help="A run's directory; with --party, what all parties share.",
            show_default=False,
        ),
    ],
    on: Annotated[
        str,
        typer.Option("--on", help=f"Which rows: {', '.join(ROW_PARTS)}.", autocompletion=offering(ROW_PARTS)),
    ] = "test",
    rows: Annotated[int, typer.Option("--rows", help="At most so many rows, drawn at random.")] = 2000,
    repeats: Annotated[int, typer.Option("--repeats", help="How often each column is shuffled.")] = 5,
    columns: Annotated[
        int,
        typer.Option("--columns", help="At most so many columns of each party, the largest first; 0: parties alone."),
    ] = 100,
    steps: Annotated[int, typer.Option("--steps", help="Of the path of integrated gradients; 0: leave them out.")] = 32,
    seed: Annotated[int, typer.Option("--seed", help="Which rows, shuffles and orders are drawn.")] = 0,
    combined: Annotated[
        bool,
        typer.Option("--combined", help="Also one page of all columns, for one person who holds all tables."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The folder for the pages. Default: RUN/explain; with --party --directory.",
            show_default=False,
        ),
    ] = None,
    runtime: Annotated[
        str,
        typer.Option(
            help=f"Without --party: let the parties talk to one another, by {', '.join(RUNTIMES)}. Default: put both "
            "ends together.",
            autocompletion=offering(RUNTIMES),
            show_default=False,
        ),
    ] = "",
    party: Annotated[
        Path | None,
        typer.Option(
            "--party",
            metavar="PARTY.toml",
            help="This party's own file: takes part over the network. Without: all models and tables lie here.",
            show_default=False,
        ),
    ] = None,
    model: PartyModel = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            help="With --party: where its state is kept. Default: runs/NAME-PARTY-explain-NUMBER, the next one.",
            show_default=False,
        ),
    ] = None,
    show_products: Annotated[
        bool,
        typer.Option(
            "--show-products",
            help="With --party, of a linear model whose sums were masked in training: the label party then SEES each "
            "party's products, which the training hid. All parties must give it.",
        ),
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="With --party: record every event and effect.")] = False,
    as_json: Annotated[bool, json_option("Print {pages, loss, loss_without, parties}.")] = False,
) -> None:
    """Find which parties and columns a model rests on: in one place, or each party its own over the network."""
    from colonnade.explanation.settings import ExplainSettings

    settings = ExplainSettings(part=on, rows=rows, repeats=repeats, columns=columns, steps=steps, seed=seed)
    if party is not None:
        if combined or runtime:
            raise SettingsError(
                "--combined and --runtime are for models in one place; with --party each party has its own page: leave "
                "them out."
            )
        _as_party(run, party, _Given(settings, out, model, directory, show_products, trace), as_json)
        return
    for name, given in (("--model", model), ("--directory", directory), ("--show-products", show_products)):
        if given:
            raise SettingsError(f"{name} is for one party over the network: give --party as well, or leave it out.")
    from colonnade.launch.explain import EVERYBODY, FOLDER
    from colonnade.launch.explain import explain as find

    found = find(run, settings=settings, out=out, combined=combined, runtime=runtime)
    folder = out or run / FOLDER
    pages = {name: str(folder / f"{name}.html") for name in (*found.told, *([EVERYBODY] if combined else []))}
    _show(found, pages, as_json)


@dataclass(frozen=True)
class _Given:
    """What the command line says of one party's part."""

    settings: "ExplainSettings"
    out: Path | None
    model: Path | None
    directory: Path | None
    show_products: bool
    trace: bool

    def again(self) -> list[str]:
        """The options, to be given once more."""
        asked = self.settings
        words = ["--on", asked.part, "--rows", asked.rows, "--repeats", asked.repeats, "--columns", asked.columns]
        words += ["--steps", asked.steps, "--seed", asked.seed]
        named = {"--out": self.out, "--model": self.model, "--directory": self.directory}
        words += [word for name, given in named.items() if given is not None for word in (name, given)]
        words += [name for name, given in (("--show-products", self.show_products), ("--trace", self.trace)) if given]
        return [str(word) for word in words]


def _as_party(federation: Path, party: Path, given: _Given, as_json: bool) -> None:
    """One party of an explanation over the network, at its own organisation."""
    again = shlex.join(["colonnade", "explain", str(federation), "--party", str(party), *given.again()])
    with one_party(party, again) as (own, stop):
        from colonnade.federation.file import read_federation
        from colonnade.launch.explanation_network import AskedToExplain, explain_party

        asked = AskedToExplain(given.settings, given.model, given.directory, given.show_products)
        shared = read_federation(federation)
        done = explain_party(shared, own, asked, out=given.out, trace=given.trace, stop_requested=stop)
    if not done.finished:
        tell(f"Stopped. Continue with: {again}")
        raise typer.Exit(ExitCode.STOPPED)
    if done.found is None:
        tell(f"Labels are protected in this run, so only {shared.label_party} gets a page.")
        if as_json:
            print(json.dumps({"pages": {}}))
        return
    _show(done.found, {own.party.name: str(done.page)}, as_json)
    if not as_json:
        show_learnt(done.summary["learnt"])


def _show(found: "Explanation", pages: dict[str, str], as_json: bool) -> None:
    if as_json:
        shown = found.combined()
        print(json.dumps({"pages": pages, **{name: shown[name] for name in ("loss", "loss_without", "parties")}}))
        return
    table = Table("party", "makes the loss less by", "standard error")
    for name, one in found.parties.items():
        table.add_row(name, f"{one.value:.4f}", f"{one.standard_error:.4f}")
    console.print(table)
    console.print(
        f"Loss {found.loss:.4f}; with everybody's mean embedding {found.loss_without:.4f}. {found.rows:,} "
        f"{found.part} rows.",
        markup=False,
        highlight=False,
    )
    if not found.tells:
        tell(f"Labels are protected in this run, so only {found.label_party} gets a page.")
    for name, page in pages.items():
        console.print(f"{name}: {page}", markup=False, highlight=False, soft_wrap=True)
