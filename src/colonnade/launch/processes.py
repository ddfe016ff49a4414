"""A federation in real time on one machine: seats are handed out, processes run, and their records are gathered.

Every party's state lies in the run directory; when the processes have ended, it is read from there.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from colonnade.errors import unknown_name
from colonnade.launch.run_directory import continues_trace, extension_of
from colonnade.launch.run_options import RunOptions
from colonnade.launch.run_record import RunRecord, gather
from colonnade.launch.runnable import Runnable, write_seats
from colonnade.launch.seat_files import Life
from colonnade.privacy.ledger import check_journal
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.journal import first_number
from colonnade.runtimes.processes.fork_server import fork_server_for
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.processes.sockets import socket_folder
from colonnade.runtimes.processes.supervisor import ProcessSupervisor


@dataclass(frozen=True)
class ProcessesLaunch:
    """The runtime "processes"."""

    federation: Runnable
    settings: Processes

    runtime = Processes.name
    needs_directory = True

    @contextmanager
    def ready(self) -> Iterator[None]:
        check_named("processes.slowdown", self.settings.slowdown, self.federation)
        yield

    def run(self, options: RunOptions) -> RunRecord:
        """Run every party in a process of its own; the parties here are then given the states that those ended with."""
        federation, settings = self.federation, self.settings
        parties, label_party = federation.parties, federation.label_party
        # The seats may be large, so they lie where temporary files do; sockets need a short path.
        with tempfile.TemporaryDirectory(prefix="colonnade-") as folder, socket_folder([*parties]) as sockets:
            directory, lives = lives_of(federation, settings.endurance, options)
            for name, life in lives.items():
                lives[name] = replace(
                    life,
                    sockets=sockets,
                    slowdown=settings.slowdown.get(name, 1.0),
                    compute_seconds=0.0 if name == label_party else settings.compute_seconds,
                )
            seats = write_seats(Path(folder), federation, lives)
            supervisor = ProcessSupervisor(
                fork_server_for("colonnade.launch.party_process"),
                {name: [str(seat)] for name, seat in seats.items()},
                directory / "logs",
                settings,
                watch=options.pass_on,
                stop_requested=options.stop_requested,
            )
            finished = supervisor.run()
        return gather(self.runtime, parties, label_party, directory, finished)


def check_named(setting: str, named: Iterable[str], federation: Runnable) -> None:
    """Refuse settings for a party that does not exist."""
    for party in named:
        if party not in federation.parties:
            raise unknown_name(f"party for {setting}", party, federation.parties)


def lives_of(federation: Runnable, endurance: Endurance, options: RunOptions) -> tuple[Path, dict[str, Life]]:
    """Where the parties of one user keep their state, and how each is to live: what their carriers need is left out."""
    directory, trace = options.directory, options.trace
    assert directory is not None  # these runtimes need one
    if options.resume:
        trace = continues_trace(trace, (directory / "trace").exists())
        for name in federation.parties:
            has_journal = first_number(directory / "journal", name) is not None
            check_journal(directory / "ledger" / f"{name}.jsonl", has_journal, name)
    endurance = replace(endurance, checkpoint_seconds=options.checkpoint_seconds)
    lives = {
        name: Life(
            str(directory.absolute()),
            federation.peers_of(name),
            endurance,
            trace,
            tuple(federation.parties),
            extension=extension_of(directory),
        )
        for name in federation.parties
    }
    return directory, lives
