"""A federation that attacks look at: a small one over a data set, or somebody's own; trained with everybody traced.

Of one's own, models, privacy, schedule and data are those of its file. It is trained without validation rows: what is
attacked is its last model, and nothing ends a training that an adversary takes part in.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from colonnade import algorithms
from colonnade.algorithms.parts.randomness import seed_for
from colonnade.algorithms.row import Algorithm, Conversation
from colonnade.algorithms.training import Training
from colonnade.attacks.curious_party import CuriousSeat
from colonnade.costs.noise import calibrated, check_privacy
from colonnade.data import load
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.building import build_parties, facts_of
from colonnade.federation.file import read_federation
from colonnade.federation.plan import Bottoms, Plan, check_plan, decided_training
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation
from colonnade.threads import computing_with


@dataclass(frozen=True)
class Federated:
    """The federation that is attacked."""

    algorithm: Any  # settings of an algorithm
    training: Training
    bottom: Bottoms = field(default_factory=BottomSettings)
    top: TopSettings = field(default_factory=TopSettings)
    privacy: PerturbationSettings = field(default_factory=PerturbationSettings)
    simulate: Simulate = field(default_factory=Simulate)
    is_own: bool = False  # somebody's own: no model or setting of it is changed to suit an adversary
    party: str = ""  # the feature party that is attacked, or that attacks; "": one that suits the attack

    @property
    def name(self) -> str:
        return algorithms.name_of(self.algorithm)

    @property
    def conversation(self) -> Conversation:
        conversation = algorithms.find(self.name).conversation
        assert conversation is not None, f"{self.name} sends nothing, so there is nothing to attack"
        return conversation

    def feature_party(self, data: FederatedData) -> str:
        """Who attacks, or is attacked, where any feature party may."""
        return self.party or data.feature_parties[0]

    def plan(self, data: FederatedData, seed: int) -> Plan:
        """What its parties share."""
        decided = decided_training(
            self.training, self.algorithm, data.rows, len(data.feature_parties), self.privacy.labels_epsilon
        )
        return Plan(self.algorithm, decided, self.privacy, self.bottom, self.top, seed)


def own_federation(path: Path, changes: Sequence[str], party: str) -> tuple[FederatedData, Federated]:
    """The data and the federation of a federation.toml, with the noise that its targets ask for."""
    settings = read_federation(path, changes)
    settings = replace(settings, data=replace(settings.data, validation=0.0))
    if settings.start.model:
        raise SettingsError(
            f"{path} begins with a trained model (start.model), and attacks and audits train anew: leave it out with "
            "--set start.model="
        )
    data = load(settings.data, settings.party_data(), settings.label_party, path.parent)
    if party and party not in data.feature_parties:
        raise unknown_name("feature party", party, data.feature_parties)
    training = replace(settings.training, keep="last", early_stopping=0)
    plan = replace(settings, training=training).plan(data)
    if plan.is_alone:
        raise SettingsError(
            f"{plan.chosen.name!r} sends no message, so there is nothing to attack: choose another algorithm with "
            "--set algorithm.name=…"
        )
    check_plan(plan, data.rows, (data.label_party, *data.feature_parties), data.columns, data.validation_rows)
    check_privacy(plan)
    plan = calibrated(plan, facts_of(data, plan))
    # Evaluations tell an adversary nothing of training rows; one that uploads what it likes may well look diverged.
    decided = replace(plan.training, evaluate_every_epochs=0.0, end_when_diverged=False, heal=False)
    federated = Federated(plan.algorithm, decided, plan.bottom, settings.top, plan.privacy, settings.simulate, True)
    return data, replace(federated, party=party)


def check_attackable(name: str, fits: Callable[[Algorithm], bool], reads: str, has: str) -> None:
    """Refuse an algorithm of which an attack could read nothing. What it `reads`; what the algorithm `has` instead."""
    if not fits(algorithms.find(name)):
        known = ", ".join(row.name for row in algorithms.which(fits))
        raise SettingsError(f"{reads}, and {name!r} {has}. Choose one of: {known}.")


# --- running a federation that somebody looks at ----------------------------------------------------------------


@dataclass(frozen=True)
class TracedRun:
    """A finished training and the folder with its parties' traces, which is gone afterwards."""

    folder: Path
    models: dict[str, dict[str, nn.Module]]
    accuracy: float  # of the joint model on test rows; NaN without any

    def traces(self) -> list[Path]:
        return sorted((self.folder / "trace").glob("*.trace"))

    def trace(self, party: str) -> Path:
        return self.folder / "trace" / f"{party}.trace"


@contextmanager
def trained(
    data: FederatedData, federated: Federated, seed: int, adversaries: Mapping[str, Party] | None = None
) -> Iterator[TracedRun]:
    """Train with every party traced; `adversaries` take the places of the feature parties so named."""
    with computing_with(1), tempfile.TemporaryDirectory(prefix="colonnade-attack-") as name:
        folder = Path(name)
        parties = {**build_untrained(data, federated, seed), **(adversaries or {})}
        recorder = Recorder(data.label_party, folder)
        simulation = Simulation(
            parties,
            federated.simulate,
            seed,
            recorder,
            Ledger(),
            directory=folder,
            trace=True,
            checkpoint_seconds=math.inf,
        )
        try:
            simulation.run()
        finally:
            simulation.close()
            recorder.close()
        scored = [line["metric"] for line in recorder.metrics if line["metric"]]
        accuracy = scored[-1].get("accuracy", math.nan) if scored else math.nan
        yield TracedRun(folder, {party: own.model() for party, own in parties.items()}, accuracy)


def build_untrained(data: FederatedData, federated: Federated, seed: int) -> dict[str, Party]:
    """Its parties before the training."""
    chosen = (federated.algorithm, federated.training, federated.privacy, federated.bottom, federated.top)
    return build_parties(data, *chosen, seed)


def curious_seat(data: FederatedData, federated: Federated, party: str, seed: int) -> CuriousSeat:
    """What a party knows that takes this one's place."""
    conversation, plan = federated.conversation, federated.plan(data, seed)
    return CuriousSeat(
        label_party=data.label_party,
        rows=data.rows,
        width=facts_of(data, plan).widths[party],
        batch_size=plan.training.batch_size,
        upload=conversation.upload,
        chooses_rows=conversation.asynchronous,
        points=conversation.points(federated.algorithm) - 1,
        radius=conversation.radius(federated.algorithm),
        seed=seed_for(seed, party, "crafted"),
    )
