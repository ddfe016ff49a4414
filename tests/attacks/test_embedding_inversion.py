"""Embedding inversion: by hand, where it must fail, and on digits with and without noise."""

import numpy as np
import pytest
from small_views import party_view

import colonnade
from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.attacks.embedding_inversion import LINEAR, Inversion, invert_embeddings, received_embeddings
from colonnade.attacks.view import PartyView
from colonnade.errors import SettingsError
from colonnade.messages import EmbeddingUpload, Message, PairUpload, PerturbedUpload
from colonnade.models.bottom import BottomSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.trials.attack import Trials, embedding_inversion, explained
from colonnade.trials.attacked import Federated

DRAWN = np.random.default_rng(0)
COLUMNS = DRAWN.normal(size=(200, 3))
ROWS = np.arange(200, dtype=np.uint32)
KNOWN = ROWS[:40]


def label_view(*uploads: Message, sender: str = "party1") -> PartyView:
    return party_view("label", [(sender, "label", upload) for upload in uploads])


def r2(view: PartyView, settings: Inversion = LINEAR) -> float:
    found = invert_embeddings(view, "party1", KNOWN, COLUMNS[KNOWN], settings)
    assert not set(found.rows.tolist()) & set(KNOWN.tolist())
    return explained(found.columns, COLUMNS[found.rows], COLUMNS[KNOWN].mean(0))


@pytest.mark.parametrize("inverse", ["ridge", "mlp"])
def test_a_linear_embedding_is_undone(inverse: str) -> None:
    embedding = (COLUMNS @ DRAWN.normal(size=(3, 6))).astype(np.float32)
    assert r2(label_view(EmbeddingUpload(0, ROWS, embedding)), Inversion(inverse)) > 0.9


def test_an_embedding_that_is_noise_gives_nothing_back() -> None:
    noise = DRAWN.normal(size=(200, 6)).astype(np.float32)
    assert r2(label_view(EmbeddingUpload(0, ROWS, noise))) < 0.05


def test_without_the_partys_messages_there_is_nothing_to_invert() -> None:
    upload = EmbeddingUpload(0, ROWS, COLUMNS.astype(np.float32))
    with pytest.raises(SettingsError, match="embeddings of 0 auxiliary rows"):
        r2(label_view(upload, sender="party2"))


def test_what_was_sent_is_read_whichever_way_it_came() -> None:
    one = np.array([[1.0, 3.0]], np.float32)
    row = np.array([5], np.uint32)
    for upload in (
        EmbeddingUpload(0, row, one),
        PairUpload(0, row, one + 1, one - 1),
        PerturbedUpload(0, row, one, np.stack([one + 1, one - 1])),
    ):
        rows, embeddings = received_embeddings(label_view(upload), "party1")
        assert rows.tolist() == [5] and embeddings.tolist() == [[1.0, 3.0]]


def test_the_last_embeddings_of_a_row_are_averaged() -> None:
    row = np.array([5], np.uint32)
    uploads = [EmbeddingUpload(n, row, np.array([[value]], np.float32)) for n, value in enumerate((100.0, 2.0, 4.0))]
    assert received_embeddings(label_view(*uploads), "party1", 1)[1].tolist() == [[4.0]]
    assert received_embeddings(label_view(*uploads), "party1", 2)[1].tolist() == [[3.0]]


def test_fresh_noise_averages_out() -> None:
    noised = [
        EmbeddingUpload(n, ROWS, (COLUMNS + DRAWN.normal(size=(200, 3)) * 2).astype(np.float32)) for n in range(20)
    ]
    view = label_view(*noised)
    assert r2(view, Inversion(last=1)) < 0.35 < 0.6 < r2(view, Inversion(last=20))


def test_explained_by_hand() -> None:
    truth = np.array([[0.0], [2.0]])
    assert explained(truth, truth, np.array([1.0])) == 1.0
    assert explained(np.array([[1.0], [1.0]]), truth, np.array([1.0])) == 0.0
    assert explained(np.array([[0.0], [1.0]]), truth, np.array([1.0])) == 0.5


def test_misspelt_and_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'ridge'"):
        Inversion("rigde")
    with pytest.raises(SettingsError, match="at least 1"):
        Inversion(last=0)


def test_on_digits_noise_and_narrow_embeddings_hide_columns() -> None:
    data = colonnade.dataset("digits", parties=2, max_rows=800)
    training = Training(epochs=5, batch_size=32, learning_rate=0.1, evaluate_every_epochs=0)

    def measured(width: int, noise: float) -> float:
        privacy = PerturbationSettings(noise=noise)
        federated = Federated(
            algorithms.find("vafl").settings(), training, BottomSettings(embedding=width), privacy=privacy
        )
        (line,) = embedding_inversion(data, federated, [0.2], Inversion(), Trials(1))
        return line.mean

    plain = measured(16, 0.0)
    assert plain > 0.4
    assert measured(2, 0.0) < plain - 0.1
    assert measured(16, 4.0) < plain - 0.2
