"""One self-contained page for `colonnade audit`: claimed, sound and observed ε beside one another, and the scores.

It is made from the objects that `colonnade audit --json` prints, and shows how scores are distributed, never which row
had which.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from colonnade.reports.bars import Bar, bars, data_link
from colonnade.reports.epsilons import claimed_epsilon
from colonnade.reports.explorer import KEYS, code_for, to_explore
from colonnade.reports.figures import COLOURS, GRID, INK, MUTED, png_bytes
from colonnade.reports.markup import Markup, document, element, section, table
from colonnade.reports.page_parts import Plot, settings_and_versions
from colonnade.reports.summary import versions

_BINS = 40
_SIDE_BY_SIDE = (
    "The bar is what the audit shows at 95 % confidence: ε was at least that. The marks are what the paper's formula "
    "claims and what sound accounting gives; without the latter nothing bounds ε."
)
_SCORES = (
    "One score a canary: how much what the adversary saw speaks for a secret bit of one. The further the two heaps are "
    "apart, the more of the bits are known."
)

_AT_BEST = (
    "At best: what so many canaries could have shown, had every guess been right; an audit says nothing of larger ε. "
    "As Gaussian: a sharper bound, where every canary has noise of its own and nothing else in common with others. It "
    "refutes that the mechanism is the Gaussian one that it says it is, and covers clip, noise and how noise is added, "
    "not what a training does besides."
)


def audit_page(results: Sequence[Mapping[str, Any]]) -> str:
    """The page's HTML."""
    first = results[0]
    audit = first["audit"]
    title = f"Audit of {audit['algorithm']}: {first['protects']}"
    facts = (
        f"against {first['adversary']}; δ = {audit['delta']:g}, {first['canaries']:,} canaries, {audit['epochs']} "
        f"epochs of {audit['rows']:,} rows in batches of {audit['batch_size']}; "
        f"{'noise as in the plan' if audit['formula'] == 'given' else 'noise by the ' + audit['formula'] + ' formula'}"
    )
    lines = [
        (
            str(result["audit"]["seed"]),
            f"{result['noise']:.4g}",
            claimed_epsilon(result),
            "∞" if result["sound"] is None else f"{result['sound']:.2f}",
            f"{result['observed']:.2f}",
            f"{result['largest']:.2f}",
            *(_bound(result[name]) for name in ("gaussian", "gaussian_largest")),
            f"{result['correct']:,} of {result['canaries']:,}",
        )
        for result in results
    ]
    heads = ["seed", "noise", "claimed ε", "sound ε", "observed ε at least", "at best", "as Gaussian", "at best"]
    heads.append("right guesses")
    notes = " ".join(filter(None, [_AT_BEST, first.get("readings")]))
    beneath = element("p", _SIDE_BY_SIDE, " ", data_link("audit", heads, lines), css="small")
    parts = [
        element("h1", title),
        element("p", facts, css="subtitle"),
        *(element("p", words, css="verdict") for words in verdict(results)),
        section("Claimed, sound, observed", side_by_side(results), beneath),
        section("What the adversary saw", _scores(first["scores"]), element("p", _SCORES, css="small")),
        section("Numbers", table(heads, lines, numeric_from=1), element("p", notes, css="small")),
        settings_and_versions(_settings(results), versions()),
        element("footer", element("p", "No row's label or columns are shown.", css="small")),
    ]
    return document(title, *parts, code_for(parts))


def audit_plots(results: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """What is drawn for a paper."""
    drawn = (("audit", drawing(results)), ("scores", histogram(results[0]["scores"])))
    return [Plot(key, key, "", png_bytes(figure), wide=True, figure=figure) for key, figure in drawn]


def verdict(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The answer first: whether the audit refutes what is claimed, or found nothing against it."""
    first = results[0]
    most = max(result["observed"] for result in results)
    each = " each" if len(results) > 1 else ""
    said = (
        f"The run cannot have kept an ε below {most:.2f} ({100 * first['audit']['confidence']:g} % confidence{each})."
    )
    if most <= 0:
        said = "The audit found nothing: the adversary guessed no better than chance explains."
    if first["claimed"] is not None:
        beyond = sum(result["observed"] > result["claimed"] for result in results)
        of = f" in {beyond} of {len(results)} audits" if len(results) > 1 else ""
        said += f" Claimed: ε = {claimed_epsilon(first)}"
        other = first["claimed_otherwise"]
        readings = "" if other is None else " by either reading" if most > other else " by the first reading"
        said += f", which is refuted{of}{readings}." if beyond else ", which is not refuted."
    sound = "nothing bounds ε end to end (∞)" if first["sound"] is None else f"ε = {first['sound']:.2f}"
    largest = max(result["largest"] for result in results)
    return [said, f"Sound: {sound}. So many canaries could show ε = {largest:.2f} at best, and nothing above."]


def side_by_side(results: Sequence[Mapping[str, Any]]) -> Markup:
    """Observed as bars, with claimed and sound as marks."""
    lines = [
        Bar(
            f"seed {result['audit']['seed']}",
            result["observed"],
            f"ε ≥ {result['observed']:.2f}",
            marks=(
                ("claimed", result["claimed"]),
                ("claimed, otherwise read", result.get("claimed_otherwise")),
                ("sound", result["sound"]),
            ),
        )
        for result in results
    ]
    return bars(lines, ["observed, at least"])


def _scores(scores: Sequence[Sequence[float]]) -> Markup:
    """How many canaries with either bit have which score, to explore."""
    everything = [score for side in scores for score in side]
    if not everything or min(everything) == max(everything):
        return Markup("")
    edges = np.linspace(min(everything), max(everything), _BINS + 1)
    curves = [
        {
            "name": f"bit {bit}",
            "score": [float(f"{edge:.6g}") for edge in edges],
            "canaries": [*np.histogram(side, edges)[0].tolist(), 0],
            "steps": True,
        }
        for bit, side in enumerate(scores)
    ]
    plots = [{"key": "canaries", "title": "canaries"}]
    told = {"axes": {"score": "score"}, "plots": plots, "curves": curves, "what": "bit", "file": "scores", "note": KEYS}
    return to_explore(told)


def _settings(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all audits had alike."""
    first = results[0]["audit"]
    return {key: value for key, value in first.items() if all(one["audit"][key] == value for one in results)}


def drawing(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Observed as bars, claimed and sound as marks."""
    figure = Figure(figsize=(9.6, 1.4 + 0.42 * len(results)), layout="constrained")
    axes = figure.subplots()
    for place, result in enumerate(results):
        first = place == 0
        axes.barh(place, result["observed"], 0.6, color=COLOURS[0], label="observed, at least" if first else None)
        marks = (
            ("claimed", COLOURS[1], result["claimed"]),
            ("claimed, otherwise read", COLOURS[2], result.get("claimed_otherwise")),
            ("sound", INK, result["sound"]),
        )
        for name, colour, value in marks:
            if value is not None:
                ends = [place - 0.42, place + 0.42]
                axes.plot([value, value], ends, color=colour, linewidth=2.2, label=name if first else None)
    axes.set_yticks(range(len(results)), [f"seed {result['audit']['seed']}" for result in results])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("ε", color=MUTED, fontsize=9)
    _quiet(axes)
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=8.5)
    return figure


def histogram(scores: Sequence[Sequence[float]]) -> Figure:
    """The scores of canaries with either bit."""
    figure = Figure(figsize=(9.6, 3.0), layout="constrained")
    axes = figure.subplots()
    everything = [score for side in scores for score in side]
    span = (min(everything), max(everything))
    for bit, side in enumerate(scores):
        axes.hist(side, _BINS, range=span, color=COLOURS[bit], alpha=0.65, label=f"bit {bit}")
    axes.set_xlabel("score", color=MUTED, fontsize=9)
    axes.set_ylabel("canaries", color=MUTED, fontsize=9)
    _quiet(axes)
    axes.legend(frameon=False, fontsize=8.5)
    return figure


def _quiet(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=MUTED, labelsize=8.5)
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", color=GRID, linewidth=0.8)


def _bound(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
