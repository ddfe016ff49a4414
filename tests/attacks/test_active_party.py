"""A party that chooses its uploads: what it reads out of mean losses, what is refused, and what noise leaves."""

from dataclasses import replace

import numpy as np
import pytest

from colonnade.algorithms import find
from colonnade.algorithms.training import DecidedTraining
from colonnade.attacks.active_party import ActiveParty, Packed, Probing, read_packed
from colonnade.attacks.curious_party import CuriousSeat
from colonnade.attacks.view import read_party_view
from colonnade.data import FederatedData, from_arrays
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import EmbeddingUpload, PerturbedUpload
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.trials.active_attack import BOUNDED, MOVED, REPEATED, UNBOUNDED, active_label_inference
from colonnade.trials.attack import Trials, share_found
from colonnade.trials.attacked import Federated, curious_seat, trained

ONE = Trials(1)


def town(classes: int = 4, rows: int = 64) -> FederatedData:
    """Labels that no column tells anything of: whatever is found was told by the answers."""
    generator = np.random.default_rng(3)
    X = generator.normal(size=(rows, 4))
    y = generator.permutation(np.arange(rows) % classes)
    task = "multiclass" if classes > 2 else "binary"
    return from_arrays(X, y, parties=2, task=task, standardise=False)


def federation(name: str = "cascaded", epochs: float = 6.0, bound: float = 1e5) -> Federated:
    training = DecidedTraining(
        epochs,
        batch_size=16,
        learning_rate=0.01,
        evaluate_every_epochs=0,
        embedding_bound=bound,
        end_when_diverged=False,
    )
    return Federated(find(name).settings(), training)


@pytest.mark.parametrize("name", ["cascaded", "zoo", "zoo-sync"])
@pytest.mark.parametrize("classes", [2, 4])
def test_mean_losses_of_a_summing_label_party_tell_every_label_also_within_the_bound(name: str, classes: int) -> None:
    (line,) = active_label_inference(town(classes), federation(name), ONE, adversaries=[BOUNDED])
    assert line.values == (1.0,)
    assert line.conditions["refused"] == "no"


@pytest.mark.parametrize("name", ["cascaded", "zoo", "zoo-sync"])
def test_embeddings_of_2_to_the_40_are_refused(name: str) -> None:
    (line,) = active_label_inference(town(), federation(name, 2), ONE, adversaries=[UNBOUNDED])
    assert (line.values, line.conditions["refused"]) == ((0.0,), "yes")


def test_without_a_bound_they_tell_the_labels_of_whole_batches() -> None:
    (line,) = active_label_inference(town(), federation(epochs=2, bound=0), ONE, adversaries=[UNBOUNDED])
    assert line.values == (1.0,)
    assert line.conditions["labels an exchange"] == 8.0  # 64 rows, four batches, two epochs


@pytest.mark.parametrize("name", ["cascaded", "zoo", "dpzv"])
def test_a_row_named_again_and_again_is_refused(name: str) -> None:
    (line,) = active_label_inference(town(), federation(name), ONE, adversaries=[REPEATED])
    assert (line.values, line.conditions["refused"]) == ((0.0,), "yes")


def test_one_row_moved_tells_its_label_whatever_the_top_model() -> None:
    (line,) = active_label_inference(town(), federation(epochs=24), ONE, adversaries=[MOVED])
    assert line.mean > 0.7  # chance is 0.25


@pytest.mark.parametrize(("name", "update"), [("cascaded", "dp-sgd"), ("zoo", "private-zo")])
def test_noised_answers_tell_next_to_nothing(name: str, update: str) -> None:
    federated = federation(name)
    noised = replace(
        federated,
        algorithm=replace(federated.algorithm, server_update=update, clip=1.0),
        privacy=PerturbationSettings(labels_epsilon=1.0),
    )
    lines = active_label_inference(town(), noised, ONE, adversaries=[BOUNDED, MOVED])
    assert all(line.mean < 0.45 for line in lines)  # chance is 0.25; of 64 rows that is more than three deviations
    assert all(line.conditions["answer noise"] > 0 for line in lines)


def test_a_party_goes_on_from_its_state() -> None:
    data, federated = town(), federation(epochs=2)
    federated = replace(federated, bottom=BottomSettings(kind="linear"), top=TopSettings(kind="sum"))
    way = Packed(4, 1e4)
    seat = curious_seat(data, federated, data.feature_parties[0], 0)
    first, second = ActiveParty(seat, way), ActiveParty(seat, way)
    first._read[:] = True
    first._uploads = 7
    second.restore(first.state())
    assert second._read.all()
    assert second._uploads == 7
    with trained(data, federated, 0, {data.feature_parties[0]: first}) as run:
        view = read_party_view(run.trace(data.feature_parties[0]))
    truth = data.labels.train.numpy()
    assert share_found(read_packed(view, way), truth) > 0.5


def test_what_it_cannot_do_is_said() -> None:
    seat = CuriousSeat("label", 8, 2, 4, PerturbedUpload, chooses_rows=False)
    with pytest.raises(SettingsError, match="here gradients come back"):
        ActiveParty(replace(seat, upload=EmbeddingUpload), Packed(2))
    with pytest.raises(SettingsError, match="only where a party chooses its rows"):
        ActiveParty(seat, Probing((0,), repeats=True))
    with pytest.raises(SettingsError, match="'vafl' answers with something else"):
        active_label_inference(town(), federation("vafl"), ONE)


def test_the_smallest_magnitude_is_above_the_rounding_of_the_largest() -> None:
    magnitudes = Packed(10, 1e4).magnitudes()
    assert 9 * magnitudes[-1] <= 1e4
    assert magnitudes[0] > 16 * np.spacing(np.float32(1e4))
    assert np.allclose(magnitudes[1:] / magnitudes[:-1], 10)


def test_the_refusal_names_the_party_and_the_setting() -> None:
    data, federated = town(), federation()
    federated = replace(federated, bottom=BottomSettings(kind="linear"), top=TopSettings(kind="sum"))
    party = data.feature_parties[0]
    with (
        pytest.raises(
            ProtocolError, match=rf"{party} sent embeddings of magnitude .* at most 1e\+05 \(training.embedding_bound\)"
        ),
        trained(data, federated, 0, {party: ActiveParty(curious_seat(data, federated, party, 0), Packed(4))}),
    ):
        pass
