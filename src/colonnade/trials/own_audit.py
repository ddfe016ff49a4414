"""An audit of somebody's own federation: its noise, clips, models, batches, rows and epochs, its rows being canaries.

What its file says of schedules (`wait_for`, `in_flight`, …), of rates and of penalties is left out: none of it changes
what noise hides of one release, and the adversary plays the other party's part without delay. Labels are audited
against all feature parties together, which is what their target is about: each asks for every row in every epoch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from colonnade import algorithms
from colonnade.algorithms.split_models.parts.asynchronous import Asynchronous
from colonnade.costs.noise import bottom_update_of
from colonnade.errors import SettingsError, unknown_name
from colonnade.models.bottom import BottomSettings
from colonnade.privacy.accounting import columns_hidden_state
from colonnade.privacy.gaussian import epsilon_of
from colonnade.trials.attacked import Federated, own_federation
from colonnade.trials.audit import AUDITED, GIVEN, Audit, OwnSettings

_MOST_EPSILON = 1e3


def own_audit(path: Path, changes: Sequence[str], party: str, seed: int) -> tuple[Audit, OwnSettings]:
    """What to audit of a federation.toml."""
    data, federated = own_federation(path, changes, party)
    if federated.name not in AUDITED:
        raise unknown_name("algorithm with an audit", federated.name, AUDITED)
    training = federated.training
    batch_size = int(training.batch_size)
    asked = Audit(federated.name, seed=seed, rows=data.rows, batch_size=batch_size, epochs=1)
    own = _mechanism(federated, data.columns[federated.feature_party(data)].shape, data)
    noise, clip = _noise_of(path, own, asked.of_labels)
    # Begun epochs count: some rows are used in them.
    epochs = max(1, math.ceil(training.epochs - 1e-9))
    if asked.of_labels:
        epochs *= len(data.feature_parties)
    target = own.privacy.labels_epsilon if asked.of_labels else own.privacy.columns_epsilon
    each = 2 * clip / (noise * batch_size) if asked.of_labels else 2 * clip / noise
    meant = target or min(_MOST_EPSILON, epsilon_of(each * epochs**0.5, own.privacy.delta))
    update = own.algorithm.server_update if asked.of_labels else asked.server_update
    audit = replace(
        asked,
        epsilon=meant,
        delta=own.privacy.delta,
        formula=GIVEN,
        noise=noise,
        clip=clip,
        epochs=epochs,
        server_update=update,
    )
    return audit, own


def _mechanism(federated: Federated, shape: tuple[int, ...], data: Any) -> OwnSettings:
    bottom = federated.bottom
    if isinstance(bottom, Mapping):
        bottom = bottom.get(federated.feature_party(data), BottomSettings())
    assert isinstance(bottom, BottomSettings)
    plain = algorithms.find(federated.name).settings()
    schedule = {one.name: getattr(plain, one.name) for one in fields(Asynchronous) if hasattr(plain, one.name)}
    party = federated.feature_party(data)
    hidden = columns_hidden_state(party, bottom_update_of(federated.plan(data, seed=0))) is not None
    algorithm = replace(federated.algorithm, **schedule)
    return OwnSettings(algorithm, federated.privacy, bottom, federated.top, shape, hidden)


def _noise_of(path: Path, own: OwnSettings, of_labels: bool) -> tuple[float, float]:
    """The noise on what is sent, and the clip that it rests on, in the same units."""
    if not of_labels:
        noise, clip = own.privacy.noise, own.privacy.clip
        if noise > 0 and clip > 0:
            return noise, clip
        raise SettingsError(
            f"{path} has no clipped noise on embeddings, so there is nothing that an audit could refute: give "
            "privacy.columns_epsilon and privacy.clip, or measure colonnade attack."
        )
    if own.algorithm.noise > 0 and own.algorithm.clip_bound > 0:
        if own.algorithm.directions > 1:
            raise SettingsError(
                f"Answers with algorithm.directions = {own.algorithm.directions} are not audited; one with a single "
                "direction is, by --set algorithm.directions=1, which has noise of its own."
            )
        return float(own.algorithm.noise), float(own.algorithm.clip_bound)
    raise SettingsError(
        f"{path} has no noise on what its label party answers, so there is nothing that an audit could refute: give "
        "privacy.labels_epsilon, or measure colonnade attack."
    )
