"""A federation in real time on one machine: seats are handed out, processes run, and their books are brought together.

Every party's state lies in the run directory; when the processes have ended, it is read from there.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.federation.building import PrivateData
from colonnade.federation.plan import Facts, Plan
from colonnade.files import write_atomically
from colonnade.launch.seat_files import write_seat
from colonnade.messages import KINDS
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import numbers_of, read_checkpoint
from colonnade.runtimes.processes.fork_server import fork_server_for
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.processes.sockets import socket_folder
from colonnade.runtimes.processes.supervisor import ProcessSupervisor
from colonnade.runtimes.recorder import Recorder
from colonnade.settings import as_values


@dataclass
class RunRecord:
    """What a run left behind, everybody's books together."""

    finished: bool
    recorder: Recorder
    books: dict[str, dict[str, float]]
    privacy_events: list[dict[str, Any]]
    wall_seconds: float
    virtual_seconds: float | None = None
    retransmitted_bytes: int = 0
    released: list[dict[str, Any]] = field(default_factory=list)  # as `privacy_events`, counted row by row


def run_processes(
    parties: Mapping[str, Party],
    owns: list[PrivateData],
    facts: Facts,
    plan: Plan,
    settings: Processes,
    directory: Path,
    *,
    trace: bool,
    checkpoint_seconds: float,
    watch: Callable[[dict[str, Any]], None] | None,
    report: Callable[[str, dict[str, Any]], None] | None,
    stop_requested: Callable[[], bool],
) -> RunRecord:
    """Run every party in a process of its own; `parties` are then given the states that the processes ended with."""

    def hear(party: str, said: dict[str, Any]) -> None:
        if "line" in said:
            if watch is not None:
                watch(said["line"])
        elif report is not None:
            report(party, said)

    order = [*parties]
    endurance = {**as_values(settings.endurance), "checkpoint_seconds": checkpoint_seconds}
    # The seats may be large, so they lie where temporary files do; sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="colonnade-") as folder, socket_folder(order) as sockets:
        arguments = {}
        for name in order:
            life = {
                "directory": str(directory.absolute()),
                "sockets": sockets,
                "order": order,
                "peers": peers_of(name, order, facts, plan),
                "endurance": endurance,
                "slowdown": settings.slowdown.get(name, 1.0),
                "compute_seconds": 0.0 if name == facts.label_party else settings.compute_seconds,
                "trace": trace,
            }
            own = tuple(owns) if plan.is_alone else tuple(one for one in owns if one.name == name)
            write_seat(Path(folder) / f"seat-{name}", own, facts, plan, life)
            arguments[name] = [str(Path(folder) / f"seat-{name}")]
        fork_server = fork_server_for("colonnade.launch.party_process")
        supervisor = ProcessSupervisor(
            fork_server, arguments, directory / "logs", settings, watch=hear, stop_requested=stop_requested
        )
        finished = supervisor.run()
    return gather(parties, facts.label_party, directory, finished)


def peers_of(name: str, order: list[str], facts: Facts, plan: Plan) -> list[str]:
    """Whom a party talks to: the label party and everybody, or in a linear federation everybody and everybody."""
    if plan.is_linear or name == facts.label_party:
        return [other for other in order if other != name]
    return [facts.label_party]


def gather(parties: Mapping[str, Party], label_party: str, directory: Path, finished: bool) -> RunRecord:
    """Read every party's last checkpoint: its state into the party, its books into one."""
    recorder = Recorder(label_party, virtual=False)
    books: dict[str, dict[str, float]] = {}
    events: list[dict[str, Any]] = []
    released: list[dict[str, Any]] = []
    wall = 0.0
    for name, party in parties.items():
        saved = next(
            (
                state
                for number in reversed(numbers_of(directory / "checkpoints", name))
                if (state := read_checkpoint(directory / "checkpoints", name, number)) is not None
            ),
            None,
        )
        if saved is None:
            if finished:
                raise RunError(f"The party {name} has left no whole checkpoint in {directory / 'checkpoints'}.")
            books[name] = {"busy_seconds": 0.0, "idle_seconds": 0.0, "restarts": 0}
            continue  # it was stopped before it had begun
        party.restore(saved.part("party"))
        values = saved.values["station"]
        wall = max(wall, values["now"])
        books[name] = {
            "busy_seconds": values["busy_seconds"],
            "idle_seconds": max(0.0, values["now"] - values["busy_seconds"]),
            "restarts": values["restarts"],
        }
        own = values["recorder"]
        sent = recorder.traffic_of(name)
        sent.frames = {KINDS[kind].message: n for kind, n in own["traffic"].get(name, {}).get("frames", {}).items()}
        sent.bytes = {KINDS[kind].message: n for kind, n in own["traffic"].get(name, {}).get("bytes", {}).items()}
        recorder.timeline += own["timeline"]
        if name == label_party:
            recorder.metrics = own["metrics"]
        ledger = Ledger()
        ledger.restore(saved.part("ledger"))
        events += ledger.summary()
        released += ledger.by_row()
    recorder.timeline.sort(key=lambda line: line["start"])
    ledgers = [directory / "ledger" / f"{name}.jsonl" for name in parties]
    write_atomically(directory / "ledger.jsonl", b"".join(path.read_bytes() for path in ledgers if path.exists()))
    lines = "".join(json.dumps(line) + "\n" for line in recorder.timeline)
    write_atomically(directory / "timeline.jsonl", lines.encode())
    return RunRecord(finished, recorder, books, events, wall, released=released)
