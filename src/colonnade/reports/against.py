"""What a run is held against: how sure its metric is, and models of fewer columns, or of all in one place."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from colonnade.errors import RunError
from colonnade.files import check_depth, json_of, read_whole
from colonnade.reports.amounts import DASH, measure, number
from colonnade.reports.markup import Markup, element, table
from colonnade.reports.rundir import SMALLER_IS_BETTER, Run

_DEVIATIONS = 1.96  # 95 % of a normal distribution
BASELINES = "baselines.json"


def interval(metric: str | None, value: float | None, rows: float | None) -> tuple[float, float] | None:
    """Where a share of right answers may lie by the chance of so many rows: Wilson's interval of 95 %; None of others.

    >>> low, high = interval("accuracy", 0.9, 100)
    >>> round(low, 3), round(high, 3)
    (0.826, 0.945)
    """
    if metric != "accuracy" or value is None or not rows:
        return None
    spread = _DEVIATIONS**2 / rows
    centre = (value + spread / 2) / (1 + spread)
    reach = _DEVIATIONS / (1 + spread) * sqrt(max(0.0, value * (1 - value)) / rows + spread / (4 * rows))
    return max(0.0, centre - reach), min(1.0, centre + reach)


def rows_scored(run: Run, part: str) -> float | None:
    return number(run.section("data").get(f"{part}_rows"))


def in_words(metric: str | None, found: tuple[float, float] | None) -> str:
    return "" if found is None else f" (95 % interval {measure(metric, found[0])} to {measure(metric, found[1])})"


def baselines_of(run: Run) -> Mapping[str, Any]:
    """What `colonnade report --baselines` has trained for this run; nothing, if it has not."""
    try:
        found = json_of(read_whole(run.path / BASELINES))
        check_depth(found)
    except (OSError, ValueError, RunError):
        return {}
    return found if isinstance(found, dict) else {}


def in_one_place(run: Run) -> str:
    """A sentence of the verdict; nothing without baselines."""
    metric = run.headline
    everybody, alone, _ = _told(run)
    if metric is None or everybody is None:
        return ""
    said = f"All columns in one place would have {measure(metric, everybody)}"
    best = min if metric in SMALLER_IS_BETTER else max
    if alone:
        party = best(alone, key=alone.__getitem__)
        said += f", the best party alone, {party}, {measure(metric, alone[party])}"
    return f"{said}."


def partners(run: Run) -> list[Markup]:
    """What each party adds: alone, and by how much the model in one place is worse without it."""
    metric = run.headline
    everybody, alone, without = _told(run)
    if metric is None or everybody is None:
        return []
    name = metric.replace("_", " ")
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    lines = [
        ["this federation", measure(metric, run.final_metric), DASH, DASH],
        ["all columns in one place", measure(metric, everybody), DASH, DASH],
    ]
    for party in dict.fromkeys([*alone, *without]):
        # Of two parties, who is left when one is gone is alone.
        rest = without.get(party)
        if rest is None and len(alone) == 2:
            rest = next(value for other, value in alone.items() if other != party)
        adds = None if rest is None else sign * (everybody - rest)
        lines.append([f"{party} alone", measure(metric, alone.get(party)), measure(metric, rest), _added(metric, adds)])
    lines.append(["one prediction for all rows", measure(metric, run.baseline), DASH, DASH])
    words = (
        f"{name[0].upper()}{name[1:]} on the test rows. All models but the federation's are trained in one place, "
        "without noise. What a party adds is how much worse the model in one place is without it; parties that know "
        "the same add little, each of them, though one of them is needed."
    )
    return [table(["columns of", name, "all but these", "adds"], lines), element("p", words, css="small")]


def _added(metric: str, value: float | None) -> str:
    if value is None:
        return DASH
    return f"{'+' if value >= 0 else '−'}{measure(metric, abs(value))}"


def _told(run: Run) -> tuple[float | None, dict[str, float], dict[str, float]]:
    """The headline metric of everybody in one place, of each party alone, and of all without it."""
    found, metric = baselines_of(run), run.headline or ""

    def of(scores: Any) -> float | None:
        return number(scores.get(metric)) if isinstance(scores, Mapping) else None

    def each(kind: str) -> dict[str, float]:
        scores = found.get(kind)
        listed = scores.items() if isinstance(scores, Mapping) else ()
        return {str(party): value for party, one in listed if (value := of(one)) is not None}

    return of(found.get("everybody")), each("alone"), each("without")
