"""What ends a run for everybody is told to everybody; what passes is waited for. Nobody tries in vain for ever."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from parties import IRIS, LABEL, Organisation, Town, assert_same_bits, shared, wait_until

from colonnade.exit_codes import ExitCode
from colonnade.wire.authority import issue

SLOWLY = {"milliseconds_an_event": 5.0}
SOON = {
    "colonnade.runtimes.network.limits.LONGEST_RETRY_SECONDS": 0.3,
    "colonnade.runtimes.network.limits.EXPIRY_CHECK_SECONDS": 0.1,
}
OVER = "label refused party{}: The training has failed at label and does not go on by itself."

EXPELLED = "holds NaN or infinity"  # what it sent had diverged before the label party noticed


def under_way(town: Town, exchanges: int = 8) -> None:
    wait_until(lambda: town.exchanges() > exchanges, "the training to be under way")


def is_quiet(one: Organisation) -> None:
    """Nothing was said that an operator could not make sense of."""
    for noise in ("Traceback", "Exception not handled", "never retrieved", "CancelledError"):
        assert noise not in one.said(), one.last_words()


# --- an error of the algorithm ------------------------------------------------------------------------------------


def test_a_training_that_fails_at_the_label_party_ends_everywhere(town: Callable[..., Town]) -> None:
    """Also where a party's stream was closed just then, since what it sent had diverged as well."""
    one = town(shared("vafl", IRIS, 50, 16, training={"learning_rate": 1e30}))
    one.start()
    assert one.label.end(1) == 1
    assert "he training has diverged" in one.label.said()
    for number, party in enumerate(one.feature_parties, start=1):
        assert party.end(1) == 1
        assert OVER.format(number) in party.said() or EXPELLED in party.said()
        assert "learning_rate" not in party.said().partition(" refused party")[2].partition("Perhaps")[0]
    one.start()  # as their supervisors do
    assert one.label.end(1) == 1
    for party in one.feature_parties:
        assert party.end(1) == 1
    for party in one.parties.values():
        is_quiet(party)


# --- a party that has forgotten -----------------------------------------------------------------------------------


def set_back(one: Organisation) -> None:
    """What a loss of power, or a restored copy, takes from a journal."""
    wait_until(lambda: [*(one.out / "journal").glob("*.journal")], "its journal, which a checkpoint begins anew")
    one.kill()
    (journal,) = (one.out / "journal").glob("*.journal")
    os.truncate(journal, journal.stat().st_size // 2)
    one.start()


def test_a_feature_party_that_has_forgotten_ends_and_the_label_party_knows_why(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, 40, 16))
    one.label.options = SLOWLY
    one.start()
    under_way(one)
    set_back(one["party1"])
    said = "What party1 remembers is older than what label has heard from it (only "
    assert one["party1"].end(1) == 1
    assert said in one["party1"].said()
    assert "Begin a new run, every party in a new directory (--out)." in one["party1"].said()
    assert one["party1"].said().count("connected to label") == 2  # once a life
    one.label.hear(said)
    assert one.label.alive() and one["party2"].alive()
    is_quiet(one["party1"])


def test_a_label_party_that_has_forgotten_shuts_out_those_who_have_not(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, 40, 16))
    one.label.options = SLOWLY
    one.start()
    under_way(one)
    set_back(one.label)
    for party in one.feature_parties:
        assert party.end(1) == 1
        assert f"What label remembers is older than what {party.name} has heard from it (only " in party.said()
    assert "By the word of party1: What label remembers is older" in one.label.said()
    assert one.label.alive()  # for it cannot know that it is not lied to


# --- half a renewal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["key", "revoked"])
def test_files_that_are_being_replaced_are_waited_for(town: Callable[..., Town], tmp_path: Path, missing: str) -> None:
    """The certificate is there and its key is not, or the list of the revoked has gone: the party looks again."""
    one = town(shared("split", IRIS, 4, 16))
    party = one["party1"]
    party.options = {"patches": SOON}
    one["party2"].options = {"patches": SOON}
    one.label.options = SLOWLY  # or it is over before anybody is held still
    one.start()
    under_way(one)
    one["party2"].signal(signal.SIGSTOP)  # so that the training lasts
    one.label.kill()
    party.hear("cannot be reached")
    issue(one.authority, "party1", tmp_path, [], 1)
    torn = party.folder / ("party1.pem" if missing == "key" else "revoked.txt")
    before = torn.read_bytes()
    torn.write_bytes((tmp_path / torn.name).read_bytes() if missing == "key" else b"not a seri")
    party.hear("our certificate could not be re-read: ", 2)
    assert party.alive()
    if missing == "key":
        for name in ("party1.key", "party1.pem"):
            (tmp_path / name).replace(party.folder / name)
    else:
        torn.write_bytes(before)
    one.label.start()
    one["party2"].signal(signal.SIGCONT)
    one.end()
    assert party.started == 1
    assert_same_bits(one.models(), one.simulated().models)


def test_they_are_also_before_the_label_party_was_met(town: Callable[..., Town]) -> None:
    """They were good when the process began, so what is wrong may pass. At its start it would be an error."""
    one = town(shared("split", IRIS, 4, 16))["party1"]
    one.options = {"patches": SOON}
    one.start()
    one.hear("cannot be reached")
    torn = one.folder / "revoked.txt"
    content = torn.read_bytes()
    torn.unlink()
    one.hear("our certificate could not be re-read: There is no file")
    torn.write_bytes(content)
    one.hear("cannot be reached", one.said().count("cannot be reached") + 1)
    one.kill()
    torn.unlink()
    one.start()
    assert one.end(2) == 2


# --- two interrupts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [LABEL, "party1"])
def test_who_is_interrupted_twice_says_one_sentence(town: Callable[..., Town], who: str) -> None:
    one = town(shared("split", IRIS, 40, 16))
    one.label.options = SLOWLY
    one.start()
    under_way(one)
    one[who].signal(signal.SIGSTOP)
    one[who].signal(signal.SIGINT)
    one[who].signal(signal.SIGCONT)
    one[who].hear("Stopping: ")
    one[who].signal(signal.SIGINT)
    assert one[who].end(None) in (ExitCode.INTERRUPTED, ExitCode.STOPPED)  # or the first was enough
    is_quiet(one[who])
