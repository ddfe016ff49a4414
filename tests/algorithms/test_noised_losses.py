"""Losses that follow from noised slopes: how far an answer may move, what is spent for it; what an upload may be."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import colonnade
from colonnade import BottomSettings, Cascaded, PerturbationSettings, TopSettings, Training, Zoo
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.data import FederatedData, from_arrays
from colonnade.errors import ProtocolError, SettingsError
from colonnade.federation.building import build_parties
from colonnade.messages import EmbeddingUpload, LossReply, PairUpload, PerturbedUpload, RefreshedEmbedding, WarmUpUpload
from colonnade.party import Party, Received, Send, Spend

ROWS = 8


def town(flipped: int | None = None) -> FederatedData:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(ROWS, 4))
    y = np.arange(ROWS) % 2
    data = from_arrays(X, y, X_test=X[:1], y_test=y[:1], parties=2, task="binary", standardise=False)
    if flipped is not None:
        data.labels.train[flipped] = 1 - data.labels.train[flipped]
    return data


def label_party(algorithm: Any, flipped: int | None = None, **training: Any) -> Party:
    own = Training(epochs=9, batch_size=4, evaluate_every_epochs=0, **training)
    models = (BottomSettings("linear", embedding=2), TopSettings("concat-linear"))
    return build_parties(town(flipped), algorithm, own, PerturbationSettings(), *models, 0)["label"]


def upload(points: int, scale: float = 1.0, rows: tuple[int, ...] = (0, 1, 2, 3)) -> PerturbedUpload:
    drawn = np.random.default_rng(2).normal(size=(points + 1, len(rows), 2)).astype(np.float32) * np.float32(scale)
    return PerturbedUpload(0, np.array(rows, np.uint32), drawn[0], drawn[1:])


@pytest.mark.parametrize("kind", [Cascaded, Zoo])
@pytest.mark.parametrize("two_sided", [False, True])
def test_one_label_moves_an_answer_by_no_more_than_its_event_says(kind: Any, two_sided: bool) -> None:
    settings = kind(clip=0.5, noise=1e-7, directions=3, two_sided=two_sided, server_update="frozen")
    directions = settings.directions_used()
    slopes = []
    for flipped in (None, 1):
        sent = upload(directions.points, scale=20.0)  # far beyond the clip
        spend, answer = label_party(settings, flipped).handle(Received(0.0, "party1", sent))[:2]
        assert isinstance(spend, Spend)
        assert isinstance(answer, Send)
        assert isinstance(answer.message, LossReply)
        slopes.append(directions.slopes(answer.message.losses))
        assert answer.message.losses[0] == 0  # the loss itself is not told
    moved = float(np.linalg.norm(slopes[0] - slopes[1]))
    assert spend.event.sensitivity == pytest.approx(2 * 0.5 * 3**0.5 / 4)
    assert 0.3 * spend.event.sensitivity < moved <= spend.event.sensitivity * (1 + 1e-5)
    assert (spend.event.noise, spend.event.viewers) == (1e-7, ("party1",))


def test_slopes_survive_being_sent_as_losses() -> None:
    for two_sided in (False, True):
        directions = Directions("gaussian", 3, 0.01, two_sided)
        slopes = np.array([1.5, -2.0, 0.25])
        assert np.allclose(directions.slopes(directions.losses_with(slopes)), slopes)


def test_next_to_no_noise_and_a_wide_clip_are_the_papers_algorithm() -> None:
    results = []
    for noise in (0.0, 1e-9):
        result = colonnade.train(
            town(),
            Cascaded(noise=noise, clip=1e6, smoothing_radius=0.1, directions=1),
            training=Training(epochs=3, batch_size=4, learning_rate=0.05, evaluate_every_epochs=0),
            bottom=BottomSettings("linear", embedding=2),
            top=TopSettings("concat-linear"),
        )
        results.append([tensor.detach().numpy() for tensor in result.models["party1"]["bottom"].state_dict().values()])
    for plain, noised in zip(*results, strict=True):
        assert np.allclose(plain, noised, atol=1e-5)


@pytest.mark.parametrize(("algorithm", "update"), [(Cascaded(), "dp-sgd"), (Zoo(directions=2), "private-zo")])
def test_a_target_is_kept_and_its_ledger_says_so(algorithm: Any, update: str) -> None:
    result = colonnade.train(
        town(),
        replace(algorithm, server_update=update),
        training=Training(epochs=4, batch_size=4, evaluate_every_epochs=0),
        privacy=PerturbationSettings(labels_epsilon=3.0),
        bottom=BottomSettings("linear", embedding=2),
    )
    privacy = result.summary["privacy"]
    assert privacy["direction"] == "labels of label, training rows"
    assert 1.5 < privacy["sound"] <= 3.0 + 1e-6
    assert privacy["claimed"] is None  # its paper claims nothing


def test_a_private_update_without_noise_on_answers_is_refused() -> None:
    for settings in (Cascaded(server_update="frozen"), Zoo(server_update="private-zo")):
        with pytest.raises(SettingsError, match="protects nothing while answers leave without noise"):
            label_party(settings)
    with pytest.raises(SettingsError, match="server_update 'private-zo'"):
        Cascaded(server_update="private-zo")


# --- what any upload may be ---------------------------------------------------------------------------------------

VECTORS = np.zeros((4, 2), np.float32)
AGAIN = np.array([0, 1, 2, 1], np.uint32)
FOUR = np.arange(4, dtype=np.uint32)


def uploads(rows: Any, values: Any) -> dict[str, Any]:
    """By the algorithm whose label party takes it."""
    return {
        "vafl": EmbeddingUpload(0, rows, values),
        "fdml": EmbeddingUpload(0, rows, values[:, :1]),
        "cascaded": PerturbedUpload(0, rows, VECTORS, values[None]),
        "zoo": PerturbedUpload(0, rows, values, VECTORS[None]),
        "czofo": PerturbedUpload(0, rows, VECTORS, values[None]),
        "dpzv": PairUpload(0, rows, VECTORS, values),
    }


@pytest.mark.parametrize("name", uploads(FOUR, VECTORS))
def test_every_label_party_refuses_repeated_rows_and_large_numbers(name: str) -> None:
    settings = colonnade.algorithms.find(name).settings(**({"directions": 1} if name in ("cascaded", "zoo") else {}))
    models: Any = () if name == "fdml" else (BottomSettings("linear", embedding=2), TopSettings("concat-linear"))
    chosen = Training(epochs=9, batch_size=4, evaluate_every_epochs=0, embedding_bound=50)
    models = models or (BottomSettings(), TopSettings())
    label = build_parties(town(), settings, chosen, PerturbationSettings(), *models, 0)["label"]
    with pytest.raises(ProtocolError, match="party1 named a row twice"):
        label.handle(Received(0.0, "party1", uploads(AGAIN, VECTORS)[name]))
    for size in (51.0, -51.0):
        with pytest.raises(
            ProtocolError, match=r"party1 sent embeddings of magnitude .* at most 50 \(training.embedding_bound\)"
        ):
            label.handle(Received(0.0, "party1", uploads(FOUR, VECTORS + np.float32(size))[name]))
    assert label.handle(Received(0.0, "party1", uploads(FOUR, VECTORS + np.float32(49))[name]))


def test_so_are_warm_ups_and_refreshed_embeddings() -> None:
    label = label_party(colonnade.Vafl(max_delay=1), embedding_bound=50)
    for number in range(2):  # embeddings of party2 are older than one exchange after the first
        label.handle(Received(0.0, "party1", EmbeddingUpload(number, FOUR, VECTORS)))
    for message in (WarmUpUpload(AGAIN, VECTORS), RefreshedEmbedding(1, AGAIN, VECTORS)):
        with pytest.raises(ProtocolError, match="party2 named a row twice"):
            label.handle(Received(0.0, "party2", message))
    for message in (WarmUpUpload(FOUR, VECTORS + 51), RefreshedEmbedding(1, FOUR, VECTORS + 51)):
        with pytest.raises(ProtocolError, match=r"training.embedding_bound"):
            label.handle(Received(0.0, "party2", message))


def test_noise_that_was_agreed_on_is_no_partys_doing() -> None:
    own = Training(epochs=9, batch_size=4, evaluate_every_epochs=0, embedding_bound=50)
    privacy = PerturbationSettings(noise=100.0, clip=1.0)
    models = (BottomSettings("linear", embedding=2), TopSettings("concat-linear"))
    label = build_parties(town(), colonnade.Vafl(), own, privacy, *models, 0)["label"]
    label.handle(Received(0.0, "party1", EmbeddingUpload(0, FOUR, VECTORS + 900)))
    with pytest.raises(ProtocolError, match=r"training.embedding_bound"):
        label.handle(Received(0.0, "party2", EmbeddingUpload(0, FOUR, VECTORS + 20_000)))


@pytest.mark.parametrize("label_of_row", [0, 1])
def test_where_answers_are_noised_no_loss_decides_who_is_refused(label_of_row: int) -> None:
    """Numbers below the bound that make the loss of one label huge, and of the other none: either is answered."""
    one = Cascaded(noise=1.0, server_update="frozen", directions=1)
    for algorithm in (one, colonnade.Dpzv(noise=1.0, server_update="frozen")):
        label = label_party(algorithm)
        rows = np.flatnonzero(town().labels.train.numpy() == label_of_row)[:4].astype(np.uint32)
        far = VECTORS + np.float32(9e4)
        sent: Any = PerturbedUpload(0, rows, far, far[None])
        if isinstance(algorithm, colonnade.Dpzv):
            sent = PairUpload(0, rows, far, far)
        assert any(isinstance(effect, Send) for effect in label.handle(Received(0.0, "party1", sent)))
