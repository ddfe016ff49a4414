"""Joint searches: what they reach, what a party's absence makes of them, what masks hide, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_runs import read_run, sends

from colonnade import Outcome, Simulate, SimulatedParty, Training, dataset
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.parts.joint_search import JointSearch
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import (
    MaskedSum,
    ProductSum,
    ResidualReply,
    SearchReply,
    SearchRequest,
    SearchStep,
    SearchStop,
    SharedRequest,
)
from colonnade.models.linear_loss import LinearLoss
from colonnade.party import Received
from colonnade.reproductions.objective import gaps, optimum
from colonnade.testing import TinyFederation, tiny_data

DATA = tiny_data()
TRAINING = Training(epochs=8, batch_size=8, l2=0.01, evaluate_every_epochs=0)


def run(name: str, out: Path, crashes: tuple[tuple[float, float], ...] = (), **settings: Any) -> Outcome:
    world = Simulate(parties={"party3": SimulatedParty(crashes=crashes)})
    algorithm = ALGORITHMS[name].settings(**{"search_every_epochs": 0.5, **settings})
    return TinyFederation(DATA, algorithm, TRAINING, simulate=world).run(out)


@pytest.mark.parametrize(
    ("name", "changes", "gap"),
    [
        ("afsvrg", {}, 1e-4),
        ("asysqn-saga", {"updates": "everybody"}, 1e-4),
        ("fsgd", {}, 1e-3),
    ],
)
def test_twenty_epochs_are_enough_where_blocks_alone_are_far_off(name: str, changes: Any, gap: float) -> None:
    """Columns that say nearly the same at two parties: without a search these end 4e-3 to 5e-2 above the optimum."""
    data = dataset("breast_cancer", parties=2)
    best = optimum(data, 1 / data.rows)
    training = Training(epochs=20, evaluate_every_epochs=0)
    points, _ = gaps(data, ALGORITHMS[name].settings(**changes), best, training=training)
    assert abs(points[-1].gap) < gap
    plain, _ = gaps(data, ALGORITHMS[name].settings(search_every_epochs=0, **changes), best, training=training)
    assert plain[-1].gap > 10 * gap


@pytest.mark.parametrize(
    ("name", "changes"),
    [("afsaga", {}), ("afsvrg", {"labels": "everywhere"}), ("asysqn-saga", {"updates": "everybody"})],
)
def test_a_search_that_lacks_a_party_is_given_up_and_the_training_goes_on(
    name: str, changes: Any, tmp_path: Path
) -> None:
    """Away from the middle of a search on: those that follow are not begun until it is back."""
    run(name, tmp_path / "whole", **changes)
    asked = sends(read_run(tmp_path / "whole")["label"], SearchRequest)
    numbers = [item.message.number for item in asked]
    begun = next(item for item in read_run(tmp_path / "whole")["party3"] if isinstance(item.message, SearchRequest))
    at = begun.fields[0]
    outcome = run(name, tmp_path / "away", ((at - 1e-4, at + 0.05),), max_product_age_epochs=100.0, **changes)
    assert outcome.finished
    trace = read_run(tmp_path / "away")["label"]
    requests = {item.message.number for item in sends(trace, SearchRequest)}
    found = {item.message.number for item in sends(trace, SearchStep)}
    over = {item.message.number for item in sends(trace, SearchStop)}
    assert requests - found and found and over == requests
    assert min(requests) == min(numbers)


@pytest.mark.parametrize(
    ("name", "sums", "every", "crashes"),
    [
        ("afsaga", "plain", 0.5, ((0.109, 0.159),)),
        ("afsaga", "pairwise", 0.5, ((0.109, 0.159),)),
        # Its request comes down another way than word that the search is over, and later.
        ("afsgd", "two-tree", 0.25, ((0.065, 0.075), (0.178, 0.228))),
    ],
)
def test_sums_that_were_given_up_are_repeated_before_a_search(
    name: str, sums: str, every: float, crashes: Any, tmp_path: Path
) -> None:
    settings = {"updates": "everybody", "sums": sums, "search_every_epochs": every}
    outcome = run(name, tmp_path / "run", crashes, **settings)
    assert outcome.finished
    asked = sends(read_run(tmp_path / "run")["label"], (SharedRequest, SearchRequest))
    again = [place for place, item in enumerate(asked) if getattr(item.message, "instead_of", 0)]
    assert again and any(isinstance(item.message, SearchRequest) for item in asked[again[-1] :])


def test_only_the_label_party_awaits_a_search() -> None:
    """Others number their own sums, too."""
    parties: Any = TinyFederation(DATA, ALGORITHMS["afsaga"].settings(search_every_epochs=0.5), TRAINING).parties()
    for name, party in parties.items():
        party._searching.under_way = 3
        assert party._searching.awaits(3) == (name == "label") and not party._searching.awaits(2)


def test_each_search_overtakes_one_request_of_a_party_at_most() -> None:
    parties: Any = TinyFederation(DATA, ALGORITHMS["afsaga"].settings(search_every_epochs=0.5), TRAINING).parties()
    searching = parties["label"]._searching
    for number in (1, 2):
        searching.under_way = number
        searching.end(number, found=False)
    assert [searching.may_ask_again("party1") for _ in range(3)] == [True, True, False]
    assert searching.may_ask_again("party2")


@pytest.mark.parametrize(
    ("name", "changes", "fewer"),
    [("afsaga", {"updates": "everybody"}, True), ("asysqn-svrg", {}, True), ("fsaga", {}, False)],
)
def test_a_far_slower_party_is_waited_for_less_often_by_who_waits_for_nobody(
    name: str, changes: Any, fewer: bool, tmp_path: Path
) -> None:
    """The last search is the end of the training all the same."""
    made = []
    for slowdown in (1.0, 100.0):
        world = Simulate(parties={"party3": SimulatedParty(slowdown=slowdown)})
        algorithm = ALGORITHMS[name].settings(search_every_epochs=0.5, **changes)
        TinyFederation(DATA, algorithm, TRAINING, simulate=world).run(tmp_path / f"{slowdown}")
        sent = sends(read_run(tmp_path / f"{slowdown}")["label"], (SearchStep, SharedRequest, ResidualReply), "party1")
        assert isinstance(sent[-1].message, SearchStep)
        made.append(sum(isinstance(item.message, SearchStep) for item in sent))
    assert (made[1] < made[0]) == fewer and made[1] >= 2


def test_a_synchronous_search_waits_or_is_given_up_after_its_time(tmp_path: Path) -> None:
    run("fsaga", tmp_path / "whole")
    begun = next(item for item in read_run(tmp_path / "whole")["party3"] if isinstance(item.message, SearchRequest))
    away = ((begun.fields[0] - 1e-4, begun.fields[0] + 0.5),)
    for limit, lacking in ((0.0, 0), (0.1, 1)):
        out = tmp_path / f"{limit}"
        outcome = run("fsaga", out, away, party_timeout_seconds=limit, max_product_age_epochs=100.0)
        trace = read_run(out)["label"]
        asked, found = ({item.message.number for item in sends(trace, kind)} for kind in (SearchRequest, SearchStep))
        assert outcome.finished and len(asked - found) == lacking


@pytest.mark.parametrize("sums", ["pairwise", "two-tree"])
@pytest.mark.parametrize(("name", "changes"), [("afsaga", {}), ("fsgd", {}), ("afsvrg", {"updates": "everybody"})])
def test_masked_points_lead_to_the_same_weights(name: str, changes: Any, sums: str, tmp_path: Path) -> None:
    plain = run(name, tmp_path / "plain", **changes)
    masked = run(name, tmp_path / "masked", sums=sums, **changes)
    for party, models in plain.models.items():
        if "bottom" in models:
            ours = dict(masked.models[party]["bottom"].named_parameters())
            for key, value in models["bottom"].named_parameters():
                assert np.allclose(value.detach().numpy(), ours[key].detach().numpy(), atol=1e-5)
    trace = read_run(tmp_path / "masked")
    assert not any(sends(items, ProductSum) for items in trace.values())
    long = {len(item.message.total) for items in trace.values() for item in sends(items, MaskedSum)}
    assert DATA.rows + 16 in long


def test_the_best_between_points_is_found_and_points_alike_do_no_harm() -> None:
    """Two outputs that are right together, and a hundred searches over points that are the same but for rounding."""
    generator = np.random.default_rng(0)
    one, two = generator.normal(size=(2, 40, 1))
    y = (2 * one - 3 * two)[:, 0]
    search = JointSearch(LinearLoss("regression"), y, None, starts_at_zero=True)
    rows = np.zeros((16, 1))
    search.find(np.vstack([one, rows]))
    shares, outputs, residuals, loss = search.find(np.vstack([two, rows]))
    assert loss < 1e-20 and np.allclose(outputs[:, 0], y) and np.abs(residuals).max() < 1e-9
    assert shares.sum() == pytest.approx(1)
    for _ in range(20):
        nearly = outputs * (1 + 1e-15 * generator.normal(size=outputs.shape))
        shares, found, _, loss = search.find(np.vstack([nearly, rows]))
        assert loss < 1e-20 and np.abs(shares).sum() < 10 and np.allclose(found, outputs)


def test_by_default_where_steps_are_derived_and_the_training_is_long_enough() -> None:
    def every(epochs: float = 20.0, l1: float = 0.0, rows: int = 1000, **settings: Any) -> float:
        return float(ALGORITHMS["afsaga"].settings(**settings).searches_every(rows, 1, l1, epochs))

    assert every() == 0.15
    assert every(search_every_epochs=2.0, step="fixed") == 2.0
    for none in (
        every(epochs=5.0),
        every(l1=0.1),
        every(rows=5_000_000),
        every(step="fixed"),
        every(precondition="block"),
        every(loss="sigmoid"),
        every(search_every_epochs=0.0),
    ):
        assert none == 0.0


def test_what_cannot_be_is_refused_with_words() -> None:
    kind = ALGORITHMS["afsaga"].settings
    with pytest.raises(SettingsError, match="search_every_epochs is -1"):
        kind(search_every_epochs=-1.0)
    with pytest.raises(SettingsError, match="not convex"):
        kind(search_every_epochs=0.5, loss="robust")
    with pytest.raises(SettingsError, match="smooth objective"):
        kind(search_every_epochs=0.5).check_l1("afsaga")


def test_no_party_takes_a_search_that_is_not_the_label_partys_or_of_another_shape() -> None:
    plan = TinyFederation(DATA, ALGORITHMS["fsaga"].settings(search_every_epochs=0.5), TRAINING)
    party = plan.parties()["party1"]
    residuals = np.zeros((DATA.rows, 1))
    lies = [
        ("party2", SearchStep(1, 1, np.ones(1), residuals)),
        ("label", SearchStep(1, 1, np.ones(1), residuals[1:])),
        ("label", SearchStep(1, 1, np.ones(1), residuals + 2)),
        ("label", SearchRequest("party2", 1, 0, np.zeros((0, 1)))),
        ("label", SearchRequest("label", 1, -1, np.zeros((0, 1)))),
        ("party2", SearchReply(1)),
        ("party2", SearchStop(1)),
    ]
    for sender, message in lies:
        with pytest.raises(ProtocolError):
            party.handle(Received(0.0, sender, message))
