"""Runs of `vafl`, `split` and `centralised` against their slow twin, message by message.

The twin is float64, the run float32, over at most a hundred exchanges: everything that was sent and every final weight
agree to 1e-6 plus 1e-5 of the value.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from first_order_split import (
    AsynchronousServer,
    DroppingColumns,
    FeatureTwin,
    Rule,
    Server,
    SumThen,
    SynchronousServer,
    Upload,
    dense,
    take_weights,
    weights_of_rows,
)
from recorded_runs import Item, read_run, receipts, sends
from torch import Tensor, nn

from colonnade import BottomSettings, Centralised, Simulate, SimulatedParty, Split, TopSettings, Training, Vafl
from colonnade.algorithms.parts.losses import Loss
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.split_models.parts.steps import SCALE_FREE
from colonnade.algorithms.training import DecidedTraining, Defaults
from colonnade.data.batches import Batches
from colonnade.messages import (
    EmbeddingUpload,
    EvaluationEmbedding,
    GradientAndBatch,
    GradientReply,
    RefreshedEmbedding,
    RefreshRequest,
    WarmUpUpload,
)
from colonnade.party import Finish, Observe, Started, TimerFired
from colonnade.testing import TinyFederation, tiny_data, weights
from colonnade.testing.tiny_federation import lacking

MLP = BottomSettings("mlp", hidden=(6,), embedding=4, output_activation=False)
RELU = BottomSettings("mlp", hidden=(), embedding=5)
TOP = TopSettings("concat-mlp", hidden=(5,))
UNEQUAL = Simulate(
    parties={"party1": SimulatedParty(slowdown=3.0), "party3": SimulatedParty(slowdown=0.4)},
    compute_seconds={"distribution": "exponential", "mean": 0.01},
    latency_seconds={"distribution": "uniform", "mean": 0.002, "spread": 0.002},
)
FOUR_EPOCHS = DecidedTraining(epochs=4, batch_size=7, learning_rate=0.2, top_learning_rate=0.1, observe_every_epochs=0)


def plan(algorithm: Any, task: str = "binary", own_columns: bool = False, **changes: Any) -> TinyFederation:
    given: dict[str, Any] = {"bottom": MLP, "top": TOP, "training": FOUR_EPOCHS, "simulate": UNEQUAL, **changes}
    return TinyFederation(tiny_data(task, label_party_columns=own_columns), algorithm, **given)


def weighted(whole: TinyFederation, class_weight: Any = "none") -> TinyFederation:
    """The same with rows that weigh 0 to 2 in the loss, times what their class weighs."""
    labels = whole.data.labels
    own = torch.from_numpy(np.random.default_rng(1).uniform(0, 2, len(labels.train)))
    own[3] = 0.0
    data = replace(whole.data, labels=replace(labels, weights=own))
    return replace(whole, data=data, training=replace(whole.training, class_weight=class_weight))


def with_rows_that_some_lack(whole: TinyFederation) -> TinyFederation:
    return replace(whole, data=lacking(whole.data))


def training(**changes: Any) -> DecidedTraining:
    asked = Training(**{"epochs": 4, "batch_size": 7, "learning_rate": 0.2, "observe_every_epochs": 0, **changes})
    return Defaults("sgd", SCALE_FREE.rates).decided(asked, rows=7)


SLOW_LINKS = Simulate(latency_seconds={"distribution": "exponential", "mean": 0.05})
PLANS = {
    "asynchronous": plan(Vafl()),
    "ReLU at the end of the bottoms": plan(Vafl(), bottom=RELU),
    "reordered": plan(Vafl(in_flight=3), simulate=Simulate(latency_seconds=SLOW_LINKS.latency_seconds, reorder=True)),
    "wait_for 2": plan(Vafl(wait_for=2)),
    "wait_for all": plan(Vafl(wait_for=3)),
    "max_delay 3": plan(Vafl(max_delay=3)),
    "max_delay 4, wait_for 2": plan(Vafl(max_delay=4, wait_for=2, in_flight=2)),
    "refreshes that time out": plan(Vafl(max_delay=4, refresh_timeout_seconds=0.01), simulate=SLOW_LINKS),
    "Poisson activation": plan(Vafl(activation_seconds={"party1": 0.05, "party2": 0.01, "party3": 0.03})),
    "in_flight 3": plan(Vafl(in_flight=3)),
    "in_flight 3, wait_for 2, Poisson": plan(Vafl(in_flight=3, wait_for=2, activation_seconds=0.004)),
    "warm_up": plan(Vafl(warm_up=True)),
    "shared rows": plan(Vafl(shared_rows=True)),
    "l2": plan(Vafl(), training=training(l2=0.05)),
    "l1": plan(Vafl(), training=training(l1=0.02)),
    "momentum, l2": plan(Vafl(), training=training(optimiser="momentum", momentum=0.8, learning_rate=0.05, l2=0.01)),
    "Adam": plan(Vafl(), training=training(optimiser="adam", learning_rate=0.02, top_learning_rate=0.01)),
    "Adam, in_flight 3, l1": plan(
        Vafl(in_flight=3), training=training(optimiser="adam", learning_rate=0.02, l1=0.1, l2=0.01)
    ),
    "Adam, rate of the top falls": plan(
        Vafl(), own_columns=True, training=training(optimiser="adam", learning_rate=0.02, top_decay="linear")
    ),
    "Adam, rate of the top falls, wait_for 2": plan(
        Vafl(wait_for=2), training=training(optimiser="adam", learning_rate=0.02, top_decay="linear")
    ),
    "split, Adam, rate of the top falls": plan(
        Split(), training=training(optimiser="adam", learning_rate=0.02, top_decay="linear")
    ),
    "own columns": plan(Vafl(), own_columns=True),
    "own columns, wait_for 2, max_delay 5": plan(Vafl(wait_for=2, max_delay=5), own_columns=True),
    "multiclass": plan(Vafl(), "multiclass"),
    "regression": plan(Vafl(), "regression", training=training(learning_rate=0.05)),
    "sum": plan(Vafl(), top=TopSettings("sum"), bottom=BottomSettings("linear")),
    "sum, multiclass, own columns": plan(Vafl(), "multiclass", own_columns=True, top=TopSettings("sum")),
    "sum-mlp": plan(Vafl(wait_for=2), top=TopSettings("sum-mlp", hidden=(5,))),
    "weights": weighted(plan(Vafl())),
    "weights, balanced, wait_for 2, own columns": weighted(plan(Vafl(wait_for=2), "multiclass", True), "balanced"),
    "weights, regression": weighted(plan(Vafl(), "regression", training=training(learning_rate=0.05))),
    "split, weights, a table": weighted(plan(Split()), {"1": 3.0}),
    "rows that some lack": with_rows_that_some_lack(plan(Vafl())),
    "rows that some lack, warm_up, max_delay 3": with_rows_that_some_lack(plan(Vafl(warm_up=True, max_delay=3))),
    "split, rows that some lack": with_rows_that_some_lack(plan(Split(), "multiclass")),
    "split": plan(Split()),
    "split, own columns, multiclass": plan(Split(), "multiclass", own_columns=True),
    "split, regression, sum": plan(
        Split(), "regression", top=TopSettings("sum"), training=training(learning_rate=0.05)
    ),
    "split, Adam, l2, l1": plan(
        Split(), training=training(optimiser="adam", learning_rate=0.02, l2=0.01, l1=0.01), bottom=RELU
    ),
}


# --- twins of a plan's parties, with the same initial weights ---------------------------------------------------


def bottom_twin(settings: BottomSettings, columns: int, outputs: int | None) -> nn.Module:
    hidden = () if settings.kind == "linear" else settings.hidden
    relu = settings.kind != "linear" and settings.output_activation and outputs is None
    return dense([columns, *hidden, outputs or settings.embedding], relu)


def top_twin(settings: TopSettings, widths: list[int], outputs: int) -> nn.Module:
    if settings.kind == "sum":
        return SumThen(outputs)
    if settings.kind == "sum-mlp":
        return SumThen(widths[0], dense([widths[0], *settings.hidden, outputs]))
    return dense([sum(widths), *settings.hidden, outputs])


def rules(plan: TinyFederation) -> tuple[Rule, Rule]:
    """Of the feature parties and of the label party."""
    given = plan.training
    top_rate = given.top_learning_rate
    steps = given.steps(plan.data.rows)
    at_once = getattr(plan.algorithm, "wait_for", len(plan.data.feature_parties))
    above = steps * len(plan.data.feature_parties) // at_once
    below = Rule(
        *(given.optimiser, given.learning_rate, given.momentum, given.l2, given.l1, steps),
        falls=given.decay == "linear",
    )
    falls = given.top_decay == "linear"
    return below, Rule(given.optimiser, top_rate, given.momentum, given.top_l2, planned=above, falls=falls)


def twin_weights(plan: TinyFederation) -> Tensor | None:
    """Normalised unless answers are noised; None if the plan says nothing of weights."""
    labels, asked = plan.data.labels, plan.training.class_weight
    if labels.weights is None and asked == "none":
        return None
    own = [1.0] * len(labels.train) if labels.weights is None else labels.weights.tolist()
    noised = getattr(plan.algorithm, "noise", 0.0) > 0
    return weights_of_rows([int(one) for one in labels.train.tolist()], own, asked, not noised)


def twins(plan: TinyFederation) -> tuple[dict[str, FeatureTwin], dict[str, Any]]:
    """Twins of the feature parties, and what a server's twin is built from."""
    data = plan.data
    outputs = Loss.outputs(data.labels.task, len(data.labels.classes))
    width = outputs if plan.top.kind == "sum" else None
    below, above = rules(plan)
    parties = plan.parties()
    alone = isinstance(plan.algorithm, Centralised)
    features = {}
    bottoms = {name: bottom_twin(plan.bottom, own.shape[0], width) for name, own in data.columns.items()}
    for name in data.feature_parties:
        holder, model = (data.label_party, f"bottom of {name}") if alone else (name, "bottom")
        take_weights(bottoms[name], parties[holder].model()[model])
        columns: Any = data.columns[name].train
        if data.columns[name].drop_share:
            columns = DroppingColumns(columns, data.columns[name].drop_share, generator_for(plan.seed, name, "noise"))
        features[name] = FeatureTwin(bottoms[name], columns, below)
    own = bottoms.get(data.label_party)
    models = parties[data.label_party].model()
    top = top_twin(plan.top, [width or plan.bottom.embedding] * len(bottoms), outputs)
    take_weights(top, models["top"])
    server: dict[str, Any] = {
        "top": top,
        "labels": data.labels.train,
        "task": data.labels.task,
        "rule": above,
        "weights": twin_weights(plan),
        "widths": dict.fromkeys(data.feature_parties, width or plan.bottom.embedding),
    }
    if own is not None:
        take_weights(own, models["bottom"])
        server |= {"own": own, "own_columns": data.columns[data.label_party].train}
    return features, server


# --- the twins repeat a run -------------------------------------------------------------------------------------


def close(ours: Any, twin: Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(ours).double(), twin.detach(), atol=1e-6, rtol=1e-5)


class Repetition:
    """Gives the twins each party's events in that party's order; an event waits for the twin of what it carries."""

    def __init__(
        self, plan: TinyFederation, run: Mapping[str, list[Item]], server: Server, features: dict[str, FeatureTwin]
    ):
        self.plan = plan
        self.server = server
        self.features = features
        self.sent: dict[tuple[str, str, int], Tensor] = {}  # (kind, feature party, number) → the twin's value
        self.compared: Counter[str] = Counter()
        left = {party: deque(items) for party, items in run.items()}
        moving = True
        while moving:
            moving = False
            for party, items in left.items():
                take = self.at_label_party if party == plan.data.label_party else self.at_feature_party
                while items and take(party, items[0]):
                    items.popleft()
                    moving = True
        assert not any(left.values()), "the twins did not come to what the run sent"
        assert server.replies == server.refreshes == []

    def at_feature_party(self, party: str, item: Item) -> bool:
        twin, message = self.features[party], item.message
        match message:
            case EmbeddingUpload():
                self.compare(("upload", party, message.exchange), twin.upload(message.exchange, message.rows), message)
            case WarmUpUpload():
                self.compare(("warm-up", party, int(message.rows[0])), twin.embed(message.rows), message)
            case RefreshedEmbedding():
                self.compare(("refresh", party, message.request), twin.embed(message.rows), message)
            case EvaluationEmbedding():
                test = self.plan.data.columns[party].test[message.first_row :][: len(message.embedding)].double()
                self.compare(("evaluation", party, message.evaluation), twin.bottom(test), message)
            case GradientReply() | GradientAndBatch():
                gradient = self.sent.get(("gradient", party, message.exchange))
                if gradient is None:
                    return False
                twin.apply(message.exchange, gradient)
        return True

    def compare(self, key: tuple[str, str, int], twin: Tensor, message: Any) -> None:
        close(message.embedding, twin)
        self.sent[key] = twin
        self.compared[key[0]] += 1

    def at_label_party(self, _: str, item: Item) -> bool:
        server, message = self.server, item.message
        if item.type == "TimerFired":
            server.stop_waiting()  # type: ignore[attr-defined]
        elif item.type == "Send":
            return self.answered(item)
        elif item.type == "Received":
            match message:
                case EmbeddingUpload():
                    key = ("upload", item.peer, message.exchange)
                    if key not in self.sent:
                        return False
                    server.receive(Upload(item.peer, message.exchange, message.rows.tolist(), self.sent[key]))  # type: ignore[attr-defined]
                case WarmUpUpload():
                    key = ("warm-up", item.peer, int(message.rows[0]))
                    if key not in self.sent:
                        return False
                    server.write(item.peer, message.rows.tolist(), self.sent[key])  # type: ignore[attr-defined]
                case RefreshedEmbedding():
                    key = ("refresh", item.peer, message.request)
                    if key not in self.sent:
                        return False
                    server.receive_fresh(message.request, item.peer, message.rows.tolist(), self.sent[key])  # type: ignore[attr-defined]
        return True

    def answered(self, item: Item) -> bool:
        """What the label party sent next is what its twin would have sent next."""
        match item.message:
            case RefreshRequest() as request:
                assert self.server.refreshes.pop(0) == (item.peer, request.rows.tolist())
                self.compared["request"] += 1
            case GradientReply() | GradientAndBatch() as reply:
                party, exchange, gradient = self.server.replies.pop(0)
                assert (item.peer, reply.exchange) == (party, exchange)
                close(reply.gradient, gradient)
                self.sent["gradient", party, exchange] = gradient
                self.compared["gradient"] += 1
        return True


@pytest.mark.parametrize("name", PLANS)
def test_every_message_and_weight_equals_the_twins(name: str, tmp_path: Path) -> None:
    plan = PLANS[name]
    before = weights({party: own.model() for party, own in plan.parties().items()})
    outcome = plan.run(tmp_path / "run")
    run = read_run(outcome.directory)
    features, given = twins(plan)
    server: Server
    if isinstance(plan.algorithm, Vafl):
        planned = plan.training.steps(plan.data.rows) * len(features)
        rule = {"t": plan.algorithm.wait_for, "D": plan.algorithm.max_delay, "last_exchange": planned}
        server = AsynchronousServer(**given, **rule)
    else:
        server = SynchronousServer(**given)
    repetition = Repetition(plan, run, server, features)

    # The comparison covered the whole run, and the run moved every model.
    assert repetition.compared["gradient"] == outcome.summary["exchanges"] >= 4 * 4 * 3
    assert repetition.compared["evaluation"] >= 3 * 3
    for party, twin in features.items():
        for ours, theirs in zip(outcome.models[party]["bottom"].parameters(), twin.bottom.parameters(), strict=True):
            close(ours, theirs)
    label = outcome.models[plan.data.label_party]
    final = [*label["top"].parameters(), *(label["bottom"].parameters() if "bottom" in label else [])]
    for ours, theirs in zip(final, server.parameters(), strict=True):
        close(ours, theirs)
    after = weights(outcome.models)
    moved = {name.rpartition(" ")[0] for name in after if (after[name] - before[name]).abs().max() > 1e-3}
    assert moved == {name.rpartition(" ")[0] for name in after}

    # The loss that was recorded is the mean of the exchanges it stands for.
    recorded = [item.fields for item in run["label"] if item.type == "Observe" and item.fields[3] is not None]
    group = plan.algorithm.wait_for if isinstance(plan.algorithm, Vafl) else 1
    assert len(recorded) * group == len(server.losses)
    expected = np.array(server.losses).reshape(-1, group).mean(1)
    np.testing.assert_allclose([fields[3] for fields in recorded], expected, atol=1e-6, rtol=1e-5)

    if isinstance(server, AsynchronousServer):
        staleness = outcome.summary["staleness"]
        assert staleness["mean"] == pytest.approx(np.mean(server.delays), abs=1e-12)
        assert staleness["max"] == max(server.delays)
        assert outcome.summary["counts"]["late_rows"] == server.too_late


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("max_delay 3", RefreshedEmbedding),
        ("max_delay 4, wait_for 2", RefreshedEmbedding),
        ("own columns, wait_for 2, max_delay 5", RefreshedEmbedding),
        ("warm_up", WarmUpUpload),
    ],
)
def test_the_plans_do_what_they_are_named_for(name: str, kind: type[Any], tmp_path: Path) -> None:
    PLANS[name].run(tmp_path / "run")
    assert receipts(read_run(tmp_path / "run")["label"], kind)


def test_the_plan_of_timed_out_refreshes_times_out(tmp_path: Path) -> None:
    outcome = PLANS["refreshes that time out"].run(tmp_path / "run")
    assert outcome.summary["counts"]["late_rows"] > 0
    assert any(item.type == "TimerFired" for item in read_run(tmp_path / "run")["label"])


def test_unequal_speeds_mean_unequal_uploads(tmp_path: Path) -> None:
    PLANS["asynchronous"].run(tmp_path / "run")
    label = read_run(tmp_path / "run")["label"]
    uploads = {party: len(receipts(label, EmbeddingUpload, party)) for party in ("party1", "party2", "party3")}
    assert uploads["party1"] < uploads["party2"] < uploads["party3"]


def test_a_gradient_is_applied_to_a_model_that_has_moved_since_the_upload(tmp_path: Path) -> None:
    """Or the plan with in_flight = 3 would say nothing about snapshots."""
    PLANS["in_flight 3"].run(tmp_path / "run")
    order = [
        (item.type, item.message.exchange)
        for item in read_run(tmp_path / "run")["party1"]
        if isinstance(item.message, EmbeddingUpload | GradientReply)
    ]
    assert order[:5] == [("Send", 0), ("Send", 1), ("Send", 2), ("Received", 0), ("Send", 3)]
    assert order[5] == ("Received", 1)


# --- centralised: no messages, so it is driven by hand, one step at a time --------------------------------------

CENTRALISED = {
    "sgd": plan(Centralised()),
    "multiclass, own columns": plan(Centralised(), "multiclass", own_columns=True),
    "regression, sum": plan(Centralised(), "regression", top=TopSettings("sum"), training=training(learning_rate=0.05)),
    "Adam, l2, l1": plan(Centralised(), training=training(optimiser="adam", learning_rate=0.02, l2=0.01, l1=0.01)),
    "weights": weighted(plan(Centralised()), "balanced"),
    "momentum": plan(Centralised(), training=training(optimiser="momentum", learning_rate=0.05)),
}


@pytest.mark.parametrize("name", CENTRALISED)
def test_every_step_of_centralised_equals_the_twins(name: str) -> None:
    plan = CENTRALISED[name]
    features, given = twins(plan)
    server = SynchronousServer(**given)
    party = plan.parties()["label"]
    generator = generator_for(plan.seed, "everybody", "rows")
    batches = Batches(plan.data.rows, plan.training.batch_size, generator)
    steps = 0
    effects = list(party.handle(Started(0.0)))
    while not any(isinstance(effect, Finish) for effect in effects):
        effects = list(party.handle(TimerFired(0.0, "step")))
        rows = batches.next().tolist()
        for who, twin in features.items():
            server.receive(Upload(who, steps, rows, twin.upload(steps, rows)))
        for who, exchange, gradient in server.replies:
            features[who].apply(exchange, gradient)
        server.replies.clear()
        steps += 1
        (observed,) = [effect for effect in effects if isinstance(effect, Observe)]
        assert observed.loss == pytest.approx(server.losses[-1], rel=1e-5, abs=1e-6)
        models = party.model()
        for who, twin in features.items():
            for ours, theirs in zip(models[f"bottom of {who}"].parameters(), twin.bottom.parameters(), strict=True):
                close(ours, theirs)
        final = [*models["top"].parameters(), *(models["bottom"].parameters() if "bottom" in models else [])]
        for ours, theirs in zip(final, server.parameters(), strict=True):
            close(ours, theirs)
    assert steps == 4 * 4


def test_the_label_party_of_split_names_each_batch_once(tmp_path: Path) -> None:
    PLANS["split"].run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    named = [item.message.next_rows.tolist() for item in sends(run["label"], GradientAndBatch, "party2")]
    used = [item.message.rows.tolist() for item in sends(run["party2"], EmbeddingUpload)]
    assert used[1:] == named[:-1]
    assert named[-1] == []
    assert sorted(row for rows in used[:4] for row in rows) == list(range(24))
