"""The page of `colonnade tune`: what was tried, for how many epochs, and what came of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.reports.amounts import measure
from colonnade.reports.markup import document, element, section, table
from colonnade.reports.page_parts import footer, write_whole


def write_tune(directory: Path, result: Mapping[str, Any]) -> Path:
    """Writes `tune.html` into the search's directory; returns its path."""
    return write_whole(directory / "tune.html", tune_page(directory.resolve().name, result).encode("utf-8"))


def tune_page(name: str, result: Mapping[str, Any]) -> str:
    """The page's HTML."""
    return document(
        f"{name} – Colonnade tune",
        element("h1", name),
        element("p", verdict(result)),
        element("p", _world(result)),
        *(section(f"{rung['epochs']:g} epochs", _table(rung["trials"])) for rung in result["rungs"]),
        footer(virtual=True),
    )


def verdict(result: Mapping[str, Any]) -> str:
    """What the search found, in two sentences."""
    metric = result["metric_name"]
    shown = {
        key: "nothing" if result[key] is None else measure(metric, result[key]) for key in ("before", "after", "test")
    }
    words = metric.replace("_", " ")
    if not result["changes"]:
        return f"Nothing that was tried is better than the file as it is: {words} {shown['after']} on held-out rows."
    changes = ", ".join(f"{name} = {value}" for name, value in result["changes"].items())
    seconds = ["no time" if one is None else f"{one:.3g} virtual seconds" for one in result["virtual_seconds"]]
    return (
        f"Best: {changes}. On held-out rows {words} {shown['after']}, with the file as it is {shown['before']}; "
        f"it took {seconds[1]}, the file as it is {seconds[0]}. "
        f"Trained on all training rows, it has a test {words} of {shown['test']}."
    )


def _world(result: Mapping[str, Any]) -> str:
    """What trials were simulated with."""
    measured: Mapping[str, float] = result["compute_seconds"]
    links = "Links are the file's."
    if not measured:
        return f"Trials were simulated with the compute times that the file declares. {links}"
    shown = ", ".join(f"{party} {1000 * seconds:.3g} ms" for party, seconds in measured.items())
    return (
        "Trials were simulated with compute times measured on this machine, each with those of its own batch and "
        f"models. Of the best, per message: {shown}. What the file declares was left as it is. {links}"
    )


def _table(trials: Sequence[Mapping[str, Any]]) -> Any:
    heads = [*trials[0]["changes"], "virtual seconds", "on held-out rows"]
    lines = [
        (
            *one["changes"].values(),
            "" if one["virtual_seconds"] is None else f"{one['virtual_seconds']:.3g}",
            one["why"] if one["metric"] is None else measure(one["metric_name"], one["metric"]),
        )
        for one in trials
    ]
    return table(heads, lines, numeric_from=len(heads) - 2)
