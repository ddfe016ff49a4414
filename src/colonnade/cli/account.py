"""`colonnade account`: what a plan costs, before anything is sent."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import Changes, FederationFile, json_option
from colonnade.cli.output import console, megabytes
from colonnade.errors import RunError, SettingsError

if TYPE_CHECKING:
    from colonnade.costs.estimate import Advice, Price
    from colonnade.federation.plan import Facts, Plan


def account(
    federation: FederationFile,
    delta: Annotated[
        float | None, typer.Option(help="δ of all figures, instead of privacy.delta.", show_default=False)
    ] = None,
    changes: Changes = None,
    epsilon: Annotated[
        float, typer.Option(help="What is wanted, for suggestions, where the file has no target.", min=0)
    ] = 0.0,
    noise_to_signal: Annotated[
        float, typer.Option(help="The most noise, in units of the clip, that suggestions should come to.")
    ] = 0.25,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw ε against epochs, by both formulas, into this PNG file.", show_default=False),
    ] = None,
    as_json: Annotated[bool, json_option("Print the figures as JSON, and nothing else.")] = False,
) -> None:
    """Price a plan: exchanges, bytes, and ε claimed and sound against everybody. Nothing is sent or trained."""
    from colonnade.costs.estimate import price, with_delta
    from colonnade.data import load
    from colonnade.federation.building import facts_of
    from colonnade.federation.file import read_federation
    from colonnade.federation.plan import check_plan
    from colonnade.privacy.accounting import SECRET, SHARED

    settings = read_federation(federation, changes or [])
    data = load(settings.data, settings.party_data(), settings.label_party, federation.parent)
    plan = settings.plan(data)
    if delta is not None:
        plan = with_delta(plan, delta)
    check_plan(plan, data.rows, (data.label_party, *data.feature_parties), data.columns, data.validation_rows)
    facts = facts_of(data, plan)
    randomness = SECRET if settings.network.private_randomness else SHARED
    priced = price(plan, facts, epsilon, noise_to_signal, randomness)
    if figure is not None:
        if randomness == SHARED:
            raise SettingsError(
                "There is nothing to draw: with network.private_randomness = false every party can compute the noise, "
                "so ε = ∞. Leave that setting out."
            )
        _draw(priced.plan, facts, figure)
    if as_json:
        print(json.dumps({**priced.as_values(), "figure": None if figure is None else str(figure)}))
        return
    _show(priced, noise_to_signal)
    if figure is not None:
        console.print(f"Figure: {figure}", markup=False, soft_wrap=True)


def _draw(plan: "Plan", facts: "Facts", path: Path) -> None:
    from colonnade.costs.estimate import epochs_to_draw
    from colonnade.costs.guarantees import epsilon_curves
    from colonnade.files import SHARED, write_atomically
    from colonnade.reports.figures import epsilon_against_epochs, png_bytes

    alone_or_linear = plan.is_alone or plan.is_linear
    epochs = epochs_to_draw(plan.training.epochs)
    curves = [] if alone_or_linear else epsilon_curves(plan, facts, epochs)
    named = [
        (
            f"{curve.direction}{' (conditional)' if curve.conditional else ''}",
            {"claimed": curve.claimed, "claimed, otherwise read": curve.claimed_otherwise, "sound": curve.sound},
        )
        for curve in curves
    ]
    drawn = epsilon_against_epochs(epochs, named, plan.training.epochs)
    if drawn is None:
        raise SettingsError("There is nothing to draw: this plan noises no value, so ε = ∞ after the first exchange.")
    try:
        write_atomically(path, png_bytes(drawn), SHARED)
    except OSError as error:
        raise RunError(f"{path} could not be written: {error.strerror}. Choose another place with --figure.") from None


def _show(priced: "Price", wanted_ratio: float) -> None:
    from rich.table import Table

    from colonnade.reports.epsilons import HEADS, figure_rows
    from colonnade.reports.page_parts import PAPER_FORMULA

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("exchanges", f"{priced.exchanges:,}")
    table.add_row("bytes up / down", f"{megabytes(priced.bytes_up)} / {megabytes(priced.bytes_down)}")
    table.add_row("evaluation bytes", megabytes(priced.evaluation_bytes))
    if priced.refresh_bytes is not None:
        up, down = priced.refresh_bytes
        table.add_row("refreshes (max_delay)", f"at most {megabytes(up)} / {megabytes(down)} beside these")
    for one in priced.noises:
        table.add_row(f"noise on {one.values}", f"{one.noise:.4g} ({one.setting}), {one.ratio:.3g} times the clip")
    console.print(table)
    if priced.plan.privacy.formula == "paper":
        console.print(PAPER_FORMULA, style="yellow", markup=False)
    figures = Table(title=f"What one row's data cost, δ = {priced.plan.privacy.delta:g}", title_justify="left")
    rows, conditions = figure_rows([figure.as_values() for figure in priced.figures])
    for heading in HEADS:  # nothing was observed yet
        figures.add_column(heading)
    for row in rows:
        figures.add_row(*row)
    if rows:
        console.print(figures)
    for place, words in enumerate(conditions, 1):
        console.print(f"{place}. {words}", markup=False, highlight=False, soft_wrap=True)
    for missed in priced.missed:
        console.print(
            f"Warning: the noise that is set does not keep ε = {missed.target:g} for {missed.direction}, but "
            f"{missed.epsilon:.4g}. The target is then a budget: rows are refused once it is spent, and the training "
            "ends before its planned epochs. Leave the noise out, and it follows from the target.",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    for advice in priced.advice:
        console.print(_in_words(advice, wanted_ratio), markup=False, highlight=False, soft_wrap=True)


def _in_words(advice: "Advice", wanted_ratio: float) -> str:
    """What a wanted ε asks for, and how to come to less noise."""
    found = advice.suggestion
    ways = [] if found.epochs is None else [f"at most {found.epochs:,} epochs"]
    ways += [] if found.batch_size is None else [f"batches of at least {found.batch_size:,}"]
    clip = "" if advice.clip is None else f" With the noise that is set, a clip of {advice.clip:.3g} keeps it."
    reach = f"To come to {wanted_ratio:g}: {', or '.join(ways)}." if ways else f"{wanted_ratio:g} is out of reach."
    return (
        f"ε = {advice.epsilon:g} for {advice.values} asks for noise of {found.noise_to_signal:.3g} times the clip. "
        f"{reach}{clip}"
    )
