"""A federation in virtual time, in this process: what `simulate` is given, and the record it leaves."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from colonnade.errors import ProtocolError, RunError
from colonnade.launch.run_directory import continues_trace, extension_of
from colonnade.launch.run_options import RunOptions
from colonnade.launch.run_record import RunRecord, counts_of, exchanges_of
from colonnade.launch.runnable import Runnable
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import read_latest
from colonnade.runtimes.delays import MEASURED
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.onlooker import Onlooker
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty
from colonnade.runtimes.simulate.simulation import Simulation
from colonnade.state import State


@dataclass(frozen=True)
class SimulationLaunch:
    """The runtime "simulate"."""

    federation: Runnable
    settings: Simulate

    runtime = Simulate.name
    needs_directory = False

    @contextmanager
    def ready(self) -> Iterator[None]:
        self.settings.check_parties({*self.federation.members})
        yield

    def run(self, options: RunOptions) -> RunRecord:
        parties, label_party = self.federation.parties, self.federation.label_party
        directory, trace, saved = options.directory, options.trace, None
        if options.resume and directory is not None:
            _, saved = read_latest(directory / "checkpoints", [*parties, "simulate"])
            trace = continues_trace(trace, bool(saved["simulate"].values["traces"]))
        settings = self._of_those_present()
        with ExitStack() as stack:
            recorder = Recorder(label_party, directory, options.watch)
            ledger = stack.enter_context(closing(self._ledger(directory, saved, settings)))
            onlooker = None if directory is None else Onlooker(directory, recorder, options.stop_requested)
            simulation = Simulation(
                parties,
                settings,
                self.federation.seed,
                recorder,
                ledger,
                directory=directory,
                trace=trace,
                resume=saved,
                checkpoint_seconds=options.checkpoint_seconds,
                stop_requested=onlooker or options.stop_requested,
            )
            if saved and (extension := extension_of(directory)) > simulation.extension:
                simulation.extend(extension)
            if onlooker is not None:
                onlooker.attend(simulation, ledger)
                stack.callback(onlooker.conclude)
            finished = _to_the_end(simulation, recorder)
            counts = counts_of(parties)
            return RunRecord(
                self.runtime,
                finished,
                recorder,
                counts,
                exchanges_of(counts),
                simulation.party_times(),
                ledger.summary(),
                ledger.by_row(),
                recorder.wall_seconds(),
                simulation.now,
                simulation.retransmitted_bytes,
            )

    def _of_those_present(self) -> Simulate:
        """The settings of those who take part: one who trains alone has no peers, slow or fast."""
        parties = self.federation.parties
        present = {name: party for name, party in self.settings.parties.items() if name in parties}
        return replace(self.settings, parties=present, links=self.settings.links if len(parties) > 1 else {})

    def _ledger(self, directory: Path | None, saved: Mapping[str, State] | None, settings: Simulate) -> Ledger:
        if directory is None:
            return Ledger()
        resume_at = saved["simulate"].values["ledger"]["position"] if saved else None
        return Ledger(directory / "ledger.jsonl", resume_at, repeats=self._repeats(settings))

    def _repeats(self, settings: Simulate) -> bool:
        """Whether a resumed run releases again, in the same order, what it had released after its checkpoint."""
        parties, label_party = self.federation.parties, self.federation.label_party
        for name in parties:
            own = settings.parties.get(name, SimulatedParty()).compute_seconds
            shared = settings.label_compute_seconds if name == label_party else settings.compute_seconds
            if (shared if own is None else own) == MEASURED:
                return False
        return True


def _to_the_end(simulation: Simulation, recorder: Recorder) -> bool:
    """Whether it was not stopped before its end."""
    try:
        finished = simulation.run()
        if finished:
            simulation.save()
        return finished
    except ProtocolError as error:
        raise RunError(
            f"{error} All parties of a simulation are honest, so the training has most likely diverged: lower "
            "training.learning_rate."
        ) from error
    finally:
        simulation.close()
        recorder.close()
