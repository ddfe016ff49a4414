"""What holds for every linear federation, whatever the delays, losses, order, crashes, masks and trees.

Checked against the traces alone: the run ends, or says whom it lacks; every part of a sum is sent once, under a mask
that is never used again; the same seed gives the same bytes, a replayed trace the same bits, and so does a run that
was stopped anywhere and resumed.
"""

from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from recorded_runs import Item, read_run, receipts, sends

from colonnade import RunError, Simulate, SimulatedParty, Training
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.fcg import Fcg
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear, Linear, QuasiNewton, SynchronousLinear
from colonnade.messages import (
    EvaluationMaskedSum,
    EvaluationProductSum,
    MaskedSum,
    ProductRequest,
    ProductSum,
    ResidualReply,
    ResidualRequest,
    SearchRequest,
)
from colonnade.runtimes.replay import replay
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights

ROWS = {name: row for name, row in ALGORITHMS.items() if row.linear_party is not None}
DATA = {task: tiny_data(task) for task in ("binary", "multiclass", "regression")}
WITH_OWN_COLUMNS = tiny_data(parties=3, label_party_columns=True)
PARTIES = ("party1", "party2", "party3")
TRAINING = Training(epochs=2, batch_size=8, learning_rate=0.01, optimiser="sgd", observe_every_epochs=0, l2=0.01)
MANY_EVENTS = 50_000

milliseconds = st.integers(0, 40).map(lambda n: n / 1000)
delays = st.one_of(milliseconds, milliseconds.map(lambda mean: {"distribution": "exponential", "mean": mean}))


@st.composite
def crash_times(draw: st.DrawFn, may_stay_away: bool) -> tuple[tuple[float, float], ...]:
    """Up to two absences, in order; the last one perhaps for good."""
    times, now = [], 0
    for wait, away in draw(st.lists(st.tuples(st.integers(0, 150), st.integers(1, 300)), max_size=2)):
        times.append(((now + wait) / 1000, (now + wait + away) / 1000))
        now += wait + away + 1
    if may_stay_away and draw(st.integers(0, 5)) == 0:
        times.append(((now + draw(st.integers(0, 300))) / 1000, inf))
    return tuple(times)


@st.composite
def worlds(draw: st.DrawFn) -> Simulate:
    faulty = draw(st.booleans())
    parties = {
        name: SimulatedParty(
            slowdown=draw(st.sampled_from([1.0, 0.3, 10.0])),
            crashes=draw(crash_times(name != "label")) if faulty else (),
        )
        for name in ("label", *PARTIES)
    }
    return Simulate(
        compute_seconds=draw(delays),
        label_compute_seconds=draw(delays),
        latency_seconds=draw(delays),
        loss=draw(st.sampled_from([0.0, 0.1, 0.4])),
        reorder=draw(st.booleans()),
        retransmit_seconds=draw(st.sampled_from([0.02, 0.1])),
        notice_seconds=draw(st.sampled_from([0.0, 0.01, 0.05])),
        parties=parties,
    )


@st.composite
def plans(draw: st.DrawFn) -> TinyFederation:
    row = ROWS[draw(st.sampled_from(sorted(ROWS)))]
    own: dict[str, Any] = {}
    if issubclass(row.settings, QuasiNewton):
        own["curvature_rows"] = draw(st.sampled_from(["all", "same", "fresh"]))
        own["least_curvature"] = 1.0  # with less, fresh rows send weights beyond what fixed point holds, and it says so
    elif issubclass(row.settings, AsynchronousLinear):
        own["batches_per_request"] = draw(st.integers(1, 4))
    if row.settings is not Fcg:  # which finds its steps, and waits for everybody
        # Curvature from two batches' gradients is mostly noise, and with any step but a small one training diverges.
        steps = ["fixed"] if own.get("curvature_rows") == "fresh" else ["auto", "fixed", "search"]
        own["step"] = draw(st.sampled_from(steps))
        own["max_product_age_epochs"] = draw(st.sampled_from([0.0, 0.5, 2.0, 100.0]))
    if issubclass(row.settings, AsynchronousLinear):
        own["request_timeout_seconds"] = draw(st.sampled_from([0.0, 0.01, 0.1, 30.0]))
        own["updates"] = draw(st.sampled_from(["one", "everybody"]))
        own["in_flight"] = draw(st.sampled_from([1, 2, 5])) if own["updates"] == "everybody" else "auto"
    if issubclass(row.settings, SynchronousLinear):
        own["party_timeout_seconds"] = draw(st.sampled_from([0.0, 0.01, 0.1]))
    algorithm = row.settings(
        **own,
        labels=draw(st.sampled_from(["one", "everywhere"])),
        sums=draw(st.sampled_from(["plain", "plain", "two-tree", "pairwise"])),
        arity=draw(st.integers(1, 3)),
        intercept=draw(st.booleans()),
        precondition=draw(st.sampled_from(preconditions(row.settings))),
        tolerance=draw(st.sampled_from([0.0, 0.0, 0.05, 1.0])),
    )
    searches = draw(st.sampled_from([0.0, 0.0, 0.15, 0.5])) if row.settings is not Fcg else 0.0
    if searches:  # each counts as an epoch
        algorithm = replace(algorithm, search_every_epochs=searches)
    evaluations = draw(st.sampled_from([0.0, 0.3, 1.0]))
    training = replace(TRAINING, epochs=5 if searches else 2, evaluate_every_epochs=evaluations)
    data = draw(st.sampled_from([*DATA.values(), WITH_OWN_COLUMNS]))
    return TinyFederation(data, algorithm, training, simulate=draw(worlds()), seed=draw(st.integers(0, 3)))


def preconditions(kind: type[Linear]) -> list[str]:
    measured = ["curvature"] if kind.keeps_residuals and kind is not Fcg else []
    return ["none", "columns", "block", *measured]


any_plan = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def stays_away(plan: TinyFederation) -> list[str]:
    return [name for name, own in plan.simulate.parties.items() if any(back == inf for _, back in own.crashes)]


def run_to_its_end(plan: TinyFederation, out: Path, **how: Any) -> dict[str, Any] | None:
    """The summary; None if the run said that it cannot go on without somebody who is away for good."""
    stop = StopAfter(MANY_EVENTS)
    try:
        outcome = plan.run(out, stop_requested=stop, **how)
    except RunError as error:
        away = stays_away(plan)
        assert away and "away for good" in str(error) and all(name in str(error) for name in away)
        return None
    assert outcome.finished
    return outcome.summary


def finished(items: list[Item]) -> bool:
    return any(item.type == "Finish" for item in items)


def check_messages(plan: TinyFederation, run: dict[str, list[Item]]) -> None:
    """Every part of a sum is sent once, received at most once, and hidden if it should be."""
    kinds = (ProductSum, MaskedSum, EvaluationProductSum, EvaluationMaskedSum)
    for name, items in run.items():
        sent = [_part(item) for item in sends(items, kinds)]
        assert len(set(sent)) == len(sent), f"{name} sent a part of a sum twice"
        came = Counter((item.peer, _part(item)) for item in receipts(items, kinds))
        assert not came or max(came.values()) == 1
        open_kinds = (MaskedSum, EvaluationMaskedSum)
        if plan.algorithm.masked:
            open_kinds = (ProductSum, EvaluationProductSum)
        assert sends(items, open_kinds) == []
        # A root numbers its requests 1, 2, …; who has no labels is answered at most once for each of its own.
        asked_for = sends(items, ProductRequest) and sends(items, (ProductRequest, SearchRequest))
        numbers = [item.message.number for item in asked_for if item.message.root == name]
        assert sorted(set(numbers)) == list(range(1, len(set(numbers)) + 1))
    asked = Counter((item.peer, item.message.exchange) for item in receipts(run["label"], ResidualRequest))
    answered = Counter((item.peer, item.message.exchange) for item in sends(run["label"], ResidualReply))
    assert answered <= asked and (not asked or max(asked.values()) == 1)
    if plan.algorithm.labels == "everywhere":
        assert not asked


def _part(item: Item) -> tuple[Any, ...]:
    message: Any = item.message
    return (type(message).__name__, message.root, message.number, getattr(message, "tree", 0))


@given(plan=plans())
@any_plan
def test_every_run_ends_and_no_part_of_a_sum_is_sent_twice(plan: TinyFederation) -> None:
    with TemporaryDirectory() as folder:
        summary = run_to_its_end(plan, Path(folder) / "run")
        run = read_run(Path(folder) / "run")
        check_messages(plan, run)
        event(f"finished: {summary is not None}")
        if summary is None:
            return
        assert summary["status"] == "finished"
        for name in (*PARTIES, "label"):
            assert finished(run[name]) or name in stays_away(plan)
        if not plan.algorithm.tolerance:
            assert summary["epochs"] >= plan.training.epochs


@given(plan=plans())
@settings(any_plan, max_examples=15)
def test_same_seed_same_bytes_and_replay_gives_the_same_bits(plan: TinyFederation) -> None:
    with TemporaryDirectory() as folder:
        one, two = Path(folder) / "one", Path(folder) / "two"
        run_to_its_end(plan, one)
        run_to_its_end(plan, two)
        for name, party in plan.parties().items():
            trace = one / "trace" / f"{name}.trace"
            assert trace.read_bytes() == (two / "trace" / f"{name}.trace").read_bytes()
            replay(party, trace)


@given(plan=plans(), share=st.floats(0.0, 1.0))
@settings(any_plan, max_examples=20)
def test_a_run_stopped_anywhere_resumes_to_the_same_bits(plan: TinyFederation, share: float) -> None:
    with TemporaryDirectory() as folder:
        whole, parts = Path(folder) / "whole", Path(folder) / "parts"
        count = StopAfter(MANY_EVENTS)
        try:
            outcome = plan.run(whole, stop_requested=count)
        except RunError:
            return
        stopped = plan.run(parts, stop_requested=StopAfter(int(share * count.asked)))
        resumed = stopped if stopped.finished else plan.run(parts, resume=True)
        assert_same_bits(weights(outcome.models), weights(resumed.models))
        assert {**resumed.summary, "wall_seconds": 0} == {**outcome.summary, "wall_seconds": 0}
        for trace in (whole / "trace").iterdir():
            assert trace.read_bytes() == (parts / "trace" / trace.name).read_bytes()


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("sums", ["plain", "two-tree", "pairwise"])
def test_a_run_whose_parties_are_all_away_for_a_while_goes_on_afterwards(name: str, sums: str, tmp_path: Path) -> None:
    away = {name: SimulatedParty(crashes=((0.02, 0.1),)) for name in ("label", *PARTIES)}
    plan = TinyFederation(DATA["binary"], ROWS[name].settings(sums=sums), TRAINING, simulate=Simulate(parties=away))
    assert run_to_its_end(plan, tmp_path / "run") is not None
