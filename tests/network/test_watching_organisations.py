"""Organisations watch and steer their own parties: each sees its own, and one that pauses is silent for the others."""

import re
import urllib.request
from collections.abc import Callable
from typing import Any

from parties import IRIS, LABEL, Organisation, Town, assert_same_bits, shared, wait_until

from colonnade.exit_codes import ExitCode
from colonnade.runtimes.steering import GO_ON, PAUSE, STOP, ask
from colonnade.watching.runs import WatchedRun

SLOWLY = {"milliseconds_an_event": 5.0}


class Watched:
    """An organisation's run, as its page is told of it."""

    def __init__(self, party: Organisation) -> None:
        self._run = WatchedRun(party.out)
        self._name = party.name

    def status(self) -> str:
        self._run.news()
        return self._run.status()

    def lane(self) -> dict[str, Any]:
        self._run.news()
        samples = self._run.snapshot()["samples"].get(self._name) or [{"parties": {self._name: {}}}]
        assert [*samples[-1]["parties"]] == [self._name]
        found: dict[str, Any] = samples[-1]["parties"][self._name]
        return found

    def exchanges(self) -> int:
        return int(self.lane().get("exchanges", 0))


def test_parties_are_watched_paused_and_stopped(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 60, 16))  # longer than anybody looks on
    one.label.options = SLOWLY
    one.label.start("--watch")
    label, party1 = Watched(one.label), Watched(one["party1"])
    wait_until(lambda: label.status() == "waiting", "the label party to wait")
    assert label.lane()["absent"] == ["party1", "party2"]
    one["party1"].start()
    one["party2"].start()
    wait_until(lambda: label.exchanges() > 8, "the training to be under way")
    address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", one.label.said())
    assert address is not None
    with urllib.request.urlopen(address[0], timeout=30) as page:
        assert b"<title>Colonnade</title>" in page.read()

    ask(one.label.out, PAUSE)
    wait_until(lambda: label.status() == "paused", "the pause")
    rested = label.exchanges()
    assert party1.status() == "running" and label.lane()["links"]["party1"][0] == 1  # connected, and waits
    ask(one.label.out, GO_ON)
    wait_until(lambda: label.exchanges() > rested + 4, "the training to go on")

    for party in one.parties.values():
        ask(party.out, STOP)
        assert party.end(ExitCode.STOPPED) == ExitCode.STOPPED
    assert [label.status(), party1.status()] == ["stopped", "stopped"]
    assert not (one["party1"].out / "metrics.jsonl").exists() and LABEL not in party1.lane()
    one.start()
    one.end()
    assert label.status() == "finished"
    assert_same_bits(one.models(), one.simulated().models)
