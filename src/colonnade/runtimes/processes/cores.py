"""A core for the party that all others wait for, where there are fewer cores than parties.

While the label party keeps more than half of a core busy, the feature parties are kept off one core. Else Linux puts
those that it wakes on its own core, behind it, where they wait while another core has nothing to do: a party that ran
a moment ago is not moved. Where the label party has less to do, which it has if the others' work is the longer part,
all cores are everybody's.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

LOOK_SECONDS = 0.5
GIVE, TAKE_BACK = 0.55, 0.5
"""Of a core's time, from where on the label party is given one, and below which it loses it again."""
PAUSE_SECONDS = 30.0
"""After it has lost one, before it may have one again: it had less to do with it than without."""


def seconds_and_core(process: int) -> tuple[float, int] | None:
    """What a process has computed so far, and where it did last (Linux); None: it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[36])


class Cores:
    """Who may use which core. `look` is called as often as one likes."""

    def __init__(
        self,
        parties: int,
        computed: Callable[[int], tuple[float, int] | None] = seconds_and_core,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._all = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        self._is_short = 1 < len(self._all) < parties
        self._computed = computed
        self._clock = clock
        self._seen = (0, 0.0, 0.0)  # the label party's process, when it was looked at, what it had computed
        self._may_give_at = 0.0
        self._given: set[int] = set()  # the label party's core

    def look(self, leader: int, others: Iterable[int]) -> None:
        """`leader`: the label party's process."""
        now = self._clock()
        process, before, had = self._seen
        if not self._is_short or (process == leader and now < before + LOOK_SECONDS):
            return
        found = self._computed(leader)
        if found is None:
            return
        has, core = found
        self._seen = leader, now, has
        if process != leader:
            return
        share = (has - had) / (now - before)
        if not self._given and share > GIVE and now >= self._may_give_at:
            self._given = {core}  # where it is, so that it need not move
        elif self._given and share < TAKE_BACK:
            self._given, self._may_give_at = set(), now + PAUSE_SECONDS
            self._allow(others, self._all)
        if self._given:  # also to those that were started since
            self._allow(others, self._all - self._given)

    def _allow(self, processes: Iterable[int], cores: set[int]) -> None:
        for process in processes:
            with suppress(OSError):  # it has ended, or this machine does not let us
                os.sched_setaffinity(process, cores)
