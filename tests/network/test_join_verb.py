"""`colonnade join` and `leave` as an operator meets them: stopping and going on, leaving, coming late, waiting."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parties import IRIS, LABEL, Organisation, Town, assert_same_bits, free_port, shared, wait_until, with_tables

from colonnade.errors import RunError
from colonnade.exit_codes import ExitCode
from colonnade.prediction.saved_model import read_model
from colonnade.runtimes.checkpoint import numbers_of

SLOWLY = {"milliseconds_an_event": 5.0}


def under_way(town: Town, exchanges: int = 8) -> None:
    wait_until(lambda: town.exchanges() > exchanges, "the training to be under way")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_everybody_stops_and_goes_on(town: Callable[..., Town], number: int) -> None:
    """To the same bits: what was under way when it stopped is neither lost nor done twice."""
    one = town(shared("split", IRIS, 6, 16))
    one.label.options = SLOWLY
    one.start()
    under_way(one)
    for party in one.parties.values():
        party.signal(number)
    for party in one.parties.values():
        assert party.end(ExitCode.STOPPED) == ExitCode.STOPPED
        assert "Continue with: colonnade join" in party.said()
        assert numbers_of(party.out / "checkpoints", party.name)
        assert party.summary()["status"] == "stopped"
    so_far = {name: read_model(party.out / "model" / name).description for name, party in one.parties.items()}
    one.start()
    one.end()
    assert_same_bits(one.models(), one.simulated().models)
    for name, party in one.parties.items():  # another one by then
        assert read_model(party.out / "model" / name).description.weights_sha256 != so_far[name].weights_sha256


@pytest.mark.parametrize("who", [LABEL, "party1"])
@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_torn_newest_checkpoint(town: Callable[..., Town], who: str, suffix: str) -> None:
    """The one before it and the journal are enough."""
    one = town(shared("split", IRIS, 6, 16), checkpoint_seconds=0.1)
    one.label.options = SLOWLY
    one.start()
    party = one[who]
    folder = party.out / "checkpoints"
    wait_until(lambda: len(numbers_of(folder, who)) > 1 and numbers_of(folder, who)[-1] > 2, "checkpoints")
    party.kill()
    newest = folder / f"{who}-{numbers_of(folder, who)[-1]:010d}.{suffix}"
    newest.write_bytes(newest.read_bytes()[:100])
    party.start()
    one.end()
    assert_same_bits(one.models(), one.simulated().models)


@pytest.mark.parametrize("who", [LABEL, "party1"])
def test_a_full_disk_is_said_and_nothing_is_lost(town: Callable[..., Town], who: str) -> None:
    """A party that may not write any more ends with a sentence; with room again it goes on where it was."""
    one = town(shared("split", IRIS, 6, 16))
    one.label.options = SLOWLY
    party = one[who]
    party.options = {**party.options, "file_bytes": 20_000}
    one.start()
    assert party.end(1) == 1
    assert "Traceback" not in party.said() and "Exception not handled" not in party.said()
    assert f"{who} could not write its state in {party.out}" in party.said()
    assert f"Free some space there; nothing that was sent is lost. Continue with: colonnade join {party.folder}" in (
        party.said()
    )
    del party.options["file_bytes"]
    party.start()
    one.end()
    assert_same_bits(one.models(), one.simulated().models)


def test_a_full_disk_of_processes_is_said(town: Callable[..., Town], tmp_path: Path) -> None:
    """By the pipe: in the logs there may be no room for a word."""
    told: list[tuple[str, Any]] = []
    one = town(shared("split", IRIS, 6, 16))
    with pytest.raises(RunError, match=r"The party \w+ failed"):
        one.processed({"file_bytes": 20_000}, out=tmp_path / "run", report=lambda *said: told.append(said))
    notes = [said["note"] for _, said in told if "note" in said]
    assert any(
        re.match(rf"\w+ could not write its state in {tmp_path}/run.*: File too large\. Free some", note)
        for note in notes
    )
    assert not any("Traceback" in log.read_text() for log in (tmp_path / "run" / "logs").iterdir())


def test_how_to_go_on_names_the_options_in_use(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 6, 16))
    one.label.start("--party-timeout", "2.5", "--trace", "--without", "party2", "--without", "party1")
    one.label.hear("listening")
    one.label.signal(signal.SIGTERM)
    one.label.end(ExitCode.STOPPED)
    given = " ".join(
        one.label.command("--without", "party2", "--without", "party1", "--party-timeout", "2.5", "--trace")
    )
    assert f"Stopped. Continue with: colonnade {given}\n" in one.label.said()


def test_a_time_to_wait_is_refused_where_nobody_waits(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, 2, 16))
    one.label.start("--party-timeout", "3")
    assert one.label.end(2) == 2
    assert "--party-timeout is for algorithms that wait for a party that is lost, and vafl has no such" in (
        one.label.said()
    )


def test_a_second_process_in_one_directory_hears_of_the_first(town: Callable[..., Town]) -> None:
    """And not of the address for metrics, which the first has as well."""
    one = town(shared("split", IRIS, 2, 16))["party1"]
    one.own["party"]["metrics"] = f"127.0.0.1:{free_port()}"
    one.write_files()
    one.start()
    one.hear("cannot be reached")
    one.start()
    assert one.end(1) == 1
    assert f"Another process takes part from {one.out} already." in one.said()
    assert "Metrics cannot be served" not in one.said()


def test_who_leaves_for_good_is_not_waited_for(town: Callable[..., Town]) -> None:
    one = with_tables(town, shared("vafl", {}, 8, 64), parties=3)
    one.label.options = SLOWLY
    one.start()
    under_way(one, 20)
    leaver = one["party3"]
    leaver.kill()
    leaver.start(verb="leave")
    assert leaver.end() == 0
    one.label.hear("party3 leaves for good")
    leaver.start()  # and may not come again
    assert leaver.end(1) == 1
    assert "party3 has left this federation for good." in leaver.said()
    for name in (LABEL, "party1", "party2"):
        one[name].end()
    assert one.label.summary()["exchanges"] == 8 * 32 * 3


def test_who_is_taking_part_may_leave_from_another_place(town: Callable[..., Town], tmp_path: Any) -> None:
    """Also if its run directory is lost: its certificate says who it is."""
    one = with_tables(town, shared("vafl", {}, 8, 64), parties=2)
    one.label.options = SLOWLY
    one.start()
    under_way(one, 20)
    taking_part = one["party2"].process
    one["party2"].start(verb="leave", out=tmp_path / "elsewhere")
    assert one["party2"].end() == 0
    assert taking_part is not None and taking_part.wait(30)
    one.label.end()
    one["party1"].end()


def test_the_label_party_cannot_leave(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 2, 16))
    one.label.start(verb="leave")
    assert one.label.end(2) == 2
    assert "The label party cannot leave its own federation" in one.label.said()


def test_leaving_needs_somebody_to_tell(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 2, 16))["party1"]
    one.start(verb="leave")
    assert one.end(1) == 1
    assert "label cannot be reached" in one.said()
    assert "Traceback" not in one.said()


def test_one_comes_late(town: Callable[..., Town]) -> None:
    """The label party begins without it, and it takes part from when it comes."""
    one = with_tables(town, shared("vafl", {}, 8, 64), parties=3)
    one.label.options = SLOWLY
    one.label.start("--without", "party3")
    one["party1"].start()
    one["party2"].start()
    under_way(one, 50)
    one["party3"].start()
    summary = one.end()
    assert one["party3"].summary()["steps"] > 0
    assert summary["exchanges"] == sum(party.summary()["steps"] for party in one.feature_parties) == 8 * 32 * 3


@pytest.mark.parametrize(
    ("algorithm", "who", "more", "code", "said"),
    [
        ("vafl", LABEL, ("--without", "party7"), 2, "party7"),
        ("vafl", "party1", ("--without", "party2"), 2, "--without is the label party's to say"),
        ("afsaga", LABEL, ("--without", "party2"), 2, "afsaga cannot begin without a party"),
        ("fdml", LABEL, ("--without", "party2"), 2, "fdml cannot begin without a party"),
    ],
)
def test_beginning_without_somebody_is_refused(
    town: Callable[..., Town], algorithm: str, who: str, more: tuple[str, ...], code: int, said: str
) -> None:
    one = town(shared(algorithm, IRIS, 2, 16))[who]
    one.start(*more)
    assert one.end(code) == code
    assert said in one.said()


def test_a_synchronous_federation_waits_says_for_whom_and_goes_on(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 6, 16), linger_seconds=1.0)
    one.label.options = SLOWLY
    one.start("--party-timeout", "1")
    under_way(one)
    one["party2"].kill()

    def noted() -> bool:
        return any("waiting for party2" in line.get("note", "") for line in one.label.metrics())

    wait_until(noted, "the note that party2 is waited for")
    steps = 6 * 7
    for name in (LABEL, "party1"):
        one[name].end()
    assert one["party1"].summary()["steps"] == steps
    assert one.label.summary()["exchanges"] < 2 * steps


# --- the true command line -----------------------------------------------------------------------------------------


def begin(one: Organisation, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "colonnade", *one.command(*more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_true_programs_of_both_roles(town: Callable[..., Town]) -> None:
    """From the files alone, with a report at the end; a second feature party would be the first one's program again."""
    one = town(shared("split", IRIS, 2, 16))
    programs = {name: begin(one[name], "--json") for name in (LABEL, "party1")}
    one["party2"].start()
    for name, program in programs.items():
        out, err = program.communicate(timeout=120)
        assert program.returncode == 0, (name, err)
        summary = json.loads(out)
        assert summary["status"] == "finished"
        assert "Traceback" not in err
    one["party2"].end()
    assert (one.label.out / "report.html").exists()
    assert_same_bits(one.models(), one.simulated().models)
