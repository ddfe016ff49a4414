"""The data behind each figure of a run's page, as the heads and lines of a table; what a reader takes away as CSV.

Curves and lanes are not here: the page's own scripts hold their data, and give it.
"""

from collections.abc import Sequence

from colonnade.reports.amounts import number
from colonnade.reports.error_figures import numbers
from colonnade.reports.figures import staleness_bins
from colonnade.reports.rundir import Run

Lines = tuple[Sequence[str], Sequence[Sequence[object]]]


def data_behind(run: Run, key: str) -> Lines | None:
    """Of the figure with this key; None if it is not here."""
    found = {
        "utilisation": _utilisation,
        "staleness": _staleness,
        "bytes": _bytes,
        "timeline": _timeline,
        "confusion": _confusion,
        "roc": _roc,
        "calibration": _calibration,
    }.get(key)
    return None if found is None else found(run)


def _utilisation(run: Run) -> Lines:
    heads = ("party", "seconds at work", "seconds waiting", "seconds away")
    return heads, [(one.name, one.busy_seconds, one.idle_seconds, one.away_seconds) for one in run.parties]


def _timeline(run: Run) -> Lines:
    heads = ("party", "from second", "to second", "what")
    return heads, [(one.party, one.start_seconds, one.end_seconds, one.what) for one in run.timeline]


def _staleness(run: Run) -> Lines | None:
    histogram = run.section("staleness").get("histogram")
    bins = staleness_bins(histogram) if isinstance(histogram, dict) else []
    return (("age in exchanges", "values used"), bins) if bins else None


def _bytes(run: Run) -> Lines:
    sizes = run.section("bytes_by_message")
    return ("message", "bytes"), [(kind, number(size)) for kind, size in sizes.items()]


def _confusion(run: Run) -> Lines | None:
    counts = numbers(run.section("errors").get("confusion"))
    if counts is None:
        return None
    classes = range(counts.shape[1])
    return ("class", *(f"taken for {one}" for one in classes)), [(at, *map(int, row)) for at, row in enumerate(counts)]


def _roc(run: Run) -> Lines | None:
    heads = ("share of the negatives taken for positives", "share of the positives found")
    points = numbers(run.section("errors").get("roc"))
    return None if points is None else (heads, points.tolist())


def _calibration(run: Run) -> Lines | None:
    bins = numbers(run.section("errors").get("calibration"))
    return None if bins is None else (("probability said", "share that came true", "rows"), bins.tolist())
