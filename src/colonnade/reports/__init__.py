"""What a run did, on one page: reads run directories, draws figures, writes self-contained HTML.

Sees only the files of a run directory; it knows no algorithm, no runtime and no model. Matplotlib is loaded
when the first page is asked for, not before: a run that only writes its summary should not wait for it.
"""

from typing import TYPE_CHECKING, Any

from colonnade.reports.comparison import ComparisonRow, comparison_rows
from colonnade.reports.rundir import MetricLine, PartyTotals, Run, Span, read_run

if TYPE_CHECKING:
    from colonnade.reports.comparison_page import write_comparison
    from colonnade.reports.run_page import write_report

__all__ = [
    "ComparisonRow",
    "MetricLine",
    "PartyTotals",
    "Run",
    "Span",
    "comparison_rows",
    "read_run",
    "write_comparison",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "write_comparison":
        from colonnade.reports.comparison_page import write_comparison

        return write_comparison
    if name == "write_report":
        from colonnade.reports.run_page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
