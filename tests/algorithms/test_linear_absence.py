"""Parties that go away in linear federations: who goes on, with what, for how long, and what everybody is told."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from papers_form import papers_form
from recorded_runs import Item, read_run, receipts, sends

from colonnade import Outcome, RunError, Simulate, SimulatedParty, Training
from colonnade.algorithms import ALGORITHMS
from colonnade.messages import (
    Abandoned,
    MaskedSum,
    ProductSum,
    ResidualReply,
    SharedRequest,
    SharedResiduals,
    SharedStep,
)
from colonnade.reports.rundir import read_run as read_directory
from colonnade.runtimes.replay import replay
from colonnade.testing import TinyFederation, tiny_data

DATA = tiny_data()
TRAINING = Training(epochs=10, batch_size=8, l2=0.01, evaluate_every_epochs=2.5)
ASYNCHRONOUS = ["afsgd", "afsvrg", "afsaga", "asysqn-sgd", "asysqn-svrg", "asysqn-saga"]
SYNCHRONOUS = ["fsgd", "fsvrg", "fsaga", "synsqn-sgd", "synsqn-svrg", "synsqn-saga"]
AWAY = (0.15, 0.45)  # a run without faults takes about 0.4 virtual seconds


def run(
    name: str, out: Path, absent: dict[str, tuple[float, float]], training: Training = TRAINING, **settings: Any
) -> tuple[Outcome, dict[str, list[Item]]]:
    world = Simulate(parties={party: SimulatedParty(crashes=(times,)) for party, times in absent.items()})
    plain = {} if name == "fcg" else {"search_every_epochs": 0}  # joint searches have tests of their own
    algorithm = papers_form(name, **{**plain, **settings})
    outcome = TinyFederation(DATA, algorithm, training, simulate=world).run(out)
    return outcome, read_run(out)


def replies_while_away(trace: dict[str, list[Item]], names: set[str]) -> int:
    """Residuals that the label party gave these parties between a PeerLost and the next PeerReturned."""
    count, lost = 0, 0
    for item in trace["label"]:
        lost += {"PeerLost": 1, "PeerReturned": -1}.get(item.type, 0)
        count += item.type == "Send" and isinstance(item.message, ResidualReply) and lost > 0 and item.peer in names
    return count


def late_rows(outcome: Outcome) -> int:
    return int(outcome.summary["counts"]["late_rows"])


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_plain_sums_go_on_with_the_last_known_products(name: str, tmp_path: Path) -> None:
    """A star, so that the label party itself keeps what the lost one sent last, and counts it."""
    outcome, trace = run(name, tmp_path / "run", {"party3": AWAY}, arity=3, max_product_age_epochs=100.0)
    assert outcome.finished and late_rows(outcome) > 0
    assert replies_while_away(trace, {"party1", "party2"}) > 10
    assert sends(trace["label"], Abandoned) == []


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_products_of_no_age_are_not_used_and_the_sum_is_repeated_after_the_return(name: str, tmp_path: Path) -> None:
    outcome, trace = run(name, tmp_path / "run", {"party3": AWAY}, arity=3, max_product_age_epochs=0.0)
    assert outcome.finished and late_rows(outcome) == 0
    assert replies_while_away(trace, {"party1", "party2"}) == 0
    assert sends(trace["label"], Abandoned)
    steps = [own["steps"] for who, own in outcome.summary["parties"].items() if who != "label"]
    assert min(steps) > 15


def test_products_age_out(tmp_path: Path) -> None:
    """With batches of 8 of 24 rows per epoch is 3 requests of each of 3 parties: half of one is 5 (rounded up)."""
    outcome, trace = run("afsgd", tmp_path / "run", {"party3": AWAY}, arity=3, max_product_age_epochs=0.5)
    few = replies_while_away(trace, {"party1", "party2"})
    assert few <= 5
    assert outcome.finished and sends(trace["label"], Abandoned)


@pytest.mark.parametrize("sums", ["pairwise", "two-tree"])
@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_masked_sums_are_abandoned_and_nobody_is_unmasked(name: str, sums: str, tmp_path: Path) -> None:
    outcome, trace = run(name, tmp_path / "run", {"party3": AWAY}, sums=sums)
    assert outcome.finished and late_rows(outcome) == 0
    assert replies_while_away(trace, {"party1", "party2"}) == 0
    assert sends(trace["label"], Abandoned)
    for items in trace.values():
        assert sends(items, ProductSum) == []
        parts = [(p.message.root, p.message.number, p.message.tree) for p in sends(items, MaskedSum)]  # type: ignore[union-attr]
        assert len(set(parts)) == len(parts)
    # After the return everybody has stepped on.
    returned = [item.type for item in trace["party1"]].index("PeerReturned")
    assert len(receipts(trace["party1"][returned:], ResidualReply)) > 5


@pytest.mark.parametrize("sums", ["plain", "pairwise"])
def test_with_labels_everywhere_every_party_is_its_own_root(sums: str, tmp_path: Path) -> None:
    outcome, _ = run("afsaga", tmp_path / "run", {"party3": AWAY}, labels="everywhere", sums=sums)
    steps = {who: own["steps"] for who, own in outcome.summary["parties"].items() if who != "label"}
    assert outcome.finished and min(steps.values()) > 10


@pytest.mark.parametrize("sums", ["pairwise", "two-tree"])
@pytest.mark.parametrize("name", ["afsgd", "afsaga", "fsgd"])
def test_a_masked_federation_cannot_go_on_without_a_party_that_is_away_for_good(
    name: str, sums: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"did not finish.*party3, which is away for good"):
        run(name, tmp_path / "run", {"party3": (0.15, inf)}, sums=sums)


def test_a_plain_one_finishes_as_long_as_the_products_are_young_enough(tmp_path: Path) -> None:
    outcome, _ = run("afsaga", tmp_path / "young", {"party3": (0.15, inf)}, max_product_age_epochs=100.0)
    assert outcome.finished
    with pytest.raises(RunError, match=r"did not finish.*party3, which is away for good"):
        run("afsaga", tmp_path / "old", {"party3": (0.15, inf)}, max_product_age_epochs=1.0)


@pytest.mark.parametrize("sums", ["plain", "pairwise", "two-tree"])
@pytest.mark.parametrize("name", [*ASYNCHRONOUS, *SYNCHRONOUS])
def test_the_label_partys_absence_stops_everybody_and_its_return_lets_them_go_on(
    name: str, sums: str, tmp_path: Path
) -> None:
    few = replace(TRAINING, epochs=5)
    outcome, trace = run(name, tmp_path / "run", {"label": (0.1, 2.0)}, few, sums=sums)
    assert outcome.finished and outcome.summary["epochs"] >= 5
    assert outcome.summary["virtual_seconds"] > 2.0
    assert all(any(item.type == "Finish" for item in items) for items in trace.values())


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_a_synchronous_schedule_waits_unless_it_has_a_time_limit(name: str, tmp_path: Path) -> None:
    away = {"party3": (0.15, 3.0)}
    waited, _ = run(name, tmp_path / "waits", away, arity=3)
    assert waited.summary["virtual_seconds"] > 3.0 and late_rows(waited) == 0
    notes = [line["note"] for line in waited.metrics if line.get("note")]
    assert notes == ["waiting for party3, which cannot be reached"]
    went_on, trace = run(
        name, tmp_path / "goes on", away, arity=3, party_timeout_seconds=0.1, max_product_age_epochs=100.0
    )
    assert late_rows(went_on) > 0
    label = [item.type for item in trace["label"]]
    between = trace["label"][label.index("PeerLost") : label.index("Finish")]
    assert len(sends(between, SharedStep, "party1")) > 10
    # Who was away catches up with all that it missed.
    steps = {who: own["steps"] for who, own in went_on.summary["parties"].items()}
    assert steps["party3"] == steps["party1"] == steps["label"]


@pytest.mark.parametrize("name", [*SYNCHRONOUS, "fcg"])
def test_a_note_of_waiting_counts_exchanges_as_the_record_does(name: str, tmp_path: Path) -> None:
    """Or a report would take the lines before it for a stretch that a resumed run repeated."""
    outcome, _ = run(name, tmp_path / "run", {"party3": (0.1, 1.0)})
    lines = [line for line in outcome.metrics if line["party"] == "label"]
    assert any(line.get("note", "").startswith("waiting for party3") for line in lines[1:])
    assert lines == sorted(lines, key=lambda line: line["exchange"])
    assert len(read_directory(tmp_path / "run").curve) == len(lines)


def test_a_party_that_was_back_in_time_is_waited_for_the_next_time_as_well(tmp_path: Path) -> None:
    """The time limit of an absence that ended must not shorten the next one."""
    times = ((0.2, 0.25), (0.6, 0.7))
    world = Simulate(parties={"party3": SimulatedParty(crashes=times)})
    algorithm = ALGORITHMS["fsgd"].settings(
        search_every_epochs=0, arity=3, party_timeout_seconds=0.3, max_product_age_epochs=100.0
    )
    plan = TinyFederation(DATA, algorithm, replace(TRAINING, epochs=20), simulate=world)
    assert late_rows(plan.run(tmp_path / "run")) == 0


def test_a_synchronous_run_ends_without_a_party_that_was_never_scored(tmp_path: Path) -> None:
    training = replace(TRAINING, evaluate_every_epochs=0)
    outcome, _ = run(
        "fsgd",
        tmp_path / "run",
        {"party3": (0.15, inf)},
        training,
        arity=3,
        party_timeout_seconds=0.1,
        max_product_age_epochs=100.0,
    )
    assert outcome.finished and outcome.summary["epochs"] >= 10
    assert [line["note"] for line in outcome.metrics if "no evaluation" in line.get("note", "")]


def test_in_a_tree_the_lost_partys_parent_counts_what_it_replaced(tmp_path: Path) -> None:
    """party3 is below party1 in the label party's tree of two children each: the books of all parties are added."""
    plan = TinyFederation(
        DATA,
        papers_form("afsgd", search_every_epochs=0, max_product_age_epochs=100.0),
        TRAINING,
        simulate=Simulate(parties={"party3": SimulatedParty(crashes=(AWAY,))}),
    )
    plan.run(tmp_path / "run")
    late = {}
    for name, party in plan.parties().items():
        replay(party, tmp_path / "run" / "trace" / f"{name}.trace")
        late[name] = party.counts()["late_rows"]
    assert late["party1"] > 0 and late["label"] == 0


@pytest.mark.parametrize("name", ["afsvrg", "afsaga", "asysqn-saga"])
def test_who_missed_lessons_keeps_an_unbiased_estimator(name: str, tmp_path: Path) -> None:
    """Whatever its table or snapshot holds, the mean gradient is that of the same table; and a pass is never missed."""
    away, slow = SimulatedParty(crashes=((0.3, 0.9),)), SimulatedParty(slowdown=4.0)
    world = Simulate(parties={"party3": away, "party2": slow})
    own = {"snapshot_every_epochs": 4.0} if name == "afsvrg" else {}
    own = {"search_every_epochs": 0, **own}
    settings = ALGORITHMS[name].settings(updates="everybody", arity=3, max_product_age_epochs=100.0, **own)
    plan = TinyFederation(DATA, settings, replace(TRAINING, epochs=30), simulate=world)
    outcome = plan.run(tmp_path / "run")
    assert outcome.finished and late_rows(outcome) > 0
    passes = set()
    for party, played in plan.parties().items():
        replay(played, tmp_path / "run" / "trace" / f"{party}.trace")
        any_party: Any = played
        if party != "label":
            table, block = any_party._solver._estimator.known(), any_party._block_party.block
            expected, _ = block.full_gradient(table)
            assert abs(table).max() > 0
            assert abs(block.mean_gradient()[0] - expected).max() < 1e-12
            assert (played.counts()["missed_lessons"] > 3) == (party != "party1")
            told = receipts(read_run(tmp_path / "run")[party], SharedRequest)
            passes.add(sum(item.message.full_pass for item in told))  # type: ignore[union-attr]
    assert len(passes) == 1 and passes.pop() >= 1


@pytest.mark.parametrize("sums", ["pairwise", "two-tree"])
def test_masked_lessons_wait_for_who_is_away(sums: str, tmp_path: Path) -> None:
    outcome, trace = run("afsaga", tmp_path / "run", {"party3": AWAY}, sums=sums, updates="everybody", in_flight=3)
    assert outcome.finished and late_rows(outcome) == 0
    lost = [item.type for item in trace["label"]].index("PeerLost")
    back = [item.type for item in trace["label"]].index("PeerReturned")
    assert len(sends(trace["label"][lost:back], SharedResiduals)) == 0
    assert len(sends(trace["label"][back:], SharedResiduals)) > 10
    assert any(item.message.instead_of for item in sends(trace["label"], SharedRequest))  # type: ignore[union-attr]
