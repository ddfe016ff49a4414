"""What it costs until a party is ready to train, in CPU seconds: reading programs, files and certificates, and meeting.

Whole `colonnade join` programs, each started anew from a table of its own, until the label party has its first loss;
and the program that a run with processes loads once for all its parties. What importing PyTorch alone takes, on the
same machine a moment before, is left out: it is the same for everybody who uses it.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from colonnade.benchmarks.party_programs import free_port, random_data, write_federation
from colonnade.errors import RunError
from colonnade.runtimes.processes.fork_server import THREADS

PARTIES, ROWS = 2, 1000
TURNS = 2
_PATIENCE_SECONDS = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")
_LOADING = "import sys, time; began = time.process_time(); import {}; print(time.process_time() - began)"


def start_seconds() -> dict[str, float]:
    """CPU seconds of the dearest party of a network run, and of the program that becomes the parties of one machine."""
    network, processes = [], []
    for _ in range(TURNS):
        torch = _loading("torch")
        network.append(max(_joins().values()) - torch)
        processes.append(_loading("colonnade.launch.party_process") - torch)
    return {"network_start_cpu_seconds": min(network), "processes_start_cpu_seconds": min(processes)}


def _loading(module: str) -> float:
    program = [sys.executable, "-c", _LOADING.format(module)]
    return float(subprocess.run(program, check=True, capture_output=True, text=True, env=_environment()).stdout)


def _environment() -> dict[str, str]:
    return {**os.environ, **THREADS}


def _joins() -> dict[str, float]:
    """CPU seconds by party, up to the label party's first loss."""
    training = {"epochs": 1e6, "batch_size": 64, "evaluate_every_epochs": 0.0, "observe_every_epochs": 0.01}
    settings = {"algorithm": {"name": "vafl"}, "training": {**training, "learning_rate": 0.01}}
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        files = write_federation(folder, random_data(PARTIES, ROWS), settings, free_port())
        programs = {}
        with (folder / "log").open("wb") as log:
            for party, file in files.items():
                command = [sys.executable, "-m", "colonnade", "join", str(folder / "federation.toml")]
                programs[party] = subprocess.Popen(
                    [*command, "--party", str(file)], stdout=log, stderr=log, env=_environment()
                )
        try:
            _wait_for_a_loss(folder / "run-label" / "metrics.jsonl", folder / "log")
            return {party: _cpu_seconds(program.pid) for party, program in programs.items()}
        finally:
            for program in programs.values():
                program.kill()
                program.wait()


def _wait_for_a_loss(metrics: Path, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (metrics.exists() and b'"loss": ' in metrics.read_bytes()):
        if time.monotonic() > deadline:
            raise RunError(f"No training began within {_PATIENCE_SECONDS:.0f} seconds: {log.read_text()[-300:]}")
        time.sleep(0.01)


def _cpu_seconds(pid: int) -> float:
    """Of all of a process's threads, so far; Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
