"""Reads a run directory: `metrics.jsonl`, `summary.json`, `timeline.jsonl`.

A finished run has all three. An interrupted one may lack the summary (its totals are then those of the last
metric line) and may end a file in a torn line (which is ignored). Keys that are missing or unknown never stop
the reading; a file that cannot be understood does, and the error names the file and the line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from colonnade.errors import RunError, SettingsError
from colonnade.files import check_depth, json_of, read_whole, toml_of
from colonnade.reports.amounts import number

Clock = Literal["virtual", "wall"]

SMALLER_IS_BETTER = frozenset({"rmse", "mse", "mae", "log_loss", "loss", "error"})
# For runs that name no headline metric, in the order of preference.
USUAL_HEADLINES = ("accuracy", "auc", "rmse", "log_loss")


@dataclass(frozen=True)
class MetricLine:
    """One line of `metrics.jsonl`. Counters (exchange, seconds, bytes) run from the start of the run.

    `loss` is the mean training loss since the previous line; `metric` is empty where no test rows were scored,
    `validation` where no validation rows were.
    """

    party: str
    exchange: int
    epoch: float | None
    wall_seconds: float | None
    virtual_seconds: float | None
    loss: float | None
    metric: Mapping[str, float]
    bytes_up: float | None
    bytes_down: float | None
    diverged: bool = False  # the loss was no finite number
    validation: Mapping[str, float] = field(default_factory=dict)

    @property
    def bytes_both_ways(self) -> float | None:
        return _sum(self.bytes_up, self.bytes_down)


@dataclass(frozen=True)
class Span:
    """A stretch of a party's time: at work ("busy") or unreachable ("away"). Between spans it waits."""

    party: str
    start_seconds: float
    end_seconds: float
    what: str


@dataclass(frozen=True)
class PartyTotals:
    """One party's totals over the run; None where the run did not record them."""

    name: str
    role: str
    exchanges: float | None
    steps: float | None
    busy_seconds: float | None
    idle_seconds: float | None
    away_seconds: float | None
    columns: float | None


@dataclass(frozen=True)
class Run:
    """What one run directory says. `summary` is as written, completed from the last metric line."""

    path: Path
    name: str
    summary: Mapping[str, Any]
    lines: tuple[MetricLine, ...]
    timeline: tuple[Span, ...]
    has_summary: bool = True

    def section(self, key: str) -> Mapping[str, Any]:
        """A nested object of the summary; empty where the run did not write one."""
        value = self.summary.get(key)
        return value if isinstance(value, Mapping) else {}

    def total(self, key: str) -> float | None:
        """A number of the summary, such as `exchanges` or `bytes_up`."""
        return number(self.summary.get(key))

    def word(self, key: str, otherwise: str) -> str:
        value = self.summary.get(key)
        return value if isinstance(value, str) and value else otherwise

    @property
    def algorithm(self) -> str:
        return self.word("algorithm", "unnamed algorithm")

    @property
    def runtime(self) -> str:
        return self.word("runtime", "unnamed runtime")

    @property
    def status(self) -> str:
        return self.word("status", "unknown")

    @property
    def data_name(self) -> str | None:
        name = self.section("data").get("name")
        return name if isinstance(name, str) and name else None

    @property
    def clock(self) -> Clock:
        """Which seconds this run is told in. A run has virtual seconds only if it was simulated."""
        simulated = self.total("virtual_seconds") is not None or any(
            line.virtual_seconds is not None for line in self.lines
        )
        return "virtual" if simulated else "wall"

    @property
    def seconds(self) -> float | None:
        return self.total(f"{self.clock}_seconds")

    def seconds_of(self, line: MetricLine) -> float | None:
        return line.virtual_seconds if self.clock == "virtual" else line.wall_seconds

    @property
    def bytes_both_ways(self) -> float | None:
        return _sum(self.total("bytes_up"), self.total("bytes_down"))

    @cached_property
    def parties(self) -> tuple[PartyTotals, ...]:
        """All parties that any of the files mention, the label party first."""
        told = self.section("parties")
        columns = self.section("data").get("parties")
        names = dict.fromkeys([*told, *(line.party for line in self.lines), *(s.party for s in self.timeline)])
        found = [_party_totals(name, told.get(name), columns) for name in names]
        return tuple(sorted(found, key=lambda party: party.role != "label"))

    @cached_property
    def curve(self) -> tuple[MetricLine, ...]:
        """The lines of the one party that tells the run: a label party, the one that evaluates most.

        A resumed run repeats the exchanges after its checkpoint; of a repeated stretch only the later telling
        stays.
        """
        label_parties = {party.name for party in self.parties if party.role == "label"}
        lines_of: dict[str, list[MetricLine]] = {}
        for line in self.lines:
            lines_of.setdefault(line.party, []).append(line)
        if not lines_of:
            return ()
        _, told = max(
            lines_of.items(),
            key=lambda item: (
                item[0] in label_parties,
                sum(bool(line.metric or line.validation) for line in item[1]),
                len(item[1]),
            ),
        )
        kept: list[MetricLine] = []
        for line in told:
            while kept and kept[-1].exchange > line.exchange:
                kept.pop()
            kept.append(line)
        return tuple(kept)

    @cached_property
    def scored_on(self) -> str:
        """Of which rows the curve tells: "validation", where there are such rows, else "test"."""
        return "validation" if any(line.validation for line in self.lines) else "test"

    def scored(self, line: MetricLine) -> Mapping[str, float]:
        """What a line of the curve says of those rows."""
        return line.validation if self.scored_on == "validation" else line.metric

    @cached_property
    def headline(self) -> str | None:
        """The name of the metric that this run is judged by."""
        named = self.summary.get("headline")
        if isinstance(named, str) and named:
            return named
        known = [name for name, value in self.section("test").items() if number(value) is not None]
        known += [name for line in self.curve for name in self.scored(line)]
        for name in USUAL_HEADLINES:
            if name in known:
                return name
        return known[0] if known else None

    @property
    def baseline(self) -> float | None:
        """The headline metric of one prediction for all rows; None if the run did not record it."""
        return None if self.headline is None else number(self.section("baseline").get(self.headline))

    @property
    def beats_baseline(self) -> bool | None:
        """Whether it ended better than one prediction for all rows; None if that is not known."""
        if self.final_metric is None or self.baseline is None:
            return None
        if self.headline in SMALLER_IS_BETTER:
            return self.final_metric < self.baseline
        return self.final_metric > self.baseline

    @property
    def final_metric(self) -> float | None:
        """The headline metric at the end: the summary's, else that of the last evaluation."""
        if self.headline is None:
            return None
        final = number(self.section("test").get(self.headline))
        if final is not None:
            return final
        evaluated = [line.metric[self.headline] for line in self.curve if self.headline in line.metric]
        return evaluated[-1] if evaluated else None


def read_run(path: Path | str) -> Run:
    """Reads the run directory at `path`; the run is named after the directory."""
    directory = Path(path)
    if not directory.exists():
        raise SettingsError(f"There is no run directory {str(path)!r}. Check the path; `colonnade run` makes one.")
    if not directory.is_dir():
        raise SettingsError(f"{str(path)!r} is a file, not a run directory. Name the directory that contains it.")
    if not (directory / "metrics.jsonl").is_file():
        raise SettingsError(
            f"{str(path)!r} is not a run directory: metrics.jsonl is missing. Name the directory that a run "
            "wrote, the one with metrics.jsonl and summary.json in it."
        )
    lines = tuple(
        _metric_line(found, directory / "metrics.jsonl", line_number)
        for line_number, found in json_lines(directory / "metrics.jsonl")
    )
    timeline: tuple[Span, ...] = ()
    if (directory / "timeline.jsonl").is_file():
        spans = (_span(found) for _, found in json_lines(directory / "timeline.jsonl"))
        timeline = tuple(span for span in spans if span is not None)
    has_summary = (directory / "summary.json").is_file()
    summary = _read_summary(directory / "summary.json") if has_summary else _from_federation(directory)
    told = Run(directory, directory.resolve().name, summary, lines, timeline, has_summary)
    return Run(
        directory,
        told.name,
        {**_totals_so_far(told.curve), **summary},
        lines,
        timeline,
        has_summary=has_summary,
    )


def distinct_names(runs: list[Run]) -> list[str]:
    """A name for each run that no other has: `seed1` twice becomes `vafl/seed1` and `split/seed1`.

    A directory that is given twice is numbered.
    """
    names = [run.name for run in runs]
    with_parent = [f"{run.path.resolve().parent.name}/{run.name}" for run in runs]
    names = [long if names.count(short) > 1 else short for short, long in zip(names, with_parent, strict=True)]
    taken: set[str] = set()
    for place, name in enumerate(names):
        copy = 1
        while names[place] in taken:
            copy += 1
            names[place] = f"{name} ({copy})"
        taken.add(names[place])
    return names


def _sum(up: float | None, down: float | None) -> float | None:
    return None if up is None and down is None else (up or 0.0) + (down or 0.0)


def _read_bytes(path: Path) -> bytes:
    try:
        return read_whole(path)
    except OSError as reason:
        raise RunError(
            f"{path} could not be read ({reason.strerror}). Make sure that you may read it, then try again."
        ) from reason


def json_lines(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """The objects of a `.jsonl` file with their line numbers; a torn last line (a crash) is left out."""
    # Lines are split as bytes: a crash can also tear a character in two.
    numbered = [(at, raw) for at, raw in enumerate(_read_bytes(path).split(b"\n"), start=1) if raw.strip()]
    found: list[tuple[int, Mapping[str, Any]]] = []
    for at, raw in numbered:
        try:
            value = json_of(raw)
            check_depth(value)
        except ValueError:
            value = None
        if isinstance(value, dict):
            found.append((at, value))
        elif at != numbered[-1][0]:
            raise RunError(
                f"Line {at} of {path} is not a JSON object, and it is not the last line, so no crash of the "
                "run explains it. Restore the file from the machine that ran it, or delete that line."
            )
    return found


def _read_summary(path: Path) -> Mapping[str, Any]:
    advice = "Restore it, or delete it: the report is then made from metrics.jsonl alone."
    try:
        value = json_of(_read_bytes(path))
        check_depth(value)
    except json.JSONDecodeError as reason:
        raise RunError(f"{path} is not valid JSON (line {reason.lineno}: {reason.msg}). {advice}") from reason
    except UnicodeDecodeError as reason:
        raise RunError(f"{path} is not UTF-8 text (byte {reason.start}). {advice}") from reason
    except ValueError as reason:
        raise RunError(f"{path} cannot be read: {reason}. {advice}") from None
    if not isinstance(value, dict):
        raise RunError(f"{path} holds a JSON {type(value).__name__} where an object belongs. {advice}")
    return value


def _from_federation(directory: Path) -> Mapping[str, Any]:
    """What is known of a run that never wrote its summary: that it was interrupted, and its algorithm."""
    known: dict[str, Any] = {"status": "interrupted"}
    try:
        told = toml_of(read_whole(directory / "federation.toml"))
    except (OSError, ValueError, RunError):
        return known  # the curves are worth showing even when nobody can say what made them
    algorithm = told.get("algorithm")
    if isinstance(algorithm, dict):
        algorithm = algorithm.get("name")
    return {**known, "algorithm": algorithm}


def _totals_so_far(curve: tuple[MetricLine, ...]) -> Mapping[str, Any]:
    if not curve:
        return {}
    last = curve[-1]
    losses = [line.loss for line in curve if line.loss is not None]
    evaluations = [line.metric for line in curve if line.metric]
    return {
        "exchanges": last.exchange,
        "epochs": last.epoch,
        "wall_seconds": last.wall_seconds,
        "virtual_seconds": last.virtual_seconds,
        "bytes_up": last.bytes_up,
        "bytes_down": last.bytes_down,
        "train_loss": losses[-1] if losses else None,
        "test": dict(evaluations[-1]) if evaluations else {},
    }


def _numbers(found: Any) -> dict[str, float]:
    values = found.items() if isinstance(found, dict) else ()
    return {name: value for name, raw in values if (value := number(raw)) is not None}


def _metric_line(found: Mapping[str, Any], path: Path, line_number: int) -> MetricLine:
    exchange = number(found.get("exchange"))
    if exchange is None:
        raise RunError(
            f"Line {line_number} of {path} has no number under 'exchange', so it cannot be placed. "
            "Restore the file from the machine that ran it, or delete that line."
        )
    loss = found.get("loss")
    return MetricLine(
        party=str(found.get("party", "label")),
        exchange=int(exchange),
        epoch=number(found.get("epoch")),
        wall_seconds=number(found.get("wall_seconds")),
        virtual_seconds=number(found.get("virtual_seconds")),
        loss=number(loss),
        metric=_numbers(found.get("metric")),
        validation=_numbers(found.get("validation")),
        bytes_up=number(found.get("bytes_up")),
        bytes_down=number(found.get("bytes_down")),
        diverged=(isinstance(loss, float) and number(loss) is None)
        or (loss is None and "diverged" in str(found.get("note") or "")),
    )


def _span(found: Mapping[str, Any]) -> Span | None:
    start, end = number(found.get("start")), number(found.get("end"))
    if start is None or end is None or end < start or "party" not in found:
        return None
    return Span(str(found["party"]), start, end, str(found.get("what", "busy")))


def _party_totals(name: str, told: Any, columns: Any) -> PartyTotals:
    totals = told if isinstance(told, dict) else {}
    own_columns = columns.get(name) if isinstance(columns, dict) else None
    role = totals.get("role")
    if not isinstance(role, str) or not role:
        role = "label" if name == "label" else "feature"
    return PartyTotals(
        name=name,
        # "label party" and "label_party" are the same role
        role=role.replace("_", " ").removesuffix("party").strip().lower(),
        exchanges=number(totals.get("exchanges")),
        steps=number(totals.get("steps")),
        busy_seconds=number(totals.get("busy_seconds")),
        idle_seconds=number(totals.get("idle_seconds")),
        away_seconds=number(totals.get("away_seconds")),
        columns=number(own_columns.get("columns")) if isinstance(own_columns, dict) else None,
    )
