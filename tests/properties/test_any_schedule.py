"""What holds for every split algorithm, of first and zeroth order, whatever the delays, losses, order and crashes.

Checked against the traces alone: the run ends; no update is lost or applied twice; staleness is what a count by hand
gives, and no embedding is older than D unless the run says so; the same seed gives the same bytes; a replayed trace
gives the same bits.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from recorded_runs import NO_TIME, Item, read_run, receipts, sends

from colonnade import (
    Cascaded,
    Czofo,
    Dpzv,
    RunError,
    Simulate,
    SimulatedParty,
    Split,
    Training,
    Vafl,
    Zoo,
    ZooSync,
)
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.split_models.fdml import Fdml
from colonnade.algorithms.split_models.parts.asynchronous import Asynchronous
from colonnade.messages import (
    EmbeddingUpload,
    GradientAndBatch,
    GradientReply,
    LossAndBatch,
    LossReply,
    PairUpload,
    PerturbedUpload,
    RefreshedEmbedding,
    RefreshRequest,
    RowLossReply,
    SlopeReply,
    WarmUpUpload,
)
from colonnade.runtimes.replay import replay
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights

DATA = tiny_data()
PARTIES = ("party1", "party2", "party3")
TRAINING = Training(epochs=2, batch_size=8, observe_every_epochs=0)  # 3 batches per epoch, 18 exchanges
ASYNCHRONOUS = (Vafl, Cascaded, Zoo, Czofo, Dpzv, Fdml)
SYNCHRONOUS = (Split, ZooSync)
UPLOADS = (EmbeddingUpload, PerturbedUpload, PairUpload)
REPLIES = (GradientReply, LossReply, RowLossReply, SlopeReply)
REPLIES_WITH_BATCH = (GradientAndBatch, LossAndBatch)
MANY_EVENTS = 50_000  # some hundred times what a run needs: beyond this it would not end

# --- any world, any schedule ------------------------------------------------------------------------------------

milliseconds = st.integers(0, 40).map(lambda n: n / 1000)
delays = st.one_of(
    milliseconds,
    milliseconds.map(lambda mean: {"distribution": "exponential", "mean": mean}),
    milliseconds.map(lambda mean: {"distribution": "uniform", "mean": mean, "spread": mean}),
    milliseconds.map(lambda mean: {"distribution": "lognormal", "mean": mean + 0.001, "spread": 1.0}),
    milliseconds.map(lambda mean: {"distribution": "poisson", "mean": mean, "spread": 0.005}),
)


@st.composite
def crash_times(draw: st.DrawFn, may_stay_away: bool) -> tuple[tuple[float, float], ...]:
    """Up to three absences, in order; the last one perhaps for good."""
    gaps = draw(st.lists(st.tuples(st.integers(0, 150), st.integers(1, 300)), max_size=3))
    times, now = [], 0
    for wait, away in gaps:
        times.append(((now + wait) / 1000, (now + wait + away) / 1000))
        now += wait + away + 1
    if may_stay_away and draw(st.integers(0, 3)) == 0:
        times.append(((now + draw(st.integers(0, 150))) / 1000, inf))
    return tuple(times)


@st.composite
def worlds(draw: st.DrawFn) -> Simulate:
    faulty = draw(st.booleans())
    stays = draw(st.sampled_from(PARTIES))  # so that there is always somebody to go on with
    parties = {}
    for name in ("label", *PARTIES):
        parties[name] = SimulatedParty(
            slowdown=draw(st.sampled_from([1.0, 0.3, 3.0, 10.0])),
            straggle_probability=draw(st.sampled_from([0.0, 0.2])),
            crashes=draw(crash_times(name not in ("label", stays))) if faulty else (),
        )
    return Simulate(
        compute_seconds=draw(delays),
        label_compute_seconds=draw(delays),
        latency_seconds=draw(delays),
        loss=draw(st.sampled_from([0.0, 0.1, 0.3, 0.5])),
        reorder=draw(st.booleans()),
        retransmit_seconds=draw(st.sampled_from([0.02, 0.1])),
        notice_seconds=draw(st.sampled_from([0.0, 0.01, 0.05])),
        parties=parties,
    )


@st.composite
def asynchronous(draw: st.DrawFn) -> Asynchronous:
    kind = draw(st.sampled_from(ASYNCHRONOUS))
    several = {"directions": draw(st.integers(1, 3)), "two_sided": draw(st.booleans())}
    own = several if issubclass(kind, Cascaded) else {}
    if kind is Dpzv:
        own = {"noise": draw(st.sampled_from([0.0, 0.5]))}
    wait_for = draw(st.integers(1, 3))
    activation = st.sampled_from([0.0, 0.01, {"party1": 0.03, "party3": 0.002}])
    return kind(
        **own,
        wait_for=wait_for,
        max_delay=draw(st.sampled_from([0, wait_for, wait_for + 1, 6])),
        refresh_timeout_seconds=draw(st.sampled_from([0.01, 0.2])),
        activation_seconds=draw(activation),
        in_flight=draw(st.integers(1, 3)),
        warm_up=draw(st.booleans()),
        shared_rows=draw(st.booleans()),
    )


def never_returns(world: Simulate) -> bool:
    return any(back == inf for party in world.parties.values() for _, back in party.crashes)


@st.composite
def plans(draw: st.DrawFn) -> TinyFederation:
    world = draw(worlds())
    algorithm: Any = draw(asynchronous())
    if draw(st.booleans()):
        # Without a time-out the synchronous schedule rightly waits for ever for somebody who stays away.
        patience = draw(st.sampled_from([0.01, 0.1] if never_returns(world) else [0.0, 0.01, 0.1]))
        algorithm = draw(st.sampled_from(SYNCHRONOUS))(party_timeout_seconds=patience)
    training = replace(TRAINING, evaluate_every_epochs=draw(st.sampled_from([0.0, 0.3, 1.0])))
    return TinyFederation(DATA, algorithm, training, simulate=world, seed=draw(st.integers(0, 3)))


# --- counts by hand, from the label party's trace ---------------------------------------------------------------


def updates(label: list[Item]) -> Iterator[tuple[list[Item], list[Item]]]:
    """Of each update: what came in since the last one, and the replies. Its `Observe` closes an update."""
    came: list[Item] = []
    replies: list[Item] = []
    for item in label:
        if item.type == "Received":
            came.append(item)
        elif item.type == "Send" and isinstance(item.message, (*REPLIES, *REPLIES_WITH_BATCH)):
            replies.append(item)
        elif item.type == "Observe" and replies:
            yield came, replies
            came, replies = [], []
    assert replies == []


def ages_by_hand(label: list[Item]) -> list[int]:
    """Every τ that was used of a party other than the uploader's."""
    written: dict[tuple[str, int], int] = {}
    rows_of: dict[tuple[str, int], list[int]] = {}
    exchange = 0
    ages: list[int] = []
    for came, replies in updates(label):
        for item in came:
            match item.message:
                case EmbeddingUpload() | PerturbedUpload() | PairUpload() as upload:
                    rows_of.setdefault((item.peer, upload.exchange), upload.rows.tolist())
                case RefreshedEmbedding() | WarmUpUpload() as upload:
                    written.update({(item.peer, row): exchange for row in upload.rows.tolist()})
        exchange += len(replies)
        used = [rows_of[reply.peer, reply.message.exchange] for reply in replies]
        for reply, rows in zip(replies, used, strict=True):
            written.update({(reply.peer, row): exchange for row in rows})
        if isinstance(replies[0].message, REPLIES_WITH_BATCH):
            used = used[:1]  # one batch for all: it is used once
        for rows in used:
            now = sorted(exchange - written.get((party, row), 0) for party in PARTIES for row in rows)
            assert now[: len(rows)] == [0] * len(rows)  # the uploader's own
            ages += now[len(rows) :]
    return ages


def summary_by_hand(ages: list[int]) -> dict[str, Any]:
    counts = Counter(ages)
    reached = 0
    p95 = 0
    for age in sorted(counts):
        reached += counts[age]
        if reached >= 0.95 * len(ages):
            p95 = age
            break
    edges = [0, 1]
    while edges[-1] <= max(counts):
        edges.append(2 * edges[-1])
    binned = [sum(n for age, n in counts.items() if low <= age < high) for low, high in pairwise(edges)]
    return {
        "mean": pytest.approx(sum(ages) / len(ages)),
        "p95": p95,
        "max": max(counts),
        "histogram": {"edges": edges, "counts": binned},
    }


# --- the properties ---------------------------------------------------------------------------------------------

any_plan = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def finished(items: list[Item]) -> bool:
    return any(item.type == "Finish" for item in items)


def check_run(plan: TinyFederation, directory: Path, summary: dict[str, Any]) -> None:
    run = read_run(directory)
    label = run["label"]
    reply_kind = REPLIES if isinstance(plan.algorithm, Asynchronous) else REPLIES_WITH_BATCH

    # The run came to its planned end.
    assert summary["status"] == "finished"
    assert finished(label)
    planned = 6
    if isinstance(plan.algorithm, Asynchronous):
        assert 3 * planned <= summary["exchanges"] < 3 * planned + plan.algorithm.wait_for
    else:
        assert summary["parties"]["label"]["steps"] == planned
    for name in PARTIES:
        assert finished(run[name]) or (name in plan.simulate.parties and plan.simulate.parties[name].crashes)

    # Every upload is handled once and answered at most once; every answer is applied once.
    answered = [(item.peer, item.message.exchange) for item in sends(label, reply_kind)]
    assert len(set(answered)) == len(answered) == summary["exchanges"]
    uploaded = [(item.peer, item.message.exchange) for item in receipts(label, UPLOADS)]
    assert len(set(uploaded)) == len(uploaded)
    assert set(answered) <= set(uploaded)
    for name in PARTIES:
        applied = [item.message.exchange for item in receipts(run[name], reply_kind)]
        assert len(set(applied)) == len(applied)
        own = [exchange for party, exchange in answered if party == name]
        assert set(applied) <= set(own)
        assert summary["parties"][name]["steps"] == len(applied)
        # A frame that was lost is repeated later, and by then the word to stop may have come before it.
        if finished(run[name]) and not plan.simulate.loss and not was_away_at_the_end(label, name):
            assert sorted(applied) == sorted(own)

    # Staleness, and the bound on it.
    ages = ages_by_hand(label)
    assert summary["staleness"] == summary_by_hand(ages)
    bound = plan.algorithm.max_delay if isinstance(plan.algorithm, Asynchronous) else 0
    late = sum(age > bound for age in ages) if bound else 0
    assert summary["counts"]["late_rows"] == late
    if late:
        # Only a party that could not be asked, or did not answer in time, is used beyond D.
        assert any(item.type in ("TimerFired", "PeerLost") for item in label)
    if not bound:
        assert sends(label, RefreshRequest) == []


def was_away_at_the_end(label: list[Item], name: str) -> bool:
    """Whether the label party's last word of this party was that it cannot be reached."""
    news = [item.type for item in label if item.type in ("PeerLost", "PeerReturned") and item.fields[1] == name]
    return bool(news) and news[-1] == "PeerLost"


@given(plan=plans())
@any_plan
def test_every_run_ends_and_its_books_are_right(plan: TinyFederation) -> None:
    event(type(plan.algorithm).__name__)
    with TemporaryDirectory() as folder:
        stop = StopAfter(MANY_EVENTS)
        outcome = plan.run(Path(folder) / "run", stop_requested=stop)
        assert outcome.finished
        check_run(plan, Path(folder) / "run", outcome.summary)


@given(plan=plans())
@settings(any_plan, max_examples=50)
def test_same_seed_same_bytes_and_replay_gives_the_same_bits(plan: TinyFederation) -> None:
    with TemporaryDirectory() as folder:
        one, two = Path(folder) / "one", Path(folder) / "two"
        outcome = plan.run(one, stop_requested=StopAfter(MANY_EVENTS))
        plan.run(two, stop_requested=StopAfter(MANY_EVENTS))
        parties = plan.parties()
        for name in plan.names:
            trace = one / "trace" / f"{name}.trace"
            assert trace.read_bytes() == (two / "trace" / f"{name}.trace").read_bytes()
            replay(parties[name], trace)
        assert_same_bits(weights(outcome.models), weights({name: own.model() for name, own in parties.items()}))
        for name in ("federation.toml", "ledger.jsonl", "timeline.jsonl"):
            assert (one / name).read_bytes() == (two / name).read_bytes()
        lines = [
            [{**json.loads(line), "wall_seconds": 0} for line in (run / "metrics.jsonl").read_text().splitlines()]
            for run in (one, two)
        ]
        assert lines[0] == lines[1]


def test_every_algorithm_with_messages_is_drawn() -> None:
    """Linear federations have a test of their own."""
    split = {row.settings for row in ALGORITHMS.values() if row.alone is None and row.linear_party is None}
    assert split == {*ASYNCHRONOUS, *SYNCHRONOUS}


def test_another_seed_gives_another_trace(tmp_path: Path) -> None:
    plan = TinyFederation(DATA, Vafl(), TRAINING)
    plan.run(tmp_path / "one")
    replace(plan, seed=1).run(tmp_path / "two")
    one, two = ((tmp_path / run / "trace" / "label.trace").read_bytes() for run in ("one", "two"))
    assert one != two


def test_split_without_a_time_out_says_whom_it_waits_for(tmp_path: Path) -> None:
    world = Simulate(parties={"party2": SimulatedParty(crashes=((0.02, inf),))})
    with pytest.raises(RunError, match=r"party2.*party_timeout_seconds"):
        TinyFederation(DATA, Split(), TRAINING, simulate=world).run(tmp_path / "run")


def absent(**crashes: tuple[float, float]) -> dict[str, SimulatedParty]:
    return {name: SimulatedParty(crashes=(times,)) for name, times in crashes.items()}


@pytest.mark.parametrize(
    ("loss", "parties"),
    [
        (0.0, absent(party1=(0.0, inf), party2=(0.0, 0.01), party3=(0.0, inf))),
        (0.3, absent(party2=(0.02, 0.032))),
    ],
    ids=["asked twice for one step", "a reply comes after the next batch"],
)
@pytest.mark.parametrize("kind", SYNCHRONOUS)
def test_a_synchronous_run_takes_back_a_party_that_it_had_given_up(
    kind: type[Any], loss: float, parties: dict[str, SimulatedParty], tmp_path: Path
) -> None:
    world = replace(NO_TIME, loss=loss, retransmit_seconds=0.02, notice_seconds=0.0, parties=parties)
    for seed, compute_seconds in product(range(4), (0.0, 0.005)):
        plan = TinyFederation(
            DATA,
            kind(party_timeout_seconds=0.01),
            TRAINING,
            simulate=replace(world, compute_seconds=compute_seconds),
            seed=seed,
        )
        out = tmp_path / f"{seed} {compute_seconds}"
        check_run(plan, out, plan.run(out).summary)


@pytest.mark.parametrize("algorithm", [kind() for kind in (*ASYNCHRONOUS, *SYNCHRONOUS)], ids=repr)
def test_a_run_whose_parties_are_all_away_for_a_while_goes_on_afterwards(algorithm: Any, tmp_path: Path) -> None:
    away = {name: SimulatedParty(crashes=((0.02, 0.1),)) for name in ("label", *PARTIES)}
    plan = TinyFederation(DATA, algorithm, TRAINING, simulate=Simulate(parties=away))
    outcome = plan.run(tmp_path / "run")
    check_run(plan, tmp_path / "run", outcome.summary)


@pytest.mark.parametrize("algorithm", [Vafl(), Split()], ids=repr)
def test_a_run_that_loses_everybody_for_good_is_not_called_finished(algorithm: Any, tmp_path: Path) -> None:
    away = {name: SimulatedParty(crashes=((0.02, inf),)) for name in ("label", *PARTIES)}
    with pytest.raises(RunError, match="label"):
        TinyFederation(DATA, algorithm, TRAINING, simulate=Simulate(parties=away)).run(tmp_path / "run")
