"""A run played again from its traces, in one process: every effect must be the recorded one, every model the saved one.

Parties are built as they were when the run began, from its federation.toml and the data it names; a party of a network
run from its own file too, and from the secrets in its own run directory. Nothing is written.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from colonnade.costs.noise import calibrated
from colonnade.data import load
from colonnade.errors import RunError, SettingsError
from colonnade.federation.building import build_parties, facts_of
from colonnade.federation.file import read_federation
from colonnade.federation.party_file import PartyFile
from colonnade.launch.finished_run import federation_of, settings_of
from colonnade.launch.join import rebuilt
from colonnade.party import Party
from colonnade.runtimes.checkpoint import numbers_of, read_checkpoint
from colonnade.runtimes.replay import replay
from colonnade.threads import compute_with


@dataclass(frozen=True)
class Replayed:
    """One party's trace, played again."""

    party: str
    events: int
    is_compared: bool  # whether its last checkpoint is of the trace's end: then it holds the same model


def replay_run(
    directory: Path, party_file: PartyFile | None = None, party_timeout_seconds: float | None = None, threads: int = 1
) -> Iterator[Replayed]:
    """Play every trace of a run again, or with `party_file` that of one party of a network run.

    RunError if anything differs.

    `party_timeout_seconds` and `threads`: what was given for --party-timeout and --threads. The order of additions is
    part of the result.
    """
    kept = settings_of(directory)
    if not (directory / "trace").is_dir():
        raise SettingsError(f"{directory} has no traces. A run records them when it is started with --trace.")
    compute_with(threads)
    build: Callable[[], Mapping[str, Party]] = partial(parties_of, directory)
    if party_file is not None:
        build = partial(rebuilt, read_federation(kept), party_file, directory, party_timeout_seconds)
    played, restored = build(), build()
    for name, party in played.items():
        trace = directory / "trace" / f"{name}.trace"
        if not trace.exists():
            raise SettingsError(f"There is no {trace}. A run records every party's trace when it is given --trace.")
        events = replay(party, trace)
        is_compared = _restore_from_the_end(restored[name], directory, name, trace)
        if is_compared and not _same_models(party, restored[name]):
            raise RunError(
                f"The trace of {name} gives the recorded effects, but not the model of its last checkpoint: its "
                "algorithm is not deterministic, or one of the two files was changed."
            )
        yield Replayed(name, events, is_compared)


def parties_of(run: Path) -> Mapping[str, Party]:
    """The parties of a run whose data lie in one place, as they were when it began."""
    from_python = "A run that was started from Python is replayed from there, with colonnade.runtimes.replay."
    federation = federation_of(run, "how to build this run again", from_python)
    data = load(federation.data, federation.party_data(), federation.label_party, run)
    plan = federation.plan(data)
    plan = calibrated(plan, facts_of(data, plan))
    return build_parties(data, plan.algorithm, plan.training, plan.privacy, plan.bottom, plan.top, plan.seed)


def _restore_from_the_end(party: Party, directory: Path, name: str, trace: Path) -> bool:
    """Give a party its last checkpoint, if that is of the very end of its trace: after a crash it is older."""
    folder = directory / "checkpoints"
    number = max(numbers_of(folder, name), default=0)
    saved = read_checkpoint(folder, name, number)
    if saved is None:
        return False
    if "station" in saved.values:  # of a runtime in real time
        position, state = saved.values["station"]["trace"], saved.part("party")
    else:
        everybody = read_checkpoint(folder, "simulate", number)
        position, state = everybody.values["traces"].get(name) if everybody else None, saved
    if position != trace.stat().st_size:
        return False
    party.restore(state)
    return True


def _same_models(one: Party, other: Party) -> bool:
    weights, expected = (
        {
            f"{part}.{name}": tensor
            for part, module in party.model().items()
            for name, tensor in module.state_dict().items()
        }
        for party in (one, other)
    )
    return weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in weights)
