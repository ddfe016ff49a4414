"""One run as a page sees it: what its directory says, kept up to date, and no more than its viewer may see.

Whoever has the directory of a whole run may see all of it. A feature party of a network run has its own directory, in
which there is nothing of the others; and `party` shows a whole run as one of its parties sees it.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.errors import RunError, SettingsError, unknown_name
from colonnade.files import check_depth, json_of, read_whole, toml_of
from colonnade.runtimes.live_files import RUN_LOG, Sample, kept
from colonnade.runtimes.steering import LIVE
from colonnade.watching.budgets import budget_facts
from colonnade.watching.tails import Tail, objects

SILENT_SECONDS = 6.0
"""A run that goes on has written something since."""
MOST_METRICS = 20_000
MOST_LOG_LINES = 400
_LOG_BYTES = 1 << 16
_OF_NETWORK = "everybody.json"
"""Which only a party of a network run has; it is written once the party has met the others."""
_SUMMED = ("status", "test", "exchanges", "epochs", "wall_seconds", "virtual_seconds", "train_loss", "headline")
_OF_ALL = ("bytes_up", "bytes_down", "bytes_by_message", "staleness", "parties", "privacy")


class WatchedRun:
    """A run's directory, read as it grows. `news` gives what has come, `snapshot` everything so far."""

    def __init__(self, directory: Path, party: str | None = None) -> None:
        self.directory = directory
        self.party = party
        self._live: dict[str, Tail] = {}
        self._samples: dict[str, list[Sample]] = {}
        self._metrics_tail = Tail(directory / "metrics.jsonl")
        self._metrics: list[dict[str, Any]] = []
        self._logs: dict[str, Tail] = {}
        self._log: list[dict[str, Any]] = []
        self._facts: dict[str, Any] = {}
        self._stamps: tuple[Any, ...] = ()

    def check_party(self) -> None:
        """Refuse the view of a party that the run does not have, as far as that is known."""
        self.news()
        known = self._facts.get("parties") or []
        if self.party is not None and known and self.party not in known:
            raise unknown_name("party of this run called", self.party, known)

    @property
    def may_ask(self) -> bool:
        """Whether this viewer may pause and stop it: one party of a run in one place may not, for all of them."""
        return self.party is None

    # --- what has come ---

    def snapshot(self) -> dict[str, Any]:
        return {
            "reset": True,
            "facts": self._facts,
            "status": self.status(),
            "samples": self._samples,
            "metrics": self._metrics,
            "log": self._log,
        }

    def news(self) -> dict[str, Any]:
        """What has come since this was last asked; `reset`: in place of everything before."""
        reset, samples = self._new_samples()
        anew, lines = self._metrics_tail.look()
        metrics = objects(lines) if self._sees_metrics() else []
        if anew:
            self._metrics, reset = [], True
        self._metrics = (self._metrics + metrics)[-MOST_METRICS:]
        log = self._new_log()
        self._log = (self._log + log)[-MOST_LOG_LINES:]
        changed = self._look_at_facts()
        if reset:
            return self.snapshot()
        news: dict[str, Any] = {"status": self.status(), "samples": samples, "metrics": metrics, "log": log}
        return {**news, "facts": self._facts} if changed else news

    def status(self) -> str:
        """What the run is doing; see the table in docs/how-to/watch.md."""
        newest = max((lines[-1]["time"] for lines in self._samples.values() if lines), default=0.0)
        summary = self._facts.get("summary", {})
        if summary and self._facts["summary_time"] >= newest - 1:
            return str(summary.get("status", "finished"))
        ended = next((line for line in reversed(self._log) if line.get("event") in ("failed", "began")), None)
        if ended is not None and ended["event"] == "failed" and ended["time"] >= newest - 1:
            return "failed"
        if not newest:
            return "silent" if self._metrics else "not begun"
        if time.time() - newest > SILENT_SECONDS:
            return "silent"
        last = [lines[-1] for lines in self._samples.values() if lines]
        if any(line.get("paused") for line in last):
            return "paused"
        parties = [lane for line in last for lane in line["parties"].values()]
        return "waiting" if parties and all(lane.get("status") == "waiting" for lane in parties) else "running"

    # --- files ---

    def _new_samples(self) -> tuple[bool, dict[str, list[Sample]]]:
        folder = self.directory / LIVE
        for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
            if path.name != RUN_LOG:
                self._live.setdefault(path.stem, Tail(path))
        reset, found = False, {}
        for source, tail in self._live.items():
            anew, lines = tail.look()
            new = [seen for one in objects(lines) if (seen := self._seen(one)) is not None]
            held = self._samples.setdefault(source, [])
            if anew:
                # A file that was thinned out ends as it did before, and one of a run that went back does not.
                went_back = not new or not held or new[-1]["time"] < held[-1]["time"]
                reset = reset or went_back or new[0]["time"] < held[0]["time"]
                new = new if reset else [one for one in new if one["time"] > held[-1]["time"]]
                if reset:
                    held.clear()
            held.extend(new)
            if new:
                found[source] = new
            self._samples[source] = [held[place] for place in kept([one["now"] for one in held])]
        return reset, found

    def _seen(self, sample: Sample) -> Sample | None:
        """A line as this viewer sees it; None if there is nothing for it, or it is no such line."""
        parties, moments = sample.get("parties"), (sample.get("time"), sample.get("now"))
        if not isinstance(parties, dict) or not all(isinstance(one, int | float) for one in moments):
            return None
        if not all(isinstance(lane, dict) for lane in parties.values()):
            return None
        if self.party is None:
            return sample
        return {**sample, "parties": {self.party: parties[self.party]}} if self.party in parties else None

    def _sees_metrics(self) -> bool:
        """Losses and metrics are the label party's."""
        return self.party is None or self.party == self._facts.get("label_party", "label")

    def _new_log(self) -> list[dict[str, Any]]:
        """Lines of the run's log and of the processes' own, in order of their moments where they have any."""
        self._logs.setdefault("", Tail(self.directory / LIVE / RUN_LOG, _LOG_BYTES))
        folder = self.directory / "logs"
        for path in sorted(folder.glob("*.log")) if folder.is_dir() else ():
            if self.party in (None, path.stem):
                self._logs.setdefault(path.stem, Tail(path, _LOG_BYTES))
        found: list[dict[str, Any]] = []
        for party, tail in self._logs.items():
            _, lines = tail.look()
            if party:
                said = [line.decode(errors="replace") for line in lines if line.strip()]
                found += [{"time": time.time(), "level": "info", "message": one, "party": party} for one in said]
            else:
                found += [one for one in objects(lines) if self.party in (None, one.get("party", self.party))]
        found = [one for one in found if isinstance(one.get("time"), int | float)]
        return sorted(found, key=lambda one: float(one["time"]))

    def _look_at_facts(self) -> bool:
        """Read what changes seldom, if it has; True then."""
        stamps = tuple(_stamp(self.directory / name) for name in ("federation.toml", "summary.json", _OF_NETWORK))
        if self._facts and stamps == self._stamps:
            return False
        self._stamps = stamps
        settings = _table(self.directory / "federation.toml")
        summary = _table(self.directory / "summary.json")
        self._facts = self._facts_of(settings, summary)
        self._facts["summary_time"] = (stamps[1] or 0) / 1e9
        return True

    def _facts_of(self, settings: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
        algorithm, federation = _part(settings, "algorithm"), _part(settings, "federation")
        training, data = _part(settings, "training"), _part(settings, "data")
        label_party = str(federation.get("label_party") or "label")
        names = [*_part(summary, "parties")] or [*_part(settings, "parties")]
        if not names and isinstance(data.get("parties"), int):
            names = [label_party, *(f"party{1 + place}" for place in range(min(data["parties"], 10_000)))]
        shown = {name: summary[name] for name in (*_SUMMED, *_OF_ALL) if name in summary}
        if self.party is not None:
            names = [self.party] if self.party in names or not names else names
            shown = _own_part(shown, self.party, self.party == label_party)
        return {
            "name": self.directory.resolve().name,
            "algorithm": algorithm.get("name") or summary.get("algorithm"),
            "data": data.get("set") or data.get("name") or "own tables",
            "epochs": training.get("epochs"),
            "seed": federation.get("seed"),
            "label_party": label_party,
            "parties": names,
            "own_view": self.party,
            "runtime": summary.get("runtime") or self._runtime(),
            "may_ask": self.may_ask,
            "summary": shown,
            "budget": budget_facts(_part(settings, "privacy")),
        }

    def _runtime(self) -> str | None:
        if (self.directory / _OF_NETWORK).exists():
            return "network"
        runtime = _table(self.directory / "checkpoints" / "data.json").get("runtime")
        return str(runtime) if runtime else None


def _own_part(summary: dict[str, Any], party: str, is_label_party: bool) -> dict[str, Any]:
    """What a summary of all says of one party, which does not see the losses unless it is the label party."""
    own: dict[str, Any] = {"status": summary.get("status"), "parties": {}}
    if isinstance(summary.get("parties"), dict) and party in summary["parties"]:
        own["parties"] = {party: summary["parties"][party]}
    if is_label_party:
        own |= {name: summary[name] for name in (*_SUMMED, "staleness") if name in summary}
    return own


def check_runs(paths: list[Path]) -> None:
    """Refuse what is no run's directory; one that is not there yet may come."""
    for path in paths:
        if path.exists() and not path.is_dir():
            raise SettingsError(f"{path} is a file, not a run directory. Name the directory that a run writes.")
        if not path.exists():
            raise SettingsError(f"There is no run directory {str(path)!r}. Check the path; `colonnade run` makes one.")
        if not any((path / name).exists() for name in ("federation.toml", "metrics.jsonl", LIVE)):
            raise SettingsError(f"{path} is not a run directory: it has neither federation.toml nor metrics.jsonl.")


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _table(path: Path) -> dict[str, Any]:
    """The content of a TOML or JSON file; nothing, if it is not there or damaged."""
    try:
        content = read_whole(path, 64 << 20)
        value = toml_of(content) if path.suffix == ".toml" else json_of(content)
        check_depth(value)
    except (OSError, ValueError, RunError):
        return {}
    return value if isinstance(value, dict) else {}


def _part(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {}
