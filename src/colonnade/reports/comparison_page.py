"""One self-contained HTML page for several runs: who was faster, to what, at which price, and where settings differ."""

from collections.abc import Sequence
from pathlib import Path

from colonnade.errors import SettingsError
from colonnade.files import SHARED
from colonnade.reports import figures
from colonnade.reports.amounts import (
    DASH,
    byte_size,
    count,
    duration,
    flat_settings,
    measure,
    number,
    ratio,
    significant,
)
from colonnade.reports.bars import Bar, bars, data_link
from colonnade.reports.comparison import ComparisonRow, comparison_rows, shared_clock, why_no_target
from colonnade.reports.epsilons import in_one_line
from colonnade.reports.explorer import code_for, explorer
from colonnade.reports.lanes import code_for_lanes, lanes
from colonnade.reports.markup import Markup, document, element, folded, join, section, table
from colonnade.reports.page_parts import (
    CLOCK_WORDS,
    NOT_PRIVATE,
    NOTHING,
    Plot,
    drawn,
    footer,
    pairs_table,
    shown_value,
    write_figures,
    write_whole,
)
from colonnade.reports.rundir import Run, distinct_names, read_run


def write_comparison(
    run_dirs: Sequence[Path], out: Path, target: float | None = None, pictures: Path | None = None
) -> Path:
    """Writes one page about several runs to the file `out`, or into a directory as `comparison.html`."""
    if len(run_dirs) < 2:
        raise SettingsError(f"A comparison needs at least two run directories; {len(run_dirs)} given. Name another.")
    runs = [read_run(path) for path in run_dirs]
    rows = comparison_rows(runs, target)
    page = Path(out) / "comparison.html" if Path(out).is_dir() else Path(out)
    plots = _comparison_plots(runs, rows)
    if pictures is not None:
        write_figures(pictures, plots)
    return write_whole(page, _comparison_page(runs, rows, plots).encode("utf-8"), SHARED)


def _comparison_page(runs: Sequence[Run], rows: Sequence[ComparisonRow], plots: Sequence[Plot]) -> str:
    names = distinct_names(list(runs))
    curves = [one.markup() for one in plots if one.key.startswith("curves_")]
    pictured = [one.markup() for one in plots if one.key == "timelines"]
    lanes_shown = [
        join([element("h3", name), shown]) for run, name in zip(runs, names, strict=True) if (shown := lanes(run))
    ]
    algorithms = " · ".join(dict.fromkeys(run.algorithm for run in runs))
    data = " and ".join(dict.fromkeys(run.data_name for run in runs if run.data_name))
    parts = [
        element("h1", f"{len(runs)} runs compared"),
        element("p", f"{algorithms} on {data}" if data else algorithms, css="subtitle"),
        _verdict(rows),
        *_comparison_notices(runs, rows),
        section("Until the target", _time_bars(rows), _comparison_table(rows), _clock_footnote(runs)),
        section("Curves", explorer(runs), element("div", *curves, css="plots curves") if curves else NOTHING),
        section(
            "Who worked when",
            *lanes_shown,
            element("div", *pictured, css="plots pictured" if lanes_shown else "plots") if pictured else NOTHING,
        ),
        section("What was sent, and how old it was", _sent(runs, names)),
        section("What differs", _differences(runs, names)),
        section("Privacy", _privacy_of_each(runs, names)),
        section("Versions", folded("All versions", _versions(runs, names))),
        footer(any(run.clock == "virtual" for run in runs)),
    ]
    return document(f"{len(runs)} runs compared – Colonnade", *parts, code_for(parts), code_for_lanes(parts))


def _comparison_plots(runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> list[Plot]:
    target = rows[0]["target"]
    clock = shared_clock(runs)
    pair = _slowest_and_fastest(runs, rows)
    words = CLOCK_WORDS[clock] if clock else ""
    return drawn(
        [
            (
                "curves_seconds",
                f"Against {words}.",
                "Training loss and test metric; the run whose curve reaches the dotted target further left "
                "needed less time.",
                figures.compared_curves(runs, "seconds", target),
                False,
            ),
            (
                "curves_exchanges",
                "Against exchanges.",
                "The same curves counted in exchanges: who learns more from each one, however long it takes.",
                figures.compared_curves(runs, "exchanges", target),
                False,
            ),
            (
                "curves_megabytes",
                "Against megabytes.",
                "The same curves against everything sent, both ways: further left is lighter on the network.",
                figures.compared_curves(runs, "megabytes", target),
                False,
            ),
            (
                "time_to_target",
                "Time to the target.",
                "Shorter is better; in brackets how many times sooner than the slowest run.",
                figures.time_to_target(rows),
                False,
            ),
            (
                "timelines",
                "The first moments of two runs, on the same time axis.",
                "Coloured bars are work, grey is waiting, hatched red is away: the run with less grey wastes "
                "less of its parties' time.",
                figures.compared_timelines(*pair) if pair else None,
                True,
            ),
        ]
    )


def _slowest_and_fastest(runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> tuple[Run, Run] | None:
    """Of the runs with a timeline, the slowest and the fastest to the target (never is slowest)."""
    drawable = [
        (row["seconds_to_target"] if row["seconds_to_target"] is not None else float("inf"), place)
        for place, (run, row) in enumerate(zip(runs, rows, strict=True))
        if figures.timeline_window(run.timeline) is not None
    ]
    if len(drawable) < 2:
        return None
    ordered = sorted(drawable)
    return runs[ordered[-1][1]], runs[ordered[0][1]]


def _verdict(rows: Sequence[ComparisonRow]) -> Markup:
    metric, target = rows[0]["metric"], rows[0]["target"]
    if metric is None or target is None:
        return element("p", why_no_target(rows))
    told = f"Target: test {metric.replace('_', ' ')} of {measure(metric, target)} or better. "
    timed = [row for row in rows if row["seconds_to_target"] is not None]
    if len(timed) >= 2 and rows[0]["clock"] is not None:
        fastest = min(timed, key=lambda row: row["seconds_to_target"] or 0.0)
        slowest = max(timed, key=lambda row: row["seconds_to_target"] or 0.0)
        if fastest["speed_up"] is not None and fastest["speed_up"] > 1.005:
            told += (
                f"{fastest['name']} reached it in {duration(fastest['seconds_to_target'])} "
                f"({CLOCK_WORDS[rows[0]['clock']]}): {ratio(fastest['speed_up'])} as fast as "
                f"{slowest['name']}."
            )
    return element("p", told, css="verdict")


def _time_bars(rows: Sequence[ComparisonRow]) -> Markup:
    """How long each run took to the target; nothing, where times do not compare."""
    timed = [row for row in rows if row["seconds_to_target"] is not None]
    if len(timed) < 2 or rows[0]["clock"] is None:
        return NOTHING
    lines = [
        Bar(
            row["name"], row["seconds_to_target"], duration(row["seconds_to_target"]) if row in timed else "not reached"
        )
        for row in rows
    ]
    heads = ["run", "seconds to target", "exchanges to target", "bytes to target", "speed-up", "final metric"]
    told = [
        (
            row["name"],
            row["seconds_to_target"],
            row["exchanges_to_target"],
            row["bytes_to_target"],
            row["speed_up"],
            row["final_metric"],
        )
        for row in rows
    ]
    taken = data_link("comparison", heads, told)
    words = f"{CLOCK_WORDS[rows[0]['clock']].capitalize()} to the target; shorter is better. "
    return join([bars(lines), element("p", words, taken, css="small")])


def _sent(runs: Sequence[Run], names: Sequence[str]) -> Markup:
    """Bytes by kind of message, and staleness, of every run."""
    kinds = dict.fromkeys(kind for run in runs for kind in run.section("bytes_by_message"))
    lines = [[kind, *(byte_size(number(run.section("bytes_by_message").get(kind))) for run in runs)] for kind in kinds]
    for key, words in (("mean", "staleness, mean"), ("p95", "95th percentile"), ("max", "oldest")):
        told = [number(run.section("staleness").get(key)) for run in runs]
        if any(one is not None for one in told):
            lines.append([words, *(DASH if one is None else f"{significant(one)} exchanges" for one in told)])
    return table(["message", *names], lines)


def _versions(runs: Sequence[Run], names: Sequence[str]) -> Markup:
    told = [flat_settings(run.section("versions")) for run in runs]
    keys = dict.fromkeys(key for one in told for key in one)
    return table(
        ["version of", *names], [[key, *(shown_value(one.get(key)) for one in told)] for key in keys], numeric_from=9
    )


def _comparison_table(rows: Sequence[ComparisonRow]) -> Markup:
    clock = rows[0]["clock"]
    metric = rows[0]["metric"]

    def cells(row: ComparisonRow) -> list[str]:
        unreached = row["exchanges_to_target"] is None and row["target"] is not None
        return [
            row["name"],
            row["algorithm"],
            measure(metric, row["final_metric"]),
            "not reached" if unreached and clock else duration(row["seconds_to_target"]),
            "not reached" if unreached else count(row["exchanges_to_target"]),
            byte_size(row["bytes_to_target"]),
            ratio(row["speed_up"]),
        ]

    heads = [
        "run",
        "algorithm",
        f"final {metric}".replace("_", " ") if metric else "final metric",
        f"time to target ({clock})" if clock else "time to target*",
        "exchanges to target",
        "bytes to target",
        "speed-up" if clock else "speed-up*",
    ]
    return table(heads, [cells(row) for row in rows], numeric_from=2)


def _clock_footnote(runs: Sequence[Run]) -> Markup:
    if shared_clock(runs) is not None:
        return element(
            "p",
            "The first evaluation that met the target counts; speed-up is over the slowest run.",
            css="small",
        )
    return element(
        "p",
        "* Some of these runs were simulated (virtual seconds) and some were not (wall seconds). The two are "
        "never compared, so no time is given.",
        css="small",
    )


def _comparison_notices(runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> list[Markup]:
    told = []
    if len({run.data_name for run in runs if run.data_name}) > 1:
        told.append("These runs were trained on different data: their metrics and times do not compare.")
    told += [
        f"{row['name']} did not finish (status: {run.status})."
        for run, row in zip(runs, rows, strict=True)
        if run.status in ("stopped", "interrupted")
    ]
    told += [
        f"{row['name']} is no better than one prediction for all rows, whose {str(row['metric']).replace('_', ' ')} is "
        f"{measure(row['metric'], row['baseline'])}; the target is not taken from it."
        for run, row in zip(runs, rows, strict=True)
        if run.beats_baseline is False
    ]
    return [element("p", one, css="notice") for one in told]


def _differences(runs: Sequence[Run], names: Sequence[str]) -> Markup:
    told = []
    for run in runs:
        top = {key: run.summary.get(key) for key in ("algorithm", "runtime", "seed")}
        told.append({**top, "data": run.data_name, **flat_settings(run.section("settings"))})
    keys = dict.fromkeys(key for one in told for key in one)
    rows = [[key, *values] for key in keys if len(set(values := [shown_value(one.get(key)) for one in told])) > 1]
    alike = {key: value for key, value in told[0].items() if key not in {row[0] for row in rows}}
    same = folded("What is the same", pairs_table(alike)) if alike else NOTHING
    if not rows:
        return join([element("p", "The recorded settings of these runs are the same."), same])
    return join([table(["setting", *names], rows, numeric_from=len(names) + 1), same])


def _privacy_of_each(runs: Sequence[Run], names: Sequence[str]) -> Markup:
    rows = []
    for run, name in zip(runs, names, strict=True):
        events = run.section("privacy").get("events")
        noised = isinstance(events, list) and len(events) > 0
        if noised:
            told = f"{in_one_line(run.section('privacy'))}. More is told in the run's own report."
        elif run.has_summary:
            told = NOT_PRIVATE
        else:
            told = "Not recorded. Treat it as not private: ε = ∞."
        rows.append([name, told])
    return table(["run", "what was released"], rows, numeric_from=2)
