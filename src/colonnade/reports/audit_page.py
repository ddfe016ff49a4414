"""One self-contained page for `colonnade audit`: claimed, sound and observed ε beside one another, and the scores.

It is made from the objects that `colonnade audit --json` prints, and shows how scores are distributed, never which row
had which.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from colonnade.reports.epsilons import claimed_epsilon
from colonnade.reports.figures import COLOURS, GRID, INK, MUTED, png_bytes
from colonnade.reports.markup import document, element, plot, section, table

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
    return document(
        title,
        element("h1", title),
        element("p", facts, css="subtitle"),
        section("Claimed, sound, observed", plot(png_bytes(bars(results)), title, _SIDE_BY_SIDE, wide=True)),
        section("What the adversary saw", plot(png_bytes(histogram(first["scores"])), "scores", _SCORES, wide=True)),
        section("Numbers", table(heads, lines, numeric_from=1), element("p", notes, css="small")),
        element("footer", element("p", "No row's label or columns are shown.", css="small")),
    )


def bars(results: Sequence[Mapping[str, Any]]) -> Figure:
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
