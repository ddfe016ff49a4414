"""One self-contained HTML page for a run.

The page shows what the run directory holds and nothing else: totals, curves and names, never a row of anyone's data.
What a run did not record is left out; privacy alone is always spoken of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from colonnade.errors import SettingsError
from colonnade.reports import error_figures, figures
from colonnade.reports.against import in_one_place, in_words, interval, partners, rows_scored
from colonnade.reports.amounts import (
    DASH,
    byte_size,
    count,
    duration,
    flat_settings,
    measure,
    number,
    share,
    significant,
)
from colonnade.reports.behind import data_behind
from colonnade.reports.epsilons import figure_rows, heads
from colonnade.reports.explorer import code_for, explorer
from colonnade.reports.lanes import code_for_lanes, lanes
from colonnade.reports.markup import Markup, card, cards, document, element, join, section, table, tabs
from colonnade.reports.observed import audit_of, observe
from colonnade.reports.page_parts import (
    CLOCK_WORDS,
    NOT_PRIVATE,
    NOTHING,
    PAPER_FORMULA,
    Plot,
    drawn,
    footer,
    pairs_table,
    settings_and_versions,
    shown_value,
    write_figures,
    write_whole,
)
from colonnade.reports.rundir import SMALLER_IS_BETTER, Run, read_run

Candidate = tuple[str, str, str, Figure | None, bool]
"""Of a plot: its key, its title, how to read it, what is drawn if anything is, and whether it is wide."""


def write_report(run_dir: Path, audit: Path | None = None, pictures: Path | None = None) -> Path:
    """Writes `report.html` and `figures/*.png` into the run directory; returns the path of the page.

    `pictures`: a folder for the figures as PNG and SVG files, for a paper.

    `audit`: what an audit wrote, to be shown with the run's figures of privacy; else the run's own audit.json, if any.
    An audit that was asked for and says nothing of this run is refused.
    """
    run = read_run(run_dir)
    audits = audit_of(run, audit)
    if audit is not None:
        seen = observe(run, _figures(run.section("privacy")), audits)
        if not seen.any:
            raise SettingsError(seen.words)
    plots = _run_plots(run)
    for one in plots:
        write_whole(run.path / "figures" / f"{one.key}.png", one.png)
    if pictures is not None:
        write_figures(pictures, plots)
    return write_whole(run.path / "report.html", _run_page(run, plots, audits).encode("utf-8"))


def _run_page(run: Run, plots: Sequence[Plot], audits: Sequence[Mapping[str, Any]]) -> str:
    by_key = {one.key: one.markup() for one in plots}

    def shown(*keys: str, beside: Markup = NOTHING) -> Markup:
        """The figures of these names that could be drawn, two in a row, and a table in the next place."""
        found = [by_key[key] for key in keys if key in by_key]
        if beside:
            found.append(element("div", beside))
        return element("div", *found, css="plots") if found else NOTHING

    learning = tabs(
        "axis", [(one.title.removesuffix("."), by_key[one.key]) for one in plots if one.key.startswith("curves_")]
    )
    lanes_shown = lanes(run)
    title = f"{run.algorithm} on {run.data_name}" if run.data_name else run.algorithm
    subtitle = [f"run {run.name}", f"runtime {run.runtime}"]
    if run.summary.get("seed") is not None:
        subtitle.append(f"seed {shown_value(run.summary['seed'])}")
    rows, test_rows = number(run.section("data").get("rows")), number(run.section("data").get("test_rows"))
    if rows is not None:
        subtitle.append(f"{count(rows)} training rows")
    if test_rows is not None:
        subtitle.append(f"{count(test_rows)} test rows")
    validation_rows = number(run.section("data").get("validation_rows"))
    if validation_rows:
        subtitle.append(f"{count(validation_rows)} validation rows")
    parts = [
        element("h1", title, " ", element("span", run.status, css="badge")),
        element("p", " · ".join(subtitle), css="subtitle"),
        *_verdict(run),
        *_notices(run),
        cards(_key_figures(run)),
        section(
            "Learning",
            explorer([run]),
            element("div", element("div", learning, css="curves"), element("div", _test_metrics(run)), css="plots"),
        ),
        section("What each party adds", *partners(run)),
        section("How it errs", shown("confusion", "roc", "calibration")),
        section(
            "Who worked when",
            lanes_shown,
            element("div", by_key["timeline"], css="pictured") if lanes_shown and "timeline" in by_key else NOTHING,
            NOTHING if lanes_shown else shown("timeline"),
            shown("utilisation", "staleness"),
            _staleness(run),
        ),
        section("Parties", _parties(run)),
        section("What was sent", shown("bytes", beside=_bytes(run)), _counts(run)),
        section("Privacy", *_privacy(run, audits)),
        section("What each party learnt", *_learnt(run)),
        settings_and_versions(flat_settings(run.section("settings")), flat_settings(run.section("versions"))),
        footer(run.clock == "virtual"),
    ]
    return document(f"{title} – Colonnade report", *parts, code_for(parts), code_for_lanes(parts))


def _curve_candidates(run: Run) -> list[Candidate]:
    metric = (run.headline or "").replace("_", " ")
    direction = "lower" if run.headline in SMALLER_IS_BETTER else "higher"
    read_metric = f", below the {run.scored_on} {metric} ({direction} is better)" if run.headline else ""
    seconds = CLOCK_WORDS[run.clock]
    return [
        (
            "curves_exchanges",
            "Against exchanges.",
            f"Above the training loss{read_metric}; how much was learnt from each exchange between parties.",
            figures.learning_curves(run, "exchanges"),
            False,
        ),
        (
            "curves_seconds",
            f"Against {seconds}.",
            "The same curves against time: what waiting costs shows here and not against exchanges.",
            figures.learning_curves(run, "seconds"),
            False,
        ),
        (
            "curves_megabytes",
            "Against megabytes.",
            "The same curves against everything sent, both ways: what the network has to carry for a result.",
            figures.learning_curves(run, "megabytes"),
            False,
        ),
    ]


def _run_plots(run: Run) -> list[Plot]:
    seconds = CLOCK_WORDS[run.clock]
    candidates: list[Candidate] = [
        *_curve_candidates(run),
        *_error_candidates(run),
        (
            "timeline",
            "The first moments, party by party.",
            f"Each coloured bar is one piece of work, grey is waiting, hatched red is away, in {seconds}: "
            "parties that work on beside a slow or absent one are asynchrony made visible.",
            figures.timeline(run),
            True,
        ),
        (
            "utilisation",
            "The whole run.",
            "How each party's time was divided; the number is the share spent at work, and a long grey bar "
            "is a party that mostly waits.",
            figures.utilisation(run),
            False,
        ),
        (
            "staleness",
            "Staleness.",
            "How old values were when they were used: 0 is fresh, and the further right a bar stands, the "
            "older the values it counts.",
            figures.staleness_histogram(run),
            False,
        ),
        (
            "bytes",
            "Bytes by message.",
            "The longest bar is the kind of message to make smaller first.",
            figures.bytes_by_message(run),
            False,
        ),
    ]
    return [replace(one, data=data_behind(run, one.key)) for one in drawn(candidates)]


def _error_candidates(run: Run) -> list[Candidate]:
    return [
        (
            "confusion",
            "Which classes it confuses.",
            "Test rows by their class (rows) and by the class that was predicted (columns), counted from 0 in the "
            "model's own order; the darker, the larger the share of that class.",
            error_figures.confusion(run),
            False,
        ),
        (
            "roc",
            "ROC curve.",
            "The further up and left, the better rows of the second class are told from the others; the dashed line is "
            "a guess.",
            error_figures.roc(run),
            False,
        ),
        (
            "calibration",
            "Calibration.",
            "On the dashed line, what is said with a probability of 70 % comes true in 70 of 100 cases; larger points "
            "stand for more test rows.",
            error_figures.calibration(run),
            False,
        ),
    ]


def _verdict(run: Run) -> list[Markup]:
    """The answer first: how good it is, beside what one prediction for all rows would be, and on which rows."""
    if run.headline is None or run.final_metric is None:
        return []
    name = run.headline.replace("_", " ")
    sure = in_words(run.headline, interval(run.headline, run.final_metric, rows_scored(run, "test")))
    told = f"{name} {measure(run.headline, run.final_metric)}{sure} on the test rows"
    if run.baseline is not None:
        how = {True: "better than", False: "no better than", None: "beside"}[run.beats_baseline]
        told += f": {how} one prediction for all rows, which has {measure(run.headline, run.baseline)}"
    said = [f"{told[0].upper()}{told[1:]}."]
    if beside := in_one_place(run):
        said.append(beside)
    matched = [
        f"{party} {count(number(rows.get('matched')))} of {count(number(rows.get('held')))}"
        for party, rows in _mapping(run.section("data").get("rows_by_party")).items()
        if isinstance(rows, Mapping) and number(rows.get("held")) is not None
    ]
    if matched:
        said.append(f"Rows matched: {', '.join(matched)}.")
    return [element("p", " ".join(said), css="verdict")]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _notices(run: Run) -> list[Markup]:
    told = []
    if not run.has_summary:
        told.append(
            "This run was interrupted before it wrote its summary. The page shows what metrics.jsonl holds; "
            "totals are those of its last line."
        )
    elif run.status == "stopped":
        told.append("This run was stopped before its end. Everything here describes the part that was run.")
    diverged = next((line for line in run.curve if line.diverged), None)
    if diverged is not None:
        told.append(
            f"The training loss was not a finite number at exchange {count(diverged.exchange)}: the training "
            "diverged. Try a smaller learning rate."
        )
    cuts = run.summary.get("step_cuts")
    if isinstance(cuts, list) and cuts:
        times = f"{len(cuts)} times, at epochs" if len(cuts) > 1 else "once, at epoch"
        told.append(
            f"The training did not descend, and went on from a good model: the step was cut {times} "
            f"{', '.join(significant(number(one)) for one in cuts)}. A smaller training.learning_rate would save that."
        )
    kept = run.section("kept")
    if kept.get("model") == "best":
        epoch = significant(number(kept.get("best_epoch")))
        told.append(f"The model is that of epoch {epoch}, which did best on the validation rows, and not the last one.")
    if not run.curve:
        told.append("metrics.jsonl holds no complete line, so there are no curves to draw.")
    return [element("p", one, css="notice") for one in told]


def _key_figures(run: Run) -> list[Markup]:
    exchanges, epochs, seconds = run.total("exchanges"), run.total("epochs"), run.seconds
    wall = run.total("wall_seconds")
    loss = run.total("train_loss")
    made = []
    if run.headline is not None:
        made.append(
            card(
                f"Test {run.headline}".replace("_", " "),
                measure(run.headline, run.final_metric),
                f"training loss of the last epoch {significant(loss)}" if loss is not None else "",
            )
        )
    elif loss is not None:
        made.append(card("Training loss", significant(loss), "mean of the last epoch"))
    made.append(card("Exchanges", count(exchanges), f"{significant(epochs)} epochs" if epochs is not None else ""))
    if run.clock == "virtual":
        note = f"computed in {duration(wall)} of wall time" if wall is not None else ""
        made.append(card("Virtual time", duration(seconds), note))
    else:
        made.append(card("Wall time", duration(seconds)))
    up, down = run.total("bytes_up"), run.total("bytes_down")
    made.append(card("Sent up", byte_size(up), _per_exchange(up, exchanges) or "to the label party"))
    made.append(card("Sent down", byte_size(down), _per_exchange(down, exchanges) or "to the feature parties"))
    speed = exchanges / seconds if exchanges is not None and seconds else None
    wall_speed = exchanges / wall if exchanges is not None and wall else None
    if run.clock == "virtual":
        note = "exchanges per virtual second"
        if wall_speed is not None:
            note += f"; {significant(wall_speed, 3)} per wall second"
    else:
        note = "exchanges per wall second"
    made.append(card("Speed", f"{significant(speed, 3)}/s" if speed is not None else DASH, note))
    return made


def _per_exchange(size_bytes: float | None, exchanges: float | None) -> str:
    return f"{byte_size(size_bytes / exchanges)} per exchange" if size_bytes is not None and exchanges else ""


def _test_metrics(run: Run) -> Markup:
    baseline = run.section("baseline")
    rows = [
        [
            f"{part} {name}".replace("_", " "),
            measure(name, number(value)),
            *([measure(name, number(baseline.get(name))) if part == "test" else DASH] if baseline else []),
        ]
        for part in ("test", "validation")
        for name, value in run.section(part).items()
    ]
    if not rows:
        return NOTHING
    beside = ["one prediction for all rows"] if baseline else []
    loss = ["training loss, mean of the last epoch", significant(run.total("train_loss")), *(DASH for _ in beside)]
    return table(["at the end", "this model", *beside], [*rows, loss])


def _parties(run: Run) -> Markup:
    seconds = CLOCK_WORDS[run.clock]
    rows = []
    for party in run.parties:
        whole = sum(one or 0.0 for one in (party.busy_seconds, party.idle_seconds, party.away_seconds))
        busy = party.busy_seconds / whole if party.busy_seconds is not None and whole > 0 else None
        rows.append(
            [
                party.name,
                party.role,
                count(party.columns),
                count(party.exchanges),
                count(party.steps),
                duration(party.busy_seconds),
                duration(party.idle_seconds),
                duration(party.away_seconds),
                share(busy),
            ]
        )
    heads = ["party", "role", "columns", "exchanges", "steps", "at work", "waiting", "away", "busy"]
    shown = table(heads, rows, numeric_from=2)
    return join([shown, element("p", f"Times in {seconds}.", css="small")]) if shown else NOTHING


def _bytes(run: Run) -> Markup:
    sizes = {kind: number(size) or 0.0 for kind, size in run.section("bytes_by_message").items()}
    total = sum(sizes.values())
    rows = [
        [kind, byte_size(size), share(size / total if total else None)]
        for kind, size in sorted(sizes.items(), key=lambda item: -item[1])
    ]
    evaluation = run.total("evaluation_bytes")
    note = element("p", f"Evaluations on the test rows took {byte_size(evaluation)}.", css="small")
    return join([table(["message", "bytes", "share"], rows), note if evaluation is not None else NOTHING])


def _counts(run: Run) -> Markup:
    return pairs_table({name.replace("_", " "): value for name, value in flat_settings(run.section("counts")).items()})


def _staleness(run: Run) -> Markup:
    told = run.section("staleness")
    known = [
        f"{words} {significant(value)}"
        for key, words in (("mean", "mean"), ("p95", "95th percentile"), ("max", "oldest"))
        if (value := number(told.get(key))) is not None
    ]
    if not known:
        return NOTHING
    return element("p", "Staleness in exchanges: ", ", ".join(known), ".", css="small")


def _privacy(run: Run, audits: Sequence[Mapping[str, Any]]) -> list[Markup]:
    told = run.section("privacy")
    events = told.get("events")
    kept = [event for event in events if isinstance(event, Mapping)] if isinstance(events, list) else []
    if not kept:
        if not run.has_summary:
            return [
                element(
                    "p",
                    "The run wrote no summary, so it is not known whether any value was noised. "
                    "Treat it as not private: ε = ∞.",
                )
            ]
        return [element("p", NOT_PRIVATE), *(_epsilons(run, audits) if told.get("figures") else [])]
    keys = [
        "party",
        "mechanism",
        "sensitivity",
        "noise",
        "releases",
        "rows",
        "max_releases_per_row",
        "viewers",
        "protects",
    ]
    rows = [[shown_value(event.get(key)) for key in keys] for event in kept]
    return [
        *_epsilons(run, audits),
        element("p", "Values were noised before they were released, in exactly these events."),
        table([key.replace("_", " ") for key in keys], rows, numeric_from=len(keys)),
    ]


def _figures(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = told.get("figures")
    return [figure for figure in listed if isinstance(figure, Mapping)] if isinstance(listed, list) else []


def _epsilons(run: Run, audits: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """What every direction costs, against whom, and under which conditions: a table, and the words below it."""
    told = run.section("privacy")
    found: Sequence[Mapping[str, Any]] = _figures(told)
    if not found:
        words = [shown_value(told["conditions"])] if told.get("conditions") else []
        said = ["What that costs was not computed for this run, so no ε may be promised from this page.", *words]
        return [element("p", " ".join(said))]
    seen = observe(run, found, audits) if audits else None
    found = found if seen is None else seen.figures
    rows, conditions = figure_rows(found)
    delta = number(told.get("delta"))
    parts = [element("p", f"The cost of one row's data, at δ = {delta:g}." if delta else "The cost of one row's data.")]
    if told.get("formula") == "paper":
        parts.append(element("p", PAPER_FORMULA, css="notice"))
    parts.append(table(heads(found), rows, numeric_from=len(heads(found))))
    parts += [] if seen is None else [element("p", seen.words)]
    return [*parts, element("ol", *(element("li", words) for words in conditions), css="small")]


def _learnt(run: Run) -> list[Markup]:
    """What left each party and what reached it, a sentence for each kind of values."""
    listed = run.summary.get("learnt")
    sentences = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    parts: list[Markup] = []
    for party in dict.fromkeys(str(one.get(key)) for one in sentences for key in ("sender", "viewer")):
        for key, words in (("sender", "What left"), ("viewer", "What reached")):
            own = [element("li", one.get("sentence", "")) for one in sentences if one.get(key) == party]
            if own:
                parts += [element("h3", f"{words} {party}"), element("ul", *own)]
    return parts
