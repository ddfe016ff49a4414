"""Who may use which core: the label party has one to itself while it is busy, and no longer."""

import os

import pytest

from colonnade.runtimes.processes.cores import LOOK_SECONDS, PAUSE_SECONDS, Cores, seconds_and_core

LABEL, OTHERS = 10, (11, 12, 13)


def on(*cores: int) -> dict[int, set[int]]:
    return {process: {*cores} for process in OTHERS}


class Machine:
    """Two cores, and a label party that is as busy as one says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int = 2) -> None:
        self.now = self.computed = 0.0
        self.allowed: dict[int, set[int]] = {}
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", self.allowed.__setitem__, raising=False)
        self.cores = Cores(4, lambda process: (self.computed, 1), lambda: self.now)

    def goes_on(self, seconds: float, share: float) -> None:
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.now += LOOK_SECONDS
            self.computed += share * LOOK_SECONDS
            self.cores.look(LABEL, OTHERS)


def test_a_busy_label_party_has_a_core_that_the_others_leave_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.goes_on(2, share=0.4)
    assert machine.allowed == {}
    machine.goes_on(1, share=0.7)
    assert machine.allowed == on(0)


def test_a_label_party_that_waits_for_the_others_gives_its_core_back_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    machine.goes_on(1, share=0.7)
    machine.goes_on(1, share=0.3)
    assert machine.allowed == on(0, 1)
    machine.goes_on(PAUSE_SECONDS - 5, share=0.7)
    assert machine.allowed == on(0, 1)
    machine.goes_on(10, share=0.7)
    assert machine.allowed == on(0)


@pytest.mark.parametrize("cores", [1, 4])
def test_who_has_a_core_of_its_own_or_none_to_spare_is_left_alone(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    machine = Machine(monkeypatch, cores)
    machine.goes_on(5, share=1.0)
    assert machine.allowed == {}


def test_a_process_that_has_ended_has_computed_nothing_that_can_be_told() -> None:
    own = seconds_and_core(os.getpid())
    assert own is not None and own[0] > 0 and own[1] in os.sched_getaffinity(0)
    assert seconds_and_core(2**22 + 1) is None
