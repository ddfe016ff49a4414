"""A feature party's side of serving: it looks its rows up as they are now, and answers from its own model.

What is sent of a row is what a training sends of it: clipped and noised as then, and counted before it leaves.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.row import Family
from colonnade.algorithms.split_models.parts.budget import budget_mu
from colonnade.errors import DataError, ProtocolError, RunError
from colonnade.files import open_private
from colonnade.messages import Message
from colonnade.models.network import network_for
from colonnade.prediction.account import RowAccount
from colonnade.prediction.contributions import family_of, products_of
from colonnade.prediction.saved_model import SavedModel
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.serving.live_rows import Found, LiveRows
from colonnade.serving.messages import ServedEmbedding, ServedProduct, ServedStandIn, ServedVersions, ServingRequest
from colonnade.serving.versions import Versions

log = logging.getLogger("colonnade.serving")

_NOBODY: NDArray[np.uint32] = np.zeros(0, np.uint32)


class ServingFeatureParty:
    """Answers requests of the label party."""

    def __init__(
        self,
        name: str,
        label_party: str,
        versions: Versions,
        rows: LiveRows,
        ledger: Path,
        shadow: Versions | None = None,
    ) -> None:
        self.name = name
        self._label_party = label_party
        self._versions = versions
        self._shadow = shadow
        self._rows = rows
        self._ledger = ledger
        self._networks: dict[str, _Answering] = {}
        self.answered = 0
        version, model = next(reversed(versions.models.items()))
        self._answering(version, model).warm(rows.check(model))  # what is missing is told at the start

    def notice(self, peer: str, has_come: bool) -> Sequence[Message]:
        return self.told() if has_come else []

    def told(self) -> list[Message]:
        """Which versions it has, and what stands in for it where it has learnt that."""
        learnt = {version: model.stand_in() for version, model in self._versions.models.items()}
        known = [ServedStandIn(one, values.double().numpy()) for one, values in learnt.items() if values is not None]
        return [ServedVersions(" ".join(self._versions.models)), *known]

    def handle(self, sender: str, message: Message) -> Sequence[Message]:
        if sender != self._label_party or not isinstance(message, ServingRequest) or message.names.shape[1] != 2:
            raise ProtocolError(f"{sender} sent {type(message).__name__} to {self.name}, which is no request.")
        model = self._versions.models.get(message.version)
        if model is None and self._shadow is not None:
            model = self._shadow.models.get(message.version)
        if model is None:
            return [*self.told(), _nothing(message.number, self._versions.newest, self.name)]
        answering = self._answering(message.version, model)
        try:
            found = self._rows.find(message.names, model)
        except DataError as error:  # of its own table: for its owner to mend
            log.error("rows could not be looked up: %s", error)
            return [_nothing(message.number, model, self.name)]
        try:
            answer = answering.answer(message.number, found)
        except (OSError, RunError) as error:  # a full disk, an account that is gone: what is not counted does not leave
            log.error("what rows cost could not be written down, so they are not released: %s", error)
            return [_nothing(message.number, model, self.name)]
        self.answered += 1
        return [answer]

    def _answering(self, version: str, model: SavedModel) -> "_Answering":
        if version not in self._networks:
            self._networks[version] = _Answering(self.name, self._label_party, model, self._ledger)
        return self._networks[version]


class _Answering:
    """One version of the model, ready to answer."""

    def __init__(self, name: str, label_party: str, model: SavedModel, ledger: Path) -> None:
        self._name = name
        self._model = model
        self._is_linear = family_of(model.description) is Family.LINEAR
        self._network = None if self._is_linear else network_for(model.modules["bottom"])
        settings = PerturbationSettings(**model.description.privacy)
        secret = int.from_bytes(os.urandom(32), "little")  # new in every life: no noise is drawn twice
        gaussian = SecretGaussian(secret, name, "serving")
        self._noise = (
            LayerNoise(settings, generator_for(secret, name, "serving"), gaussian) if settings.active else None
        )
        self._count = _Counted(name, label_party, settings, ledger, model) if settings.noise > 0 else None

    def warm(self, found: Found) -> None:
        """Compute once what nobody asks for: whoever asks first would wait for all that is made at a first time."""
        if found.columns is not None and self._network is not None:
            self._network.embed(found.columns.new_zeros(1, *found.columns.shape[1:]))

    def answer(self, number: int, found: Found) -> Message:
        if not len(found.places) or found.columns is None:
            return _nothing(number, self._model, self._name)
        if self._network is None:
            return ServedProduct(number, found.places, products_of(self._model, found.columns))
        places, refused, columns = found.places, _NOBODY, found.columns
        if self._count is not None:
            affordable = self._count.spend(found.ids)
            places, refused = places[affordable], places[~affordable]
            columns = columns[torch.from_numpy(affordable)]
        if not len(places):
            return ServedEmbedding(number, places, refused, np.zeros((0, self._width), np.float32))
        return ServedEmbedding(number, places, refused, self._network.embed(columns, self._noise).numpy())

    @property
    def _width(self) -> int:
        return self._model.description.widths[self._name]


class _Counted:
    """Every noised release, written down before its value leaves; refused, where a row's budget is spent."""

    def __init__(
        self, name: str, label_party: str, settings: PerturbationSettings, ledger: Path, model: SavedModel
    ) -> None:
        self._settings = settings
        self._line = {
            "party": name,
            "mechanism": "gaussian",
            "sensitivity": settings.sensitivity if settings.clip else None,
            "noise": settings.noise,
            "protects": f"columns of {name}, served rows",
            "viewers": [label_party],
        }
        self._path = ledger
        mu = budget_mu(settings.columns_epsilon, settings.delta, settings.formula)
        self._limit = mu * mu * (1 + 1e-9)
        self._cost = (settings.sensitivity / settings.noise) ** 2
        self._account: RowAccount | None = None
        if settings.columns_epsilon > 0:
            assert model.folder is not None
            self._account = RowAccount(model.folder)
            if not self._account.exists:
                raise DataError(
                    f"The rows of {name} have a budget (privacy.columns_epsilon), and beside the model in "
                    f"{model.folder} there is no account of what its training has cost them: nothing may be released. "
                    "Put it back beside the model: every training with noise has left one."
                )

    def spend(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these rows may be released once more; they are counted."""
        affordable = np.ones(len(ids), np.bool_)
        if self._account is not None:
            affordable = self._account.afford(ids, self._cost, self._limit)
        rows = int(affordable.sum())
        if rows:
            handle = open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                os.write(handle, msgspec.json.encode({**self._line, "rows": rows}) + b"\n")
            finally:
                os.close(handle)
        return affordable


def _nothing(number: int, model: SavedModel, name: str) -> Message:
    """The answer of a party that holds none of the rows, or cannot say."""
    if family_of(model.description) is Family.LINEAR:
        return ServedProduct(number, _NOBODY, np.zeros((0, model.description.facts.outputs)))
    return ServedEmbedding(number, _NOBODY, _NOBODY, np.zeros((0, model.description.widths[name]), np.float32))
