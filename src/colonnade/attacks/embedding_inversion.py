"""Embedding inversion: the label party regresses a feature party's columns on the embeddings that it was sent.

It is granted auxiliary rows: individuals whose columns it knows from elsewhere. It learns the way back from those and
applies it to everybody else. Noise that is drawn afresh for each upload averages out over uploads, so it may take the
mean of a row's last embeddings.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.attacks.view import PartyView
from colonnade.errors import SettingsError, unknown_name
from colonnade.messages import EmbeddingUpload, PairUpload, PerturbedUpload, RefreshedEmbedding, WarmUpUpload

INVERSES = ("ridge", "mlp")


@dataclass(frozen=True)
class Inversion:
    """How the way back is learnt."""

    inverse: str = "ridge"  # ridge (linear, its penalty by cross-validation) | mlp (one hidden layer)
    last: int = 1  # how many of a row's last embeddings are averaged
    hidden: int = 64  # units of the mlp

    def __post_init__(self) -> None:
        if self.inverse not in INVERSES:
            raise unknown_name("inverse", self.inverse, INVERSES)
        if self.last < 1 or self.hidden < 1:
            raise SettingsError("An inversion averages at least 1 embedding and has at least 1 hidden unit.")


LINEAR = Inversion()


@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction:
    """The columns that the attack gives each row it was sent an embedding of, but not the auxiliary ones."""

    rows: NDArray[np.uint32]
    columns: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"Reconstruction({self.rows.size} rows of {self.columns.shape[1]} columns)"


def invert_embeddings(
    view: PartyView,
    party: str,
    known_rows: NDArray[np.uint32],
    known_columns: NDArray[np.float64],
    settings: Inversion = LINEAR,
    seed: int = 0,
) -> Reconstruction:
    """The columns of `party`, from what the owner of the view received from it and the auxiliary rows' columns."""
    rows, embeddings = received_embeddings(view, party, settings.last)
    place = {int(row): at for at, row in enumerate(rows)}
    usable = [at for at, row in enumerate(known_rows) if int(row) in place]
    if len(usable) < 2:
        raise SettingsError(
            f"{view.party!r} was sent embeddings of {len(usable)} auxiliary rows by {party!r}; two are the least to "
            "learn from. Grant it more auxiliary rows, or look at a longer training."
        )
    at = [place[int(known_rows[one])] for one in usable]
    others = np.setdiff1d(np.arange(rows.size), at)
    # Of all that was received: a unit that is silent in the few auxiliary rows would get a scale of nothing from them.
    mean, deviation = embeddings.mean(0), embeddings.std(0)
    inputs = (embeddings - mean) / np.where(deviation > 1e-6, deviation, 1.0)
    back = _regression(settings, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an mlp that might still improve is an attack all the same
        back.fit(inputs[at], known_columns[usable])
    return Reconstruction(rows[others], np.asarray(back.predict(inputs[others])).reshape(others.size, -1))


def received_embeddings(view: PartyView, party: str, last: int = 1) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    """Every training row that `party` sent, and the mean of its last embeddings."""
    kept: dict[int, list[NDArray[np.float64]]] = {}
    for sender, receiver, message in view.crossings():
        if sender != party or receiver != view.party:
            continue
        match message:
            case EmbeddingUpload() | WarmUpUpload() | RefreshedEmbedding():
                embeddings: Sequence[NDArray[np.float32]] = [message.embedding]
            case PerturbedUpload():  # all of them are near w, each with noise of its own
                embeddings = [message.embedding, *message.perturbed]
            case PairUpload():
                sides = np.concatenate([message.plus, message.minus])
                embeddings = [*sides.reshape(-1, message.rows.size, sides.shape[1])]
            case _:
                continue
        for row, vector in zip(message.rows.tolist(), np.stack(embeddings).mean(0, np.float64), strict=True):
            history = kept.setdefault(row, [])
            history.append(vector)
            del history[:-last]
    rows = sorted(kept)
    if not rows:
        return np.zeros(0, np.uint32), np.zeros((0, 0))
    return np.array(rows, np.uint32), np.stack([np.mean(kept[row], 0) for row in rows])


def _regression(settings: Inversion, seed: int) -> Any:
    """scikit-learn, imported only where it is used."""
    if settings.inverse == "ridge":
        from sklearn.linear_model import RidgeCV

        return RidgeCV(alphas=np.logspace(-2, 4, 13))
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(hidden_layer_sizes=(settings.hidden,), alpha=0.01, max_iter=400, random_state=seed)
