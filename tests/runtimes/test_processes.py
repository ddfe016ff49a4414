"""Real processes: what they train is what a simulation trains, whoever is killed, stopped or fails meanwhile.

Parties are slowed down so that something can happen to them in the middle of a run; nothing here depends on how fast
they are. All runs of this file share one fork server, so that a party starts in milliseconds.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import colonnade
from colonnade import Outcome, RunError, SettingsError, Split, Training, Vafl
from colonnade.algorithms.linear_models.afsaga import Afsaga
from colonnade.launch import runnable, seat_files
from colonnade.runtimes.processes import fork_server as fork_server_module
from colonnade.runtimes.processes.fork_server import fork_server_for
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.processes.supervisor import last_lines

PROGRAM = "colonnade.launch.party_process"
TRAINING = Training(epochs=4, batch_size=16, observe_every_epochs=0.25)
SLOW = Processes(compute_seconds=0.005)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")


@pytest.fixture(scope="module", autouse=True)
def one_fork_server() -> Iterator[None]:
    yield
    fork_server = fork_server_module._fork_servers.get(PROGRAM)
    if fork_server is not None:
        fork_server.close()


@cache
def iris() -> colonnade.FederatedData:
    return colonnade.dataset("iris", parties=2)


def run(algorithm: Any, out: Path, runtime: Any = SLOW, **more: Any) -> Outcome:
    return colonnade.train(iris(), algorithm, training=TRAINING, runtime=runtime, out=out, **more)


def weights(outcome: Outcome) -> dict[str, torch.Tensor]:
    return {
        f"{party} {model} {key}": tensor
        for party, own in outcome.models.items()
        for model, module in own.items()
        for key, tensor in module.state_dict().items()
    }


@cache
def simulated() -> Outcome:
    return colonnade.train(iris(), Split(), training=TRAINING)


def different(outcome: Outcome) -> list[str]:
    """Which weights are not those of the simulation."""
    ours, theirs = weights(outcome), weights(simulated())
    assert ours.keys() == theirs.keys()
    return [name for name, tensor in theirs.items() if not torch.equal(tensor, ours[name])]


def scores(metrics: list[dict[str, Any]]) -> list[dict[str, float]]:
    """What the evaluations gave. A simulation makes them in no time; here the training goes on, except at its end."""
    return [line["metric"] for line in metrics if line["metric"] is not None]


# --- who lives --------------------------------------------------------------------------------------------------


def stat(pid: int) -> tuple[str, str, int] | None:
    """A process's name, state and parent; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *_ = rest.split()
    return name, state, int(parent)


def alive(pid: int) -> bool:
    found = stat(pid)
    return found is not None and found[1] != "Z"


def children(parent: int) -> dict[int, str]:
    """The living children of a process, and what they are called."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return {pid: own[0] for pid in numbers if (own := stat(pid)) is not None and own[1] != "Z" and own[2] == parent}


def parties() -> dict[str, int]:
    """The processes of this test's parties, by party."""
    return {name: pid for pid, name in children(fork_server_for(PROGRAM)._process.pid).items()}


def wait_until(what: Callable[[], bool]) -> None:
    while not what():  # the time-out of the test is the limit
        time.sleep(0.02)


class AtLine:
    """A watcher of metrics that does something at lines of these numbers."""

    def __init__(self, deeds: dict[int, Callable[[], None]]) -> None:
        self.lines = 0
        self.deeds = deeds

    def __call__(self, _: dict[str, Any]) -> None:
        self.lines += 1
        if self.lines in self.deeds:
            self.deeds.pop(self.lines)()


def kill(name: str, number: int = signal.SIGKILL) -> Callable[[], None]:
    return lambda: os.kill(parties()[name], number)


# --- the same training ------------------------------------------------------------------------------------------


def test_split_trains_the_same_bits_whoever_is_killed(tmp_path: Path) -> None:
    notes: list[str] = []
    watch = AtLine({2: kill("party1"), 4: kill("label"), 6: kill("party2"), 8: kill("label")})
    outcome = run(
        Split(),
        tmp_path / "run",
        watch=watch,
        trace=True,
        checkpoint_seconds=0.1,
        report=lambda party, said: notes.append(said.get("note", "")),
    )
    assert watch.deeds == {}
    assert outcome.finished
    assert different(outcome) == []
    assert outcome.summary["exchanges"] == 56
    killed = [note.split()[0] for note in notes if note.endswith("was ended by SIGKILL; it is started again")]
    assert sorted(killed) == ["label", "label", "party1", "party2"]
    assert all(own["restarts"] >= 1 for own in outcome.summary["parties"].values())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == outcome.metrics
    assert len(scores(lines)) == len(scores(simulated().metrics))  # nothing twice, nothing missing
    assert scores(lines)[-1] == scores(simulated().metrics)[-1]
    assert [line["exchange"] for line in lines] == sorted(line["exchange"] for line in lines)


def test_vafl_counts_every_exchange_once_whoever_is_killed(tmp_path: Path) -> None:
    watch = AtLine({2: kill("party2"), 3: kill("label"), 5: kill("party1")})
    outcome = run(Vafl(in_flight=2), tmp_path / "run", watch=watch)
    assert watch.deeds == {}
    own = outcome.summary["parties"]
    assert outcome.summary["exchanges"] == own["party1"]["exchanges"] + own["party2"]["exchanges"] == 56
    assert parties() == {}


def test_a_linear_federation_goes_on_while_a_party_is_held_still(tmp_path: Path) -> None:
    """Its connection stands, so no runtime says that it is lost: the requests' own time limit lets the others go on."""
    watch = AtLine({4: kill("party2", signal.SIGSTOP), 7: kill("party2", signal.SIGCONT)})
    algorithm = Afsaga(request_timeout_seconds=0.3, max_product_age_epochs=100.0)
    outcome = run(algorithm, tmp_path / "run", watch=watch)
    assert watch.deeds == {}
    assert outcome.finished
    assert outcome.summary["counts"]["late_rows"] > 0


def test_a_stopped_run_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    out = tmp_path / "run"
    stop: list[bool] = []
    for line in (3, 6):
        stop.clear()
        stopped = run(
            Split(),
            out,
            resume=line > 3,
            watch=AtLine({line: lambda: stop.append(True)}),
            stop_requested=lambda: bool(stop),
        )
        assert not stopped.finished
        assert stopped.summary["status"] == "stopped"
        assert parties() == {}
    resumed = run(Split(), out, resume=True)
    assert resumed.finished
    assert different(resumed) == []
    again = run(Split(), out, resume=True)  # of a run that has finished: nothing changes
    assert again.finished
    assert different(again) == []
    assert again.summary["exchanges"] == 56


def test_one_that_trains_alone_needs_no_peers(tmp_path: Path) -> None:
    outcome = run("centralised", tmp_path / "run", Processes())
    alone = colonnade.train(iris(), "centralised", training=TRAINING)
    assert all(torch.equal(tensor, weights(outcome)[name]) for name, tensor in weights(alone).items())


# --- what goes wrong --------------------------------------------------------------------------------------------


def test_a_party_whose_seat_is_gone_is_named_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_and_lose(folder: Path, seat: seat_files.SeatFiles) -> None:
        write_seat(folder, seat)
        if folder.name == "seat-party1":
            (folder / "seat.json").unlink()

    write_seat = seat_files.write_seat
    monkeypatch.setattr(runnable, "write_seat", write_and_lose)
    with pytest.raises(RunError, match=r"(?s)The party party1 failed\. .*party1\.log:.*No such file.*seat\.json"):
        run(Split(), tmp_path / "run")
    assert parties() == {}


def test_a_party_that_cannot_read_its_past_is_named(tmp_path: Path) -> None:
    out = tmp_path / "run"
    stop: list[bool] = []
    watch = AtLine({3: lambda: stop.append(True)})
    run(Split(), out, watch=watch, stop_requested=lambda: bool(stop), checkpoint_seconds=0.0)
    for path in (out / "checkpoints").glob("party2-*.json"):
        path.write_text("{")
    with pytest.raises(RunError, match=r"(?s)The party party2 failed.*None of the checkpoints of party2 .* is whole"):
        run(Split(), out, resume=True)
    assert parties() == {}


def test_who_is_killed_too_often_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"The party party1 was ended by SIGKILL"):
        run(Split(), tmp_path / "run", Processes(compute_seconds=0.005, restarts=0), watch=AtLine({2: kill("party1")}))
    assert parties() == {}


def test_a_training_that_diverges_ends(tmp_path: Path) -> None:
    fast = Training(epochs=4, batch_size=16, learning_rate=1e30)
    with pytest.raises(RunError, match=r"(?s)diverged.*learning_rate"):
        colonnade.train(iris(), Vafl(), training=fast, runtime="processes", out=tmp_path / "run")
    assert parties() == {}


def test_who_is_gone_leaves_no_orphans(tmp_path: Path) -> None:
    """A program that trains is killed: its fork server and its parties end by themselves, and their state is whole."""
    program = f"""
import colonnade
from colonnade import Split, Training
from colonnade.runtimes.processes.settings import Processes
colonnade.train(
    colonnade.dataset("iris", parties=2),
    Split(),
    training=Training(epochs=4, batch_size=16, observe_every_epochs=0.25),
    runtime=Processes(compute_seconds=0.02),
    out={str(tmp_path / "run")!r},
    watch=lambda line: print("line", flush=True),
)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"line\n"
        (fork_server,) = children(owner.pid)
        supervisor = children(fork_server)
        assert sorted(supervisor.values()) == ["label", "party1", "party2"]
        owner.kill()
    wait_until(lambda: not any(alive(pid) for pid in (fork_server, *supervisor)))
    resumed = run(Split(), tmp_path / "run", resume=True)
    assert different(resumed) == []


# --- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"restarts": -1}, "processes.restarts is -1"),
        ({"compute_seconds": float("nan")}, "processes.compute_seconds is nan"),
        ({"slowdown": {"party1": 0.5}}, "processes.slowdown.party1 is 0.5; it must be 1 or more"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Processes(**settings)


def test_a_misspelt_party_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'party3'\. Did you mean 'party"):
        run(Split(), tmp_path / "run", Processes(slowdown={"party3": 2.0}))


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "party1.log"
    assert last_lines(log) == "(it is empty)"
    log.write_bytes(b"".join(b"line %d\n" % n for n in range(20)) + b"\xff")
    assert last_lines(log).splitlines() == [*(f"line {n}" for n in range(13, 20)), "\N{REPLACEMENT CHARACTER}"]


# --- last, since another fork server takes seconds -----------------------------------------------------------------


def test_without_the_fork_server_the_run_ends_and_so_do_the_parties(tmp_path: Path) -> None:
    before: list[int] = []
    fork_server = fork_server_for(PROGRAM)

    def kill_the_fork_server() -> None:
        before.extend(parties().values())
        os.kill(fork_server._process.pid, signal.SIGKILL)

    with pytest.raises(RunError, match="process that starts the parties has ended"):
        run(Split(), tmp_path / "run", watch=AtLine({2: kill_the_fork_server}))
    fork_server.close()
    assert len(before) == 3
    wait_until(lambda: not any(alive(pid) for pid in before))
