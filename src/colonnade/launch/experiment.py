"""A federation from settings to trained models, in one process: builds every party's seat, runs, keeps the books.

Everything that can be wrong with settings or data is found before the run directory is made.
"""

import json
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.parts.losses import headline
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.costs.disclosure import as_sentences, disclosures
from colonnade.costs.guarantees import guarantees, privacy_summary
from colonnade.costs.noise import calibrated
from colonnade.data.federated import Columns, FederatedData, data_digest
from colonnade.errors import DataError, ProtocolError, RunError, SettingsError, unknown_name
from colonnade.federation.building import MOST_DENSE_VALUES, all_dense, build_parties, facts_of, own_of
from colonnade.federation.file import digest, write_toml
from colonnade.federation.plan import Bottoms, Facts, Plan, check_plan
from colonnade.files import write_atomically
from colonnade.launch.processes import RunRecord, run_processes
from colonnade.models.bottom import BottomSettings
from colonnade.models.network import network_for
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger, check_journal
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.reports.summary import summarise
from colonnade.runtimes.checkpoint import read_latest
from colonnade.runtimes.journal import first_number
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.recorder import Recorder, by_kind
from colonnade.runtimes.run_lock import only_process_in
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation
from colonnade.settings import as_values
from colonnade.state import State


@dataclass
class Outcome:
    """What a run gave: its summary, its curve, and every party's models."""

    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    models: dict[str, dict[str, nn.Module]]
    order: tuple[str, ...]  # whose embeddings the top model takes, in order
    label_party: str
    directory: Path | None
    finished: bool
    clip: float = 0.0  # of what feature parties sent: a part of the function that was trained, unlike the noise

    def outputs(self, columns: Mapping[str, Columns]) -> torch.Tensor:
        """The joint model's raw outputs (logits or values) for prepared rows of every party, without noise."""
        embeddings = [self._embed(name, columns[name]) for name in self.order]
        return network_for(self.models[self.label_party]["top"]).embed(torch.cat(embeddings, 1))

    def _embed(self, name: str, rows: Columns) -> torch.Tensor:
        if not isinstance(rows, torch.Tensor):
            rows = _dense(name, rows)
        alone = self.models[self.label_party].get(f"bottom of {name}")
        network = network_for(self.models[name]["bottom"] if alone is None else alone)
        sent = alone is None and name != self.label_party
        clipped = LayerNoise(PerturbationSettings(clip=self.clip), torch.Generator()) if sent and self.clip else None
        return network.embed(rows, clipped)


def _dense(name: str, rows: csr_array) -> torch.Tensor:
    if rows.shape[0] * rows.shape[1] > MOST_DENSE_VALUES:
        raise DataError(f"The sparse rows of {name} are too many to be made dense at once: predict for fewer rows.")
    return torch.from_numpy(rows.toarray())


def _order(data: FederatedData) -> tuple[str, ...]:
    own = (data.label_party,) if data.label_party in data.columns else ()
    return (*data.feature_parties, *own)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(
    data: FederatedData,
    algorithm: Any = None,
    *,
    training: Training | None = None,
    bottom: Bottoms | None = None,
    top: TopSettings | nn.Module | None = None,
    privacy: PerturbationSettings | None = None,
    simulate: Simulate | None = None,
    runtime: str | Processes | Ray = "simulate",
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    trace: bool = False,
    watch: Callable[[dict[str, Any]], None] | None = None,
    report: Callable[[str, dict[str, Any]], None] | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 30.0,
    threads: int = 1,
    settings: dict[str, Any] | None = None,
) -> Outcome:
    """Train one model over the parties' columns: in virtual time, or with a process or a Ray actor for every party.

    `algorithm` is a name or a settings object such as `Vafl(wait_for=2)`. With `out`, the run directory is written
    there and `resume` continues one that was stopped; in virtual time to the same final models. `watch` is given every
    line of metrics, `report` what each party's process or actor says of itself. `settings` is what the run directory
    records as its federation.toml; by default what was given here.

    >>> import colonnade
    >>> data = colonnade.dataset("iris", parties=2)
    >>> outcome = colonnade.train(data, "vafl", training=colonnade.Training(epochs=2, batch_size=16))
    >>> outcome.summary["exchanges"]
    28
    """
    if algorithm is None:
        algorithm = Vafl()
    elif isinstance(algorithm, str):
        algorithm = algorithms.find(algorithm).settings()
    training = training or Training()
    bottom = BottomSettings() if bottom is None else bottom
    top = TopSettings() if top is None else top
    privacy = privacy or PerturbationSettings()
    simulate = simulate or Simulate()
    if isinstance(runtime, str):
        if runtime not in RUNTIMES:
            raise unknown_name("runtime", runtime, RUNTIMES)
        runtime = Processes() if runtime == Processes.name else Ray() if runtime == Ray.name else runtime
    if seed < 0:
        raise SettingsError(f"The seed is {seed}; it must be 0 or more.")
    if trace and out is None:
        raise SettingsError("A trace is written into the run directory: give out=… as well.")
    if resume and out is None:
        raise SettingsError("To resume, say which run: give its directory as out=….")
    name = algorithms.name_of(algorithm)
    if settings is None:
        settings = _settings_values(data, name, algorithm, training, privacy, bottom, top, simulate, seed)
    directory = None if out is None else Path(out)
    with _threads(threads):
        plan, facts = _agreed(data, Plan(algorithm, training, privacy, bottom, top, seed))
        parties = build_parties(data, plan.algorithm, training, plan.privacy, bottom, top, seed)
        if isinstance(runtime, Processes | Ray):
            with (
                _readiness(runtime, [*parties]) as run,
                _own_directory(directory) as place,
                _disk_errors(place),
                _opened(place, settings, resume, data, runtime.name),
            ):
                if resume:
                    trace = _continues_trace(trace, (place / "trace").exists())
                    for party in parties:
                        has_journal = first_number(place / "journal", party) is not None
                        check_journal(place / "ledger" / f"{party}.jsonl", has_journal, party)
                record = _run_in_real_time(
                    run, parties, data, plan, runtime, place, trace, checkpoint_seconds, watch, report, stop_requested
                )
        else:
            record = _run_simulation(
                parties,
                data,
                simulate,
                seed,
                directory,
                settings,
                resume,
                trace,
                checkpoint_seconds,
                watch,
                stop_requested,
            )
        recorder = record.recorder
        up, down = recorder.bytes_up_and_down()
        counts = {party: own.counts() for party, own in parties.items()}
        sizes = {party: by_kind(sent.bytes) for party, sent in recorder.traffic.items()}
        frames = {party: by_kind(sent.frames) for party, sent in recorder.traffic.items()}
        found = guarantees(plan, facts, record.released)
        exchanges = {party: own["exchanges"] for party, own in counts.items()}
        summary = summarise(
            algorithm=name,
            runtime=runtime if isinstance(runtime, str) else runtime.name,
            seed=seed,
            status="finished" if record.finished else "stopped",
            label_party=data.label_party,
            headline=headline(data.labels.task),
            counts=counts,
            metrics=recorder.metrics,
            books=record.books,
            traffic=sizes,
            frames=frames,
            evaluation_bytes=sum(sent.evaluation_bytes() for sent in recorder.traffic.values()),
            bytes_up=up,
            bytes_down=down,
            retransmitted_bytes=record.retransmitted_bytes,
            wall_seconds=record.wall_seconds,
            virtual_seconds=record.virtual_seconds,
            privacy_events=record.privacy_events,
            privacy=privacy_summary(plan, found, record.privacy_events),
            learnt=as_sentences(disclosures(plan, facts, frames, sizes, exchanges)),
            data=_describe(data),
            settings=settings,
        )
        if directory is not None:
            with _disk_errors(directory):
                write_atomically(directory / "summary.json", json.dumps(summary, indent=1).encode())
        models = {party: own.model() for party, own in parties.items()}
    return Outcome(
        summary,
        recorder.metrics,
        models,
        _order(data),
        data.label_party,
        directory,
        record.finished,
        privacy.clip,
    )


RUNTIMES = ("simulate", "processes", "ray")


def _agreed(data: FederatedData, plan: Plan) -> tuple[Plan, Facts]:
    """The plan with the noise that its targets ask for, and what all parties know of one another."""
    check_plan(plan, data.rows, (data.label_party, *data.feature_parties), data.columns)
    facts = facts_of(data, plan)
    return calibrated(plan, facts), facts


def _run_simulation(
    parties: Mapping[str, Party],
    data: FederatedData,
    simulate: Simulate,
    seed: int,
    directory: Path | None,
    settings: dict[str, Any],
    resume: bool,
    trace: bool,
    checkpoint_seconds: float,
    watch: Callable[[dict[str, Any]], None] | None,
    stop_requested: Callable[[], bool],
) -> RunRecord:
    world = _world(simulate, {data.label_party, *data.columns}, parties)
    saved = None
    with ExitStack() as stack:
        if directory is not None:
            stack.enter_context(_opened(directory, settings, resume, data, Simulate.name))
            if resume:
                _, saved = read_latest(directory / "checkpoints", [*parties, "simulate"])
                trace = _continues_trace(trace, bool(saved["simulate"].values["traces"]))
        recorder = Recorder(data.label_party, directory, watch)
        stack.enter_context(_disk_errors(directory))
        ledger = stack.enter_context(closing(_ledger(directory, saved, world)))
        simulation = Simulation(
            parties,
            data.label_party,
            world,
            seed,
            recorder,
            ledger,
            directory=directory,
            trace=trace,
            resume=saved,
            checkpoint_seconds=checkpoint_seconds,
            stop_requested=stop_requested,
        )
        try:
            finished = simulation.run()
            if finished:
                simulation.save()
        except ProtocolError as error:
            raise RunError(
                f"{error} All parties of a simulation are honest, so the training has most likely diverged: lower "
                "training.learning_rate."
            ) from error
        finally:
            simulation.close()
            recorder.close()
        return RunRecord(
            finished,
            recorder,
            simulation.party_books(),
            ledger.summary(),
            recorder.wall_seconds(),
            simulation.now,
            simulation.retransmitted_bytes,
            ledger.by_row(),
        )


def _run_in_real_time(
    run: Callable[..., RunRecord],
    parties: Mapping[str, Party],
    data: FederatedData,
    plan: Plan,
    runtime: Processes | Ray,
    directory: Path,
    trace: bool,
    checkpoint_seconds: float,
    watch: Callable[[dict[str, Any]], None] | None,
    report: Callable[[str, dict[str, Any]], None] | None,
    stop_requested: Callable[[], bool],
) -> RunRecord:
    if not plan.is_linear:
        data = all_dense(data)
    owns = [own_of(data, party, plan) for party in (data.label_party, *data.feature_parties)]
    return run(
        parties,
        owns,
        facts_of(data, plan),
        plan,
        runtime,
        directory,
        trace=trace,
        checkpoint_seconds=checkpoint_seconds,
        watch=watch,
        report=report,
        stop_requested=stop_requested,
    )


@contextmanager
def _readiness(runtime: Processes | Ray, parties: list[str]) -> Iterator[Callable[..., RunRecord]]:
    """What runs the parties; whoever is named exists, and so does the cluster, before a run directory is made."""
    setting, named = ("resources", runtime.resources) if isinstance(runtime, Ray) else ("slowdown", runtime.slowdown)
    for party in named:
        if party not in parties:
            raise unknown_name(f"party for {runtime.name}.{setting}", party, parties)
    if not isinstance(runtime, Ray):
        yield run_processes
        return
    try:
        # In here, since Ray takes a second to load and is an extra; both before it connects, which ray:// insists on.
        from colonnade.launch.ray import run_actors
        from colonnade.runtimes.ray.cluster import cluster
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise SettingsError("The runtime 'ray' needs Ray: pip install 'colonnade[ray]'.") from None
    with cluster(runtime.address, [runtime.needs_of(party) for party in parties]):
        yield run_actors


@contextmanager
def _own_directory(directory: Path | None) -> Iterator[Path]:
    """The run directory; without one, a place that is gone afterwards, for what processes need to keep."""
    if directory is not None:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="colonnade-run-") as folder:
        yield Path(folder) / "run"


def _world(simulate: Simulate, everybody: set[str], parties: Mapping[str, Party]) -> Simulate:
    """The settings of those who take part: one who trains alone has no peers, slow or fast."""
    simulate.check_parties(everybody)
    present = {name: own for name, own in simulate.parties.items() if name in parties}
    return replace(simulate, parties=present, links=simulate.links if len(parties) > 1 else {})


def _continues_trace(trace: bool, traced: bool) -> bool:
    """Whether a resumed run is traced: exactly if it was before, since half a trace cannot be replayed."""
    if trace and not traced:
        raise SettingsError("This run was started without --trace, and a trace must begin with the run: leave it out.")
    return traced


def _ledger(directory: Path | None, saved: Mapping[str, State] | None, world: Simulate) -> Ledger:
    if directory is None:
        return Ledger()
    resume_at = saved["simulate"].values["ledger"]["position"] if saved else None
    own_times = (own.compute_seconds for own in world.parties.values())
    repeats = "measured" not in (world.compute_seconds, *own_times)
    return Ledger(directory / "ledger.jsonl", resume_at, repeats=repeats)


@contextmanager
def _opened(
    directory: Path, settings: dict[str, Any], resume: bool, data: FederatedData, runtime: str
) -> Iterator[None]:
    """A run directory, made or checked, and held against a second process."""
    _open_directory(directory, settings, resume, data, runtime)
    with only_process_in(directory):
        yield


def _open_directory(
    directory: Path,
    settings: dict[str, Any],
    resume: bool,
    data: FederatedData,
    runtime: str,
) -> None:
    """Make the run directory, or check that an existing one can be continued."""
    kept = directory / "federation.toml"
    if resume:
        if not kept.exists():
            raise SettingsError(f"{directory} is not a run to resume: it has no federation.toml.")
        try:
            before = tomllib.loads(kept.read_text(encoding="utf-8"))
            digests = json.loads((directory / _DIGESTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise RunError(
                f"The run in {directory} cannot be resumed: its federation.toml or {_DIGESTS} is missing or torn. "
                "Start a new run in another directory."
            ) from None
        if digests.pop("settings", "") != _settings_digest(before):
            raise SettingsError(
                f"{kept} was changed after its run was started, which has kept a digest of its settings. What was "
                "trained and released so far was by the settings before: put those back, or start a new run with the "
                "others in another directory (--out)."
            )
        different = sorted(
            f"{section}.{name}"
            for section in {**before, **settings}.keys() - {Ray.name}  # another cluster, or more of it, is as good
            for name in _differences(before.get(section, {}), settings.get(section, {}))
        )
        if different:
            raise SettingsError(
                f"The run in {directory} was started with other settings: {', '.join(different[:5])} differ. "
                f"Resume with {kept}, or start a new run in another directory."
            )
        ran_under = digests.pop("runtime", Simulate.name)
        if ran_under != runtime:
            raise SettingsError(f"The run in {directory} was started with --runtime {ran_under}: resume it with that.")
        changed = _differences(digests, _digests(data))
        if changed:
            raise DataError(
                f"The data have changed since the run in {directory} was started: {', '.join(sorted(changed))}. "
                "Resume with the data it was started with, or start a new run."
            )
        return
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise SettingsError(
            f"The directory {directory} exists already. Choose another one with --out, continue that run with "
            "--resume, or remove it."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"The run directory {directory} could not be made: {error.strerror}. Choose another one with --out."
        ) from None
    try:
        text = write_toml(settings)
        write_atomically(kept, text.encode())
        (directory / _DIGESTS).parent.mkdir()
        agreed = {"runtime": runtime, "settings": _settings_digest(tomllib.loads(text))}
        write_atomically(directory / _DIGESTS, json.dumps({**_digests(data), **agreed}).encode())
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise RunError(
            f"The run directory {directory} could not be written: {error.strerror}. Free some space, or choose "
            "another one with --out."
        ) from None


# Among the checkpoints, which are their owners' own: a digest of a few labels could be guessed.
_DIGESTS = "checkpoints/data.json"


def _settings_digest(values: Mapping[str, Any]) -> str:
    """Of the values of a federation.toml, as they are read; another cluster, or more of it, is as good."""
    return digest({section: own for section, own in values.items() if section != Ray.name})


def _digests(data: FederatedData) -> dict[str, str]:
    """What tells whether a resumed run sees the same data, and if not, whose have changed."""
    columns = {f"columns of {name}": data_digest(own.train, own.test) for name, own in data.columns.items()}
    labels = data_digest(data.labels.train, data.labels.test)
    return {"rows or their order": data.row_digest, "labels": labels, **columns}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names under which two sections differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


@contextmanager
def _disk_errors(directory: Path | None) -> Iterator[None]:
    """A disk that is full while a run is under way: one sentence, and what was saved stays."""
    try:
        yield
    except OSError as error:
        if directory is None or isinstance(error, BrokenPipeError):  # nobody reads what the watcher prints
            raise
        raise RunError(
            f"The run directory {directory} could not be written: {error.strerror}. Free some space, then continue "
            "with --resume from the last checkpoint."
        ) from error


def _settings_values(
    data: FederatedData,
    name: str,
    algorithm: Any,
    training: Training,
    privacy: PerturbationSettings,
    bottom: Bottoms,
    top: TopSettings | nn.Module,
    simulate: Simulate,
    seed: int,
) -> dict[str, Any]:
    """What was given from Python, as a federation.toml would say it; a user's module by its class name."""

    def described(model: Any) -> Any:
        if isinstance(model, nn.Module):
            return {"module": type(model).__name__}
        if isinstance(model, Mapping):
            return {party: described(own) for party, own in model.items()}
        return as_values(model)

    return {
        "federation": {"name": "", "label_party": data.label_party, "seed": seed},
        "algorithm": {"name": name, **as_values(algorithm)},
        "data": {"name": data.name},
        "training": as_values(training),
        "privacy": as_values(privacy),
        "bottom": described(bottom),
        "top": described(top),
        "simulate": as_values(simulate),
    }


def _describe(data: FederatedData) -> dict[str, Any]:
    parties = {name: {"columns": int(np.prod(own.shape))} for name, own in data.columns.items()}
    return {
        "name": data.name,
        "rows": data.rows,
        "test_rows": data.test_rows,
        "task": data.labels.task,
        "parties": parties,
    }
