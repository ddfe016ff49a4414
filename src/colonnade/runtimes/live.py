"""A run while it goes on, written down for those who look on: a line of `live/NAME.jsonl` a few times a second.

A line holds what a party's operator may see of it (`picture.py`), and how much of their budgets rows have used up.
Whatever taking it costs, it takes a hundredth of the time at most: then it is taken less often.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import RunError
from colonnade.runtimes.live_files import LiveFile, Sample
from colonnade.runtimes.picture import Amount, Picture

LINE_SECONDS = 0.25
_SHARE = 100.0  # between two lines passes at least so many times what one takes
_MOST_SECONDS = 4.0  # but for a federation of very many parties: who looks on takes a longer silence for an absence
_BUDGET_SECONDS = 2.0
_BUDGET_SHARE = 400.0  # the same for budgets, which look at every row
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Live:
    """Writes a line when it is due. `look` is called as often as one likes."""

    def __init__(
        self,
        path: Path,
        take: Callable[[], Sample],
        released: Callable[[], Sequence[Mapping[str, Any]]] = list,
        clock: Callable[[], float] = time.monotonic,
        own_time: Callable[[], float] = time.thread_time,
    ) -> None:
        """`take` gives a line, with `now` and the `parties`; `released` what the ledger has counted row by row.

        `own_time`: what this thread has computed so far, by which the price of a line is told.
        """
        self._file = LiveFile(path)
        self._take = take
        self._released = released
        self._clock = clock
        self._own_time = own_time
        self._took = 0.0  # by the last line
        self._due = -inf
        self._budgets_due = -inf
        self._budgets: dict[str, Any] = {}

    def look(self) -> None:
        if self._clock() >= self._due:
            self.write()

    def write(self) -> None:
        """A line now, such as the last one."""
        clock, began = self._clock(), self._own_time()
        sample = {"time": round(time.time(), 3), **self._take()}
        if clock >= self._budgets_due:
            before = self._own_time()
            self._budgets = spent_by_quantile(self._released())
            took = self._own_time() - before
            self._budgets_due = clock + max(_BUDGET_SECONDS, _BUDGET_SHARE * took)
            began += took
        for party, spent in self._budgets.items():
            if party in sample["parties"]:
                sample["parties"][party]["spent"] = spent
        with suppress(OSError, RunError):
            self._file.append(sample)
        took = self._own_time() - began
        usual, self._took = min(took, self._took), took  # a single one may take long for reasons of its own
        self._due = clock + min(_MOST_SECONDS, max(LINE_SECONDS, _SHARE * usual))


def spent_by_quantile(released: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By party and what is protected: how many rows have cost anything, and μ² of the quantiles of those."""
    costs: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
    for kind in released:
        if kind["sensitivity"] is None:
            continue  # no guarantee follows from it
        key = (kind["party"], kind["protects"])
        counts = kind["per_row"]
        sum_ = costs.get(key, np.zeros(0))
        if len(sum_) < len(counts):
            sum_ = np.concatenate([sum_, np.zeros(len(counts) - len(sum_))])
        sum_[: len(counts)] += counts * (kind["sensitivity"] / kind["noise"]) ** 2
        costs[key] = sum_
    found: dict[str, dict[str, Any]] = {}
    for (party, protects), all_rows in costs.items():
        rows = all_rows[all_rows > 0]
        if rows.size:
            quantiles = [float(f"{one:.6g}") for one in np.quantile(rows, QUANTILES)]
            found.setdefault(party, {})[protects] = {"rows": int(rows.size), "mu2": quantiles}
    return found


def as_lane(picture: Picture) -> Sample:
    """A party's part of a line, from its own picture."""
    lane: Sample = {
        "status": picture.status,
        "exchanges": picture.exchanges,
        "steps": picture.steps,
        "busy": round(picture.busy_seconds, 4),
        "queue": picture.queue_depth,
        "absent": [*picture.absent],
        "sent": by_message(picture.sent),
        "links": {name: [int(link.connected), link.waiting, int(link.is_gone)] for name, link in picture.links.items()},
    }
    if picture.restarts:
        lane["restarts"] = picture.restarts
    if picture.epochs is not None:
        lane["epochs"] = round(picture.epochs, 4)
    if picture.staleness:
        lane["staleness"] = {name: round(value, 3) for name, value in picture.staleness.items()}
    if picture.received:
        lane["received"] = by_message(picture.received)
    if picture.replies:
        lane["replies"] = dict(picture.replies)
    return lane


def by_message(amounts: Mapping[str, Amount]) -> dict[str, list[int]]:
    return {name: [one.frames, one.bytes] for name, one in amounts.items()}
