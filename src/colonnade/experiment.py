"""A federation from settings to trained models, in one process: builds every party's seat, runs, keeps the books.

Everything that can be wrong with settings or data is found before the run directory is made.
"""

import hashlib
import json
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.parts.losses import Loss, headline
from colonnade.algorithms.parts.randomness import seed_for
from colonnade.algorithms.parts.seats import FeatureSeat, LabelSeat, LinearSeat
from colonnade.algorithms.parts.training import Training
from colonnade.algorithms.vafl import Vafl
from colonnade.data.batches import check_batch_size
from colonnade.data.federated import Columns, FederatedData
from colonnade.errors import DataError, ProtocolError, RunError, SettingsError, unknown_name
from colonnade.federation import check_party_name, write_toml
from colonnade.models.bottom import BottomSettings, build_bottom
from colonnade.models.network import initialise, network_for, output_width
from colonnade.models.randomness import seeded
from colonnade.models.top import TopSettings, build_top
from colonnade.party import Party, State
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.reports.summary import summarise
from colonnade.runtimes.checkpoint import read_latest, write_atomically
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate import Simulate, Simulation
from colonnade.settings import as_values

Bottoms = BottomSettings | nn.Module | Mapping[str, BottomSettings | nn.Module]


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


def build_parties(
    data: FederatedData,
    algorithm: Any,
    training: Training,
    privacy: PerturbationSettings,
    bottom: Bottoms,
    top: TopSettings | nn.Module,
    seed: int,
) -> dict[str, Party]:
    """Every party of a federation, the label party first."""
    chosen = algorithms.find(algorithms.name_of(algorithm))
    check_batch_size(data.rows, training.batch_size)
    for name in (data.label_party, *data.feature_parties):
        check_party_name(name)
    outputs = Loss.outputs(data.labels.task, len(data.labels.classes))
    if chosen.peer is not None or chosen.bottom is not None:
        _refuse_models(chosen.name, bottom, top)
    if chosen.peer is not None:
        _refuse_unused(chosen.name, training, privacy)
        return {seat.name: chosen.peer(seat) for seat in _linear_seats(data, algorithm, training, outputs, seed)}
    data = _all_dense(data)
    if chosen.bottom is not None and chosen.top is not None:
        bottom, top = _own_models(chosen, data, outputs, seed)
    only_sums = isinstance(top, TopSettings) and top.only_sums
    modules = {name: _bottom_for(name, data, bottom, outputs if only_sums else None, seed) for name in data.columns}
    widths = {name: output_width(module, data.columns[name].shape) for name, module in modules.items()}
    order = _order(data)
    top_module = _top_for(top, [widths[name] for name in order], outputs, seed)
    alone = chosen.alone is not None
    features = [
        FeatureSeat(
            name=name,
            label_party=data.label_party,
            columns=data.columns[name],
            bottom=modules[name],
            width=widths[name],
            training=training,
            settings=algorithm,
            privacy=PerturbationSettings() if alone else privacy,
            seed=seed,
        )
        for name in data.feature_parties
    ]
    label = LabelSeat(
        name=data.label_party,
        feature_parties=tuple(data.feature_parties),
        widths=widths,
        labels=data.labels,
        columns=data.columns.get(data.label_party),
        bottom=modules.get(data.label_party),
        top=top_module,
        training=training,
        settings=algorithm,
        seed=seed,
    )
    if chosen.alone is not None:
        return {data.label_party: chosen.alone(label, features)}
    assert chosen.label_party is not None and chosen.feature_party is not None
    parties: dict[str, Party] = {data.label_party: chosen.label_party(label)}
    parties.update({seat.name: chosen.feature_party(seat) for seat in features})
    return parties


def _refuse_models(name: str, bottom: Bottoms, top: TopSettings | nn.Module) -> None:
    """An algorithm with models of its own: others cannot be asked for."""
    bottoms = bottom.values() if isinstance(bottom, Mapping) else [bottom]
    linear = all(
        isinstance(one, BottomSettings) and (one == BottomSettings() or one.kind == "linear") for one in bottoms
    )
    summed = isinstance(top, TopSettings) and (top.only_sums or top == TopSettings())
    if not (linear and summed):
        raise SettingsError(
            f"{name} trains a linear model, one block a party: the models given as bottom or top would not be used. "
            "Leave them out, or choose another algorithm, such as vafl."
        )


def _refuse_unused(name: str, training: Training, privacy: PerturbationSettings) -> None:
    if privacy != PerturbationSettings():
        raise SettingsError(f"{name} sends exact sums and no embeddings: [privacy] has no effect. Leave it out.")
    for setting, usual in (("optimiser", "sgd"), ("l1", 0.0), ("top_learning_rate", None)):
        if getattr(training, setting) != usual:
            raise SettingsError(f"{name} does not use training.{setting}. Leave it out.")


def _linear_seats(
    data: FederatedData, algorithm: Any, training: Training, outputs: int, seed: int
) -> Iterator[LinearSeat]:
    """Every party's seat in a linear federation, the label party first; it leads even if it has no columns."""
    parties = (data.label_party, *data.feature_parties)
    # The intercept needs one owner: the label party if it learns anything at all.
    owner = data.label_party if data.label_party in data.columns else data.feature_parties[0]
    for name in parties:
        has_labels = name == data.label_party or algorithm.labels == "everywhere"
        yield LinearSeat(
            name=name,
            parties=parties,
            label_party=data.label_party,
            workers=len(data.columns),
            columns=data.columns.get(name),
            rows=data.rows,
            test_rows=data.test_rows,
            task=data.labels.task,
            outputs=outputs,
            labels=data.labels if has_labels else None,
            intercept=algorithm.intercept and name == owner,
            training=training,
            settings=algorithm,
            seed=seed,
        )


def _own_models(
    chosen: algorithms.Algorithm, data: FederatedData, outputs: int, seed: int
) -> tuple[dict[str, nn.Module], nn.Module]:
    """The models of an algorithm that defines them itself, with every party's share of all columns."""
    assert chosen.bottom is not None and chosen.top is not None
    task = data.labels.task
    sizes = {name: int(np.prod(own.shape)) for name, own in data.columns.items()}
    bottoms: dict[str, nn.Module] = {}
    with seeded(0):
        for name, own in data.columns.items():
            bottoms[name] = chosen.bottom(own.shape, sizes[name] / sum(sizes.values()), task, outputs)
            initialise(bottoms[name], seed_for(seed, name, "bottom"))
        return bottoms, chosen.top(len(sizes), task, outputs)


MOST_DENSE_VALUES = 500_000_000
"""Sparse columns are made dense, for models that need that, up to this many values (2 GB)."""


def _all_dense(data: FederatedData) -> FederatedData:
    if not any(own.sparse for own in data.columns.values()):
        return data
    for name, own in data.columns.items():
        values = (own.train.shape[0] + own.test.shape[0]) * int(np.prod(own.shape))
        if own.sparse and values > MOST_DENSE_VALUES:
            raise SettingsError(
                f"The sparse columns of {name} would have {values} values when made dense, as this algorithm needs "
                f"them; at most {MOST_DENSE_VALUES} are. Choose a linear algorithm, such as afsaga, or fewer columns."
            )
    return replace(data, columns={name: own.dense() for name, own in data.columns.items()})


def _dense(name: str, rows: csr_array) -> torch.Tensor:
    if rows.shape[0] * rows.shape[1] > MOST_DENSE_VALUES:
        raise DataError(f"The sparse rows of {name} are too many to be made dense at once: predict for fewer rows.")
    return torch.from_numpy(rows.toarray())


def _order(data: FederatedData) -> tuple[str, ...]:
    own = (data.label_party,) if data.label_party in data.columns else ()
    return (*data.feature_parties, *own)


def _bottom_for(name: str, data: FederatedData, bottom: Bottoms, outputs: int | None, seed: int) -> nn.Module:
    if isinstance(bottom, Mapping):
        for given in bottom:
            if given not in data.columns:
                raise unknown_name("party with columns", given, data.columns)
        bottom = bottom.get(name, BottomSettings())
    if isinstance(bottom, nn.Module):
        return deepcopy(bottom)
    with seeded(0):  # building a torch layer draws from the global generator, which is the user's
        module = build_bottom(bottom, data.columns[name].shape, outputs)
    initialise(module, seed_for(seed, name, "bottom"))
    return module


def _top_for(top: TopSettings | nn.Module, widths: list[int], outputs: int, seed: int) -> nn.Module:
    if isinstance(top, nn.Module):
        given = output_width(top, (sum(widths),))
        if given != outputs:
            raise SettingsError(f"The top model gives {given} outputs; this task needs {outputs}.")
        return deepcopy(top)
    with seeded(0):
        module = build_top(top, widths, outputs)
    initialise(module, seed_for(seed, "top"))
    return module


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
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    trace: bool = False,
    watch: Callable[[dict[str, Any]], None] | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 30.0,
    threads: int = 1,
    settings: dict[str, Any] | None = None,
) -> Outcome:
    """Train one model over the parties' columns, in virtual time.

    `algorithm` is a name or a settings object such as `Vafl(wait_for=2)`. With `out`, the run directory is written
    there and `resume` continues one that was stopped, to the same final models. `settings` is what the run directory
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
        parties = build_parties(data, algorithm, training, privacy, bottom, top, seed)
        world = _world(simulate, {data.label_party, *data.columns}, parties)
        saved = _open_directory(directory, settings, list(parties), resume, data)
        if saved is not None:
            trace = _continues_trace(trace, saved)
        recorder = Recorder(data.label_party, directory, watch)
        with _disk_errors(directory), closing(_ledger(directory, saved)) as ledger:
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
            up, down = recorder.bytes_up_and_down()
            summary = summarise(
                algorithm=name,
                runtime=Simulate.name,
                seed=seed,
                status="finished" if finished else "stopped",
                label_party=data.label_party,
                headline=headline(data.labels.task),
                counts={party: own.counts() for party, own in parties.items()},
                metrics=recorder.metrics,
                books=simulation.party_books(),
                traffic={party: _by_kind(sent.bytes) for party, sent in recorder.traffic.items()},
                evaluation_bytes=sum(sent.evaluation_bytes() for sent in recorder.traffic.values()),
                bytes_up=up,
                bytes_down=down,
                retransmitted_bytes=simulation.retransmitted_bytes,
                wall_seconds=recorder.wall_seconds(),
                virtual_seconds=simulation.now,
                privacy_events=ledger.summary(),
                data=_describe(data),
                settings=settings,
            )
            if directory is not None:
                write_atomically(directory / "summary.json", json.dumps(summary, indent=1).encode())
        models = {party: own.model() for party, own in parties.items()}
    return Outcome(summary, recorder.metrics, models, _order(data), data.label_party, directory, finished, privacy.clip)


def _by_kind(sizes: Mapping[type, int]) -> dict[str, int]:
    return {kind.__name__: size for kind, size in sizes.items()}


def _world(simulate: Simulate, everybody: set[str], parties: Mapping[str, Party]) -> Simulate:
    """The settings of those who take part: one who trains alone has no peers, slow or fast."""
    simulate.check_parties(everybody)
    present = {name: own for name, own in simulate.parties.items() if name in parties}
    return replace(simulate, parties=present, links=simulate.links if len(parties) > 1 else {})


def _continues_trace(trace: bool, saved: Mapping[str, State]) -> bool:
    """Whether a resumed run is traced: exactly if it was before, since half a trace cannot be replayed."""
    traced = bool(saved["simulate"].values["traces"])
    if trace and not traced:
        raise SettingsError("This run was started without --trace, and a trace must begin with the run: leave it out.")
    return traced


def _ledger(directory: Path | None, saved: Mapping[str, State] | None) -> Ledger:
    if directory is None:
        return Ledger()
    resume_at = saved["simulate"].values["ledger"]["position"] if saved else None
    return Ledger(directory / "ledger.jsonl", resume_at)


def _open_directory(
    directory: Path | None,
    settings: dict[str, Any],
    parties: list[str],
    resume: bool,
    data: FederatedData,
) -> dict[str, State] | None:
    """Make the run directory, or read the checkpoint of an existing one."""
    if directory is None:
        return None
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
        different = sorted(
            f"{section}.{name}"
            for section in {**before, **settings}
            for name in _differences(before.get(section, {}), settings.get(section, {}))
        )
        if different:
            raise SettingsError(
                f"The run in {directory} was started with other settings: {', '.join(different[:5])} differ. "
                f"Resume with {kept}, or start a new run in another directory."
            )
        changed = _differences(digests, _digests(data))
        if changed:
            raise DataError(
                f"The data have changed since the run in {directory} was started: {', '.join(sorted(changed))}. "
                "Resume with the data it was started with, or start a new run."
            )
        _, saved = read_latest(directory / "checkpoints", [*parties, "simulate"])
        return saved
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
        write_atomically(kept, write_toml(settings).encode())
        (directory / _DIGESTS).parent.mkdir()
        write_atomically(directory / _DIGESTS, json.dumps(_digests(data)).encode())
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise RunError(
            f"The run directory {directory} could not be written: {error.strerror}. Free some space, or choose "
            "another one with --out."
        ) from None
    return None


# Among the checkpoints, which are their owners' own: a digest of a few labels could be guessed.
_DIGESTS = "checkpoints/data.json"


def _digests(data: FederatedData) -> dict[str, str]:
    """What tells whether a resumed run sees the same data, and if not, whose have changed."""

    def digest(*parts: Columns) -> str:
        total = hashlib.sha256()
        for part in parts:
            if isinstance(part, torch.Tensor):
                total.update(part.numpy().data)
            else:
                total.update(repr(part.shape).encode())
                for array in (part.indptr, part.indices, part.data):
                    total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()

    columns = {f"columns of {name}": digest(own.train, own.test) for name, own in data.columns.items()}
    return {"rows or their order": data.row_digest, "labels": digest(data.labels.train, data.labels.test), **columns}


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
