"""A run that is stopped, killed, or out of disk goes on afterwards to the same models, bit for bit.

The signals go to real processes, and at moments that are told by what the run has written, not by a clock.
"""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from command_line import assert_same_run, colonnade, last_states, metrics, refused, toml

from colonnade.exit_codes import ExitCode
from colonnade.runtimes.processes.fork_server import Child, ForkServer

PARTIES = ["label", "party1", "party2"]

LONG = """
[data]
set = "iris"
parties = 2
[algorithm]
in_flight = 2
[training]
epochs = 60
batch_size = 16
optimiser = "adam"
learning_rate = 0.01
observe_every_epochs = 0.5
[bottom]
hidden = [8]
[top]
hidden = [8]
[simulate]
latency_seconds = {distribution = "exponential", mean = 0.004}
"""


@pytest.fixture
def long() -> Path:
    """A federation of 840 exchanges."""
    return toml("long.toml", LONG)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of that federation that nobody interrupted, with its trace."""
    folder = tmp_path_factory.mktemp("whole")
    path = toml(str(folder / "long.toml"), LONG)
    assert colonnade("run", path, "--no-report", "--trace", "--out", folder / "run").code == 0
    return folder / "run"


class Command:
    """A command in a process of its own, which a fork server started: in place of `subprocess.Popen`."""

    def __init__(self, child: Child, told: Path) -> None:
        self._child = child
        self._told = told

    def poll(self) -> int | None:
        return self._child.poll()

    def send_signal(self, number: int) -> None:
        self._child.send(number)

    def communicate(self) -> tuple[str, str]:
        """What it printed and told, once it has ended."""
        assert self._child.wait(120), "it did not end"
        printed = b""
        while part := os.read(self._child.stdout, 1 << 16):
            printed += part
        return printed.decode(), self._told.read_text(encoding="utf-8")


@pytest.fixture
def begin(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Command]]:
    """Starts a command in this folder; none outlives the test."""
    begun: list[Child] = []

    def start(*arguments: str | Path) -> Command:
        told = tmp_path_factory.mktemp("begun") / "told.txt"
        options = json.dumps({"folder": str(Path.cwd()), "report": True})
        begun.append(fork_server.start("colonnade", [options, *map(str, arguments)], told))
        return Command(begun[-1], told)

    yield start
    for child in begun:
        child.send(signal.SIGKILL)
        child.close()


def wait_for(process: Command, what: Path, least_bytes: int = 1) -> None:
    """Until the process has written that file, and so much of it."""
    deadline = time.monotonic() + 120
    while not (what.exists() and what.stat().st_size >= least_bytes):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{what} was never written"
        time.sleep(0.002)


def resume_with(line: str, *more: str) -> None:
    """Do what the command said one should do."""
    command = re.search(r"Continue with: colonnade (.*)$", line, re.MULTILINE)
    assert command is not None, line
    assert colonnade(*shlex.split(command[1]), *more).code == 0


@pytest.mark.parametrize(("number", "out"), [(signal.SIGINT, "my run"), (signal.SIGTERM, "mine")])
def test_a_stopped_run_says_how_to_go_on_and_does(
    begin: Callable[..., Command], long: Path, whole: Path, number: int, out: str
) -> None:
    process = begin("run", long, "--out", out, "--json")
    wait_for(process, Path(out, "metrics.jsonl"), 2000)
    process.send_signal(number)
    printed, told = process.communicate()
    assert process.poll() == ExitCode.STOPPED
    assert '"status": "stopped"' in printed and printed.count("\n") == 1  # still one JSON object alone
    assert "Stopping: the checkpoint is being written" in told and "Traceback" not in told
    assert 0 < len(metrics(Path(out))) < len(metrics(whole))
    resume_with(told, "--no-report")
    assert_same_run(whole, Path(out))


def test_a_stop_before_the_first_observation_resumes_too(long: Path, whole: Path) -> None:
    with mock.patch("colonnade.runtimes.interrupt.StopOnInterrupt.__call__", lambda stop: True):
        stopped = colonnade("run", long, "--out", "mine")
    assert stopped.code == ExitCode.STOPPED and not Path("mine/metrics.jsonl").exists()
    resume_with(stopped.err, "--no-report")
    assert_same_run(whole, Path("mine"))


def test_ctrl_c_while_the_data_are_read(long: Path, tmp_path: Path) -> None:
    program = (
        "import sys, time, colonnade.prediction.starting\n"
        "from colonnade.cli import main\n"
        "def slow_load(*arguments):\n"
        "    print('reading', flush=True)\n"
        "    time.sleep(120)\n"
        "colonnade.prediction.starting.load_with_start = slow_load\n"
        "sys.argv = ['colonnade', 'run', 'long.toml', '--out', 'mine']\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=120)
    assert (process.returncode, printed) == (ExitCode.INTERRUPTED, "")
    assert told == "colonnade: Interrupted. The training had not begun; nothing was written.\n"
    assert [found.name for found in tmp_path.iterdir()] == [long.name]


def test_a_second_ctrl_c_ends_at_once(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(stop: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("colonnade.runtimes.interrupt.StopOnInterrupt.__call__", impatient)
    sentence = "Interrupted. If it had written a checkpoint, continue with: colonnade run mine --resume\n"
    assert colonnade("run", long, "--out", "mine") == (ExitCode.INTERRUPTED, "", f"colonnade: {sentence}")


def test_how_to_go_on_names_the_runtime_and_its_cluster(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("colonnade.launch.experiment.train_plan", interrupted)
    options = ("--runtime", "ray", "--address", "local", "--threads", "2")
    said = colonnade("run", long, "--out", "mine", *options).err
    assert said.endswith("continue with: colonnade run mine --resume --runtime ray --address local --threads 2\n")


def test_ctrl_c_elsewhere_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("colonnade.reports.run_page.write_report", interrupted)
    assert refused("report", "mine", code=ExitCode.INTERRUPTED) == "Interrupted."


def test_a_killed_run_goes_on(begin: Callable[..., Command], long: Path, whole: Path) -> None:
    """Killed twice: soon after an early checkpoint, and again while it writes one after the resumption."""
    process = begin("run", long, "--out", "mine", "--no-report", "--trace", "--checkpoint-seconds", "0")
    wait_for(process, Path("mine/checkpoints/simulate-0000000002.json"))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    process = begin("run", "mine", "--resume", "--no-report", "--checkpoint-seconds", "0")
    wait_for(process, Path("mine/checkpoints/party1-0000000012.json"))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not Path("mine/summary.json").exists()
    assert colonnade("run", "mine", "--resume", "--no-report").code == 0
    assert_same_run(whole, Path("mine"))
    for party in PARTIES:  # it was traced, so it still is
        name = f"trace/{party}.trace"
        assert (whole / name).read_bytes() == Path("mine", name).read_bytes()


def test_a_full_disk(long: Path, whole: Path) -> None:
    """A limit on the size of files stands for the disk: the growing books hit it after some checkpoints."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (36_000, unlimited[1]))
    try:
        sentence = refused("run", long, "--out", "mine", "--checkpoint-seconds", "0", "--json", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert "could not be written: File too large. Free some space" in sentence
    assert last_states(Path("mine"), [*PARTIES, "simulate"])["simulate"].values["checkpoints"] > 3
    assert not [*Path("mine").rglob("*.tmp")]
    assert colonnade("run", "mine", "--resume", "--no-report").code == 0
    assert_same_run(whole, Path("mine"))


def test_a_disk_that_is_full_from_the_beginning(long: Path) -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    try:
        sentence = refused("run", long, "--out", "mine", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert "The run directory mine could not be written: File too large" in sentence
    assert not Path("mine").exists()
