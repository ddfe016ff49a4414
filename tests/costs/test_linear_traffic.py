"""What linear federations are going to send, foreseen, against what they do send."""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from papers_form import papers_form

import colonnade
from colonnade import algorithms
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear
from colonnade.algorithms.training import DecidedTraining
from colonnade.costs.estimate import price
from colonnade.costs.traffic import Requests, expected_traffic, planned_requests
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError
from colonnade.federation.building import facts_of
from colonnade.federation.plan import Facts, Plan

LINEAR = [name for name, algorithm in algorithms.ALGORITHMS.items() if algorithm.linear_party is not None]
TRAINING = DecidedTraining(epochs=4, batch_size=15, l2=0.01)
COUNTED = ("bytes_up", "bytes_down", "evaluation_bytes")


@cache
def flowers(parties: int = 3, own: bool = False) -> FederatedData:
    return colonnade.dataset("iris", parties=parties, label_party_columns=own)


def planned(data: FederatedData, settings: Any, training: DecidedTraining = TRAINING) -> tuple[Plan, Facts]:
    models = (colonnade.PerturbationSettings(), colonnade.BottomSettings(), colonnade.TopSettings())
    plan = Plan(settings, training, *models, seed=0)
    return plan, facts_of(data, plan)


def told_and_sent(
    data: FederatedData, settings: Any, training: DecidedTraining = TRAINING
) -> tuple[dict[str, Any], dict[str, Any]]:
    told = price(*planned(data, settings, training)).as_values()
    return told, colonnade.train(data, settings, training=training).summary


def check(told: dict[str, Any], sent: dict[str, Any], parties: int, tolerance: float) -> None:
    """Bytes within the tolerance; frames within one request of every party, which passes through every party."""
    assert told["exchanges"] == pytest.approx(sent["exchanges"], abs=parties)
    for key in COUNTED:
        assert told[key] == pytest.approx(sent[key], rel=tolerance), key
    frames = {kind: one["frames"] for kind, one in told["messages"].items()}
    assert frames.keys() == sent["frames_by_message"].keys()
    for kind, count in sent["frames_by_message"].items():
        assert frames[kind] == pytest.approx(count, abs=parties * parties if tolerance > 0.01 else 0), kind


@pytest.mark.parametrize("labels", ["one", "everywhere"])
@pytest.mark.parametrize("sums", ["plain", "pairwise", "two-tree"])
@pytest.mark.parametrize("name", LINEAR)
def test_bytes_are_what_a_run_sends(name: str, sums: str, labels: str) -> None:
    settings = papers_form(name, sums=sums, labels=labels)
    # In step everything is known before, but how long a number is; at its own pace, who asked last is not.
    tolerance = 0.03 if isinstance(settings, AsynchronousLinear) else 0.01
    check(*told_and_sent(flowers(), settings), parties=4, tolerance=tolerance)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("afsgd", {"labels": "everywhere", "batches_per_request": 3, "search_every_epochs": 0.0}),
        ("afsvrg", {"sums": "two-tree", "in_flight": 1}),
        ("afsaga", {"sums": "pairwise", "tolerance": 1e-9, "in_flight": 3, "search_every_epochs": 0.25}),
        ("asysqn-saga", {"search_every_epochs": 0.0}),
    ],
)
def test_one_sum_for_everybody(name: str, settings: Any) -> None:
    """Exact but for the sums that are under way when the training ends, which may be of a full pass.

    More frequent searches take longer here than the eight mini-batches of an epoch, and are made less often then.
    """
    training = replace(TRAINING, epochs=12.0)
    told, sent = told_and_sent(flowers(3, own=True), papers_form(name, updates="everybody", **settings), training)
    check(told, sent, parties=4, tolerance=0.08)


def test_joint_searches_where_one_sum_teaches_everybody() -> None:
    """Each begins once the sums under way have taught: two lessons later than is foreseen, and so does the end."""
    settings = papers_form("asysqn-saga", updates="everybody", search_every_epochs=2.0)
    told, sent = told_and_sent(flowers(3, own=True), settings, replace(TRAINING, epochs=12.0))
    assert told["exchanges"] == pytest.approx(sent["exchanges"], abs=2 * 4)
    for kind in ("SearchRequest", "SearchStep", "SearchReply", "SearchStop"):
        assert told["messages"][kind]["frames"] == sent["frames_by_message"][kind] == 3 * 3
    assert told["messages"]["SearchStep"]["bytes"] == pytest.approx(sent["bytes_by_message"]["SearchStep"], rel=0.01)


@pytest.mark.parametrize(
    ("name", "settings", "training"),
    [
        ("afsgd", {"batches_per_request": 3}, {}),
        ("afsgd", {"tolerance": 1e-9}, {"evaluate_every_epochs": 0.0}),
        ("afsvrg", {"batches_per_request": 2, "snapshot_every_epochs": 0.5}, {"evaluate_every_epochs": 0.5}),
        ("afsaga", {"tolerance": 1e-9, "arity": 1}, {"epochs": 6.0}),
        ("fsgd", {"tolerance": 1e-9}, {"epochs": 2.4, "evaluate_every_epochs": 0.3}),
        ("fsvrg", {"snapshot_every_epochs": 0.0, "arity": 3}, {}),
        ("fsaga", {"search_every_epochs": 0.5, "arity": 1}, {"epochs": 6.0}),
        ("fsvrg", {}, {"epochs": 12.0}),
        ("afsvrg", {"search_every_epochs": 1.0, "sums": "pairwise"}, {"epochs": 6.0}),
        ("fcg", {}, {"epochs": 2.5}),
    ],
)
def test_settings_that_change_what_is_asked_for(name: str, settings: Any, training: Any) -> None:
    chosen_settings = papers_form(name, **settings)
    tolerance = 0.06 if isinstance(chosen_settings, AsynchronousLinear) else 0.01
    told, sent = told_and_sent(flowers(), chosen_settings, replace(TRAINING, **training))
    check(told, sent, parties=4, tolerance=tolerance)


@pytest.mark.parametrize("name", ["afsgd", "afsaga", "fsaga", "fcg"])
def test_a_label_party_with_columns_is_a_worker_too(name: str) -> None:
    """It works faster than those who must ask it, who then ask less often than is foreseen."""
    told, sent = told_and_sent(flowers(3, own=True), papers_form(name))
    assert told["exchanges"] == sent["exchanges"]
    told_bytes = {kind: one["bytes"] for kind, one in told["messages"].items()}
    assert told_bytes.keys() == sent["bytes_by_message"].keys()
    for kind, size in sent["bytes_by_message"].items():
        if kind in ("ResidualRequest", "ResidualReply"):
            assert size < told_bytes[kind] < 2 * size
        else:
            assert told_bytes[kind] == pytest.approx(size, rel=0.03), kind


def test_requests_by_hand() -> None:
    """112 rows, of which 3 parties want 10 in turn: 12 mini-batches per epoch, the last of 2 rows."""
    data, training = flowers(), DecidedTraining(epochs=2, batch_size=10, evaluate_every_epochs=1)
    assert data.rows == 112
    schedule = planned_requests(*planned(data, papers_form("afsgd"), training))
    epoch = (Requests(33, 10, full_pass=False), Requests(3, 2, full_pass=False))
    assert schedule.requests == epoch + epoch
    assert (schedule.exchanges, schedule.evaluations) == (72, 2)
    # The full pass of SAGA counts as an epoch; the mini-batches after it are drawn afresh, none is short.
    schedule = planned_requests(*planned(data, papers_form("afsaga"), training))
    assert schedule.requests == (Requests(3, 112, full_pass=True), Requests(36, 10, full_pass=False))
    assert schedule.exchanges == 39
    # In step one request is everybody's, and as many exchanges as there are workers.
    schedule = planned_requests(*planned(data, papers_form("fsaga"), training))
    assert schedule.requests == (Requests(1, 112, full_pass=True), Requests(12, 10, full_pass=False))
    assert schedule.exchanges == 39


def test_who_sends_to_whom() -> None:
    """One request of the first of three roots, along a chain: down and up again, through everybody."""
    data = flowers()
    training = DecidedTraining(epochs=1, batch_size=112, evaluate_every_epochs=0)
    told = expected_traffic(*planned(data, papers_form("afsgd", labels="everywhere", arity=1), training))
    asked = Counter({(one.sender, one.receiver): one.frames for one in told if one.kind.__name__ == "ProductRequest"})
    summed = Counter({(one.receiver, one.sender): one.frames for one in told if one.kind.__name__ == "ProductSum"})
    names = (data.label_party, *data.feature_parties)
    ring = list(zip(names, (*names[1:], names[0]), strict=True))
    assert asked == summed
    # Each of the feature parties' chains lacks the one link that would close the ring at its root.
    closing = {(names[place], names[place + 1]) for place in range(3)}
    assert asked == {link: 3 - (link in closing) for link in ring}


def test_what_a_run_would_refuse() -> None:
    with pytest.raises(SettingsError, match="at least 3 parties"):
        price(*planned(flowers(2), papers_form("afsgd", sums="two-tree")))
