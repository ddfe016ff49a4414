"""The page of `colonnade explain`: what one party is shown of what a model rests on."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from colonnade.reports import figures
from colonnade.reports.amounts import DASH, significant
from colonnade.reports.markup import Markup, document, element, plot, section, table

_MOST_BARS = 20


def explanation_page(told: Mapping[str, Any]) -> str:
    """HTML of one explain/NAME.json."""
    party = told["party"]
    title = "What the model rests on" + (f", as {party} sees it" if party else "")
    sums = told["loss_without"] - told["loss"]
    columns = told["columns"]
    return document(
        f"{title} – Colonnade",
        element("h1", title),
        element("p", f"{told['rows']:,} {told['part']} rows · {told['loss_is']}", css="subtitle"),
        section(
            "Parties",
            element(
                "p",
                f"With all embeddings the loss is {significant(told['loss'])}; with everybody's mean in their place it "
                f"is {significant(told['loss_without'])}. The difference, {significant(sums)}, is shared out by "
                + (f"Shapley values over all {told['coalitions']} coalitions." if told["coalitions"] else _SAMPLED),
            ),
            _bars([(name, one["shapley"], one["standard_error"]) for name, one in told["parties"].items()]),
            table(
                ("party", "makes the loss less by", "standard error", "loss grows when shuffled by", "standard error"),
                [(name, *(significant(one[key]) for key in _PARTY)) for name, one in told["parties"].items()],
            ),
        ),
        section("Columns", *_columns(columns, told, party)),
        section("What this took", element("ul", *(element("li", words) for words in _taken(told)))),
    )


_PARTY = ("shapley", "standard_error", "shuffled", "shuffled_standard_error")
_SAMPLED = "Shapley values over orders of parties drawn at random."


def _columns(columns: Sequence[Mapping[str, Any]], told: Mapping[str, Any], party: str | None) -> list[Markup]:
    if not columns:
        return []
    left = told["left_out"]
    words = (
        "By how much the loss grows when a column's values are dealt out to the rows anew; and its mean part in the "
        "outputs."
    )
    if left:
        words += f" {left:,} columns that change the outputs less were not tried."
    rows = [
        (
            one["column"] if party else f"{one['party']}: {one['column']}",
            significant(one["shuffled"]),
            significant(one["standard_error"]),
            DASH if one["integrated_gradient"] is None else significant(one["integrated_gradient"]),
        )
        for one in columns
    ]
    bars = [(row[0], one["shuffled"], one["standard_error"]) for row, one in zip(rows, columns, strict=True)]
    heads = ("column", "loss grows by", "standard error", "integrated gradient")
    return [element("p", words), _bars(sorted(bars, key=lambda bar: -bar[1])[:_MOST_BARS]), table(heads, rows)]


def _taken(told: Mapping[str, Any]) -> list[str]:
    lines = [str(one) for one in told["learnt"]]
    if told.get("evaluations") is not None:
        lines.append(f"The label party, {told['label_party']}, scored {told['evaluations']:,} variants of the rows.")
    if told.get("epsilon") is not None:
        lines.append(
            f"One row's columns of {told['party']} have cost ε = {significant(told['epsilon'])} by now, sound."
        )
    return lines


def _bars(bars: Sequence[tuple[str, float, float]]) -> Markup:
    figure = Figure(figsize=(6.4, 0.6 + 0.3 * len(bars)), layout="constrained")
    axes = figure.subplots()
    names = [bar[0] if len(bar[0]) <= 40 else f"{bar[0][:39]}…" for bar in bars]
    axes.barh(range(len(bars)), [bar[1] for bar in bars], xerr=[bar[2] for bar in bars], color="#4c78a8", ecolor="#555")
    axes.set_yticks(range(len(bars)), [name.replace("$", r"\$") for name in names])
    axes.invert_yaxis()
    axes.axvline(0, color="#333", linewidth=0.8)
    axes.set_xlabel("loss")
    return plot(figures.png_bytes(figure), "In the loss.", "Lines show one standard error on each side.", True)
