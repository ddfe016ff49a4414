"""`colonnade audit`: claimed, sound and observed ε of a private algorithm, side by side."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.names import AUDITED, offering
from colonnade.cli.options import Changes, Pictures, json_option, was_given
from colonnade.cli.output import console, interrupted, shown
from colonnade.errors import RunError, SettingsError

if TYPE_CHECKING:
    from colonnade.trials.audit import Audited


def audit(
    context: typer.Context,
    algorithm: Annotated[
        str,
        typer.Argument(
            metavar="ALGORITHM|FEDERATION.toml",
            help=f"One of: {', '.join(AUDITED)}; or your own federation, whose tables are on this machine: its noise, "
            "clips, models, batches, rows and epochs.",
            autocompletion=offering(AUDITED),
        ),
    ] = AUDITED[0],
    changes: Changes = None,
    party: Annotated[
        str,
        typer.Option(
            "--party", help="With a file: the feature party that is audited. Default: the first.", show_default=False
        ),
    ] = "",
    epsilon: Annotated[float, typer.Option(help="The ε that the noise is to keep.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Its δ.")] = 1e-5,
    formula: Annotated[str, typer.Option(help="Whose noise: the paper's, or the sound one.")] = "paper",
    server_update: Annotated[
        str, typer.Option(help=f"{AUDITED[0]}: zeroth-order, first-order (the paper's), private-zo, dp-sgd or frozen.")
    ] = "zeroth-order",
    rows: Annotated[
        int, typer.Option(help="Training rows; 0: so many that the audit could refute ε up to 8.", min=0)
    ] = 0,
    batch_size: Annotated[int, typer.Option(help="Rows in a batch.", min=1)] = 8,
    epochs: Annotated[int, typer.Option(help="How often every row is used; 0: 10, or fewer of many rows.", min=0)] = 0,
    trials: Annotated[int, typer.Option(help="Audits, each with a seed of its own.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="The seed of the first audit.", min=0)] = 0,
    page: Annotated[Path | None, typer.Option(help="Write a page with the figures here.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write what --json prints here: a file, or a run's directory, whose report then shows it.",
            show_default=False,
        ),
    ] = None,
    figures: Pictures = None,
    as_json: Annotated[bool, json_option("Print JSON, and nothing else.")] = False,
) -> None:
    """Guess the secret bits of canary rows from one training run: how large must ε have been?"""
    from colonnade.reports.audit_page import audit_page, audit_plots
    from colonnade.reports.observed import AUDIT_FILE
    from colonnade.reports.page_parts import write_figures
    from colonnade.trials.audit import Audit, OwnSettings, run_audit
    from colonnade.trials.own_audit import own_audit

    own: OwnSettings | None = None
    with interrupted("No audit is kept."):
        if algorithm.endswith(".toml"):
            _refuse_beside_file(context, algorithm)
            asked, own = own_audit(Path(algorithm), changes or [], party, seed)
        elif changes or party:
            raise SettingsError("--set and --party are for a federation of your own: give its FEDERATION.toml.")
        else:
            update = server_update
            asked = Audit(algorithm, epsilon, delta, formula, rows, batch_size, epochs, server_update=update, seed=seed)
        results = [run_audit(replace(asked, seed=seed + trial), own) for trial in range(trials)]
    values = [result.as_values() for result in results]
    if page is not None:
        _write(page, audit_page(values))
    if figures is not None:
        write_figures(figures, audit_plots(values))
    if out is not None:
        out = out / AUDIT_FILE if out.is_dir() else out
        _write(out, json.dumps(values) + "\n")
    if as_json:
        print(json.dumps(values))
        return
    show(results)
    if page is not None:
        console.print(f"Page: {page}", markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"Audit: {out}", markup=False, soft_wrap=True)


def _refuse_beside_file(context: typer.Context, file: str) -> None:
    for name in ("epsilon", "delta", "formula", "server_update", "rows", "batch_size", "epochs"):
        if was_given(context, name):
            option = "--" + name.replace("_", "-")
            raise SettingsError(
                f"{option} is for an audit of an algorithm; {file} says this itself. Leave it out, or change the "
                "file's settings with --set."
            )


def _write(path: Path, text: str) -> None:
    from colonnade.files import SHARED, write_atomically

    try:
        write_atomically(path, text.encode(), SHARED)
    except OSError as error:
        raise RunError(f"{path} could not be written: {error.strerror}. Choose another place.") from None


def show(results: "list[Audited]") -> None:
    """A table of the audits, and what it means."""
    from rich.table import Table

    from colonnade.reports.epsilons import claimed_epsilon

    first = results[0]
    console.print(f"{first.audit.algorithm}: {first.protects}, against {first.adversary}; δ = {first.audit.delta:g}")
    table = Table(
        "seed", "noise", "claimed ε", "sound ε", "observed ε ≥", "at best", "as Gaussian ε ≥", "right guesses"
    )
    for result in results:
        table.add_row(
            str(result.audit.seed),
            f"{result.noise:.4g}",
            claimed_epsilon(asdict(result)),
            "∞" if result.sound == float("inf") else f"{result.sound:.2f}",
            f"{result.observed:.2f}",
            f"{result.largest:.2f}",
            shown(result.gaussian, "{:.2f}"),
            f"{result.correct} of {result.canaries}",
        )
    console.print(table)
    console.print(
        f"With {first.canaries:,} canaries, all guessed right, an audit would show ε ≥ {first.largest:.2f}: of larger "
        f"ε it says nothing. By last digits alone {first.digits_correct:,} were guessed right.",
        markup=False,
    )
    if first.gaussian is not None:
        console.print(
            f"As Gaussian: each canary a mechanism for itself, up to ε ≥ {first.gaussian_largest:.1f}. It covers clip "
            "and noise, and how noise is added and accounted for; not what a training does besides.",
            markup=False,
        )
    if first.sound == float("inf"):
        whose = "label party's" if first.audit.of_labels else "audited party's"
        console.print(
            f"The {whose} own update is not private, so nothing bounds ε end to end; if its model were known to "
            f"everybody, ε would be {first.given_hidden_state:.2f}.",
            markup=False,
        )
    beyond = sum(_refuted(result.claimed, result) for result in results)
    if beyond:
        either = all(
            _refuted(result.claimed_otherwise, result) for result in results if _refuted(result.claimed, result)
        )
        by = "" if not first.readings else " by either reading" if either else " by the first reading"
        console.print(
            f"Observed above claimed in {beyond} of {len(results)}: the claim does not hold{by}.", markup=False
        )
    if first.readings:
        console.print(first.readings, markup=False)


def _refuted(claimed: float | None, result: "Audited") -> bool:
    return claimed is not None and result.observed > claimed
