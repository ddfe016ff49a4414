"""Runs of the zeroth-order algorithms against their slow twins, message by message.

A twin is given what its party received, bit for bit, so each comparison is of one party alone: the embeddings sent for
the losses received, the losses sent for the embeddings received, and the weights at the end. All run at a
smoothing radius μ = 0.1. Finite differences divide a loss's float32 rounding, about 1e-7, by μ; the default 0.001 would
make that 1e-4 of slope. Of the feature parties it does not matter: their twins are given the very losses.

Tolerances: 1e-6 and 1e-5 of the value, for embeddings, losses and weights; `label_weights_tolerance` says where more
is needed.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from first_order_split import Server
from recorded_runs import Item, read_run, receipts, sends
from test_first_order_twin import RELU, plan, rules, training, twins, weighted
from torch import Tensor
from zeroth_order_split import (
    CascadedServer,
    CzofoServer,
    DpzvServer,
    EmbeddingTwin,
    GridTwin,
    Looked,
    LookingTwin,
    Looks,
    NoisedLossServer,
    WideGridTwin,
    WideTwin,
    ZooServer,
    ZooSyncServer,
    layers_of,
)

from colonnade import BottomSettings, Cascaded, Czofo, Dpzv, Simulate, TopSettings, Zoo, ZooSync
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.split_models.parts.asynchronous import Asynchronous
from colonnade.messages import (
    EvaluationEmbedding,
    LossAndBatch,
    LossReply,
    PairUpload,
    PerturbedUpload,
    RefreshedEmbedding,
    RefreshRequest,
    RowLossReply,
    SlopeReply,
    SlopesReply,
    WarmUpUpload,
)
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.testing import TinyFederation, tiny_data, weights

MU = 0.1
SLOW_LINKS = Simulate(latency_seconds={"distribution": "exponential", "mean": 0.05})
REORDERED = Simulate(latency_seconds=SLOW_LINKS.latency_seconds, reorder=True)
GENTLE = training(learning_rate=0.05)
BOTH_REGULARISED = training(learning_rate=0.02, l2=0.05, top_l2=0.1)
MOMENTUM = training(optimiser="momentum", momentum=0.8, learning_rate=0.02, l2=0.01)
ADAM = training(optimiser="adam", learning_rate=0.02, top_learning_rate=0.01, l2=0.01, l1=0.01)


def looking(kind: Callable[..., Any], **settings: Any) -> Any:
    """One direction, as in the papers, unless it is said how many."""
    return kind(smoothing_radius=MU, **{"directions": 1, **settings})


def gentle(algorithm: Any, task: str = "binary", own_columns: bool = False, **changes: Any) -> TinyFederation:
    return plan(algorithm, task, own_columns, **{"training": GENTLE, **changes})


SCALE_FREE = training(optimiser="scale-free", learning_rate=3.0, top_learning_rate=2.0)
SCALE_FREE_REGULARISED = training(optimiser="scale-free", learning_rate=3.0, top_learning_rate=2.0, l2=0.01, l1=0.01)

SMALL_BATCHES = replace(SCALE_FREE, batch_size=2, epochs=3)


def wide(algorithm: Any, **changes: Any) -> TinyFederation:
    """Three columns and batches of two rows."""
    data = tiny_data(parties=2)
    return replace(gentle(algorithm, **{"training": SMALL_BATCHES, "simulate": SLOW_LINKS, **changes}), data=data)


PLANS = {
    "cascaded, wide": wide(looking(Cascaded)),
    "cascaded, wide, reordered, 2 two-sided": wide(
        looking(Cascaded, directions=2, two_sided=True, in_flight=3), simulate=REORDERED
    ),
    "cascaded, wide, plain, unit-sphere": wide(
        looking(Cascaded, distribution="unit-sphere", perturb="layers"),
        training=replace(GENTLE, batch_size=2, epochs=3),
    ),
    "zoo, wide, noise": wide(looking(Zoo, clip=0.2, noise=0.1)),
    "zoo-sync, wide, 3 directions": wide(looking(ZooSync, directions=3)),
    "dpzv, wide": wide(looking(Dpzv)),
    "dpzv, wide, 2 directions, reordered": wide(looking(Dpzv, directions=2, in_flight=3), simulate=REORDERED),
    "zoo, scale-free by weights": gentle(looking(Zoo, perturb="weights"), training=SCALE_FREE),
    "zoo, plain by layers": gentle(looking(Zoo, perturb="layers", directions=2)),
    "cascaded, scale-free": gentle(looking(Cascaded), training=SCALE_FREE),
    "cascaded, scale-free, reordered": gentle(
        looking(Cascaded, directions=3, in_flight=3), simulate=REORDERED, training=SCALE_FREE
    ),
    "cascaded, scale-free, l2, l1, wait_for 2": gentle(
        looking(Cascaded, wait_for=2, directions=2), "multiclass", training=SCALE_FREE_REGULARISED
    ),
    "cascaded, plain by rate, scale-free by step": gentle(
        looking(Cascaded, step="scale-free"), training=training(learning_rate=3.0)
    ),
    "zoo, scale-free": gentle(looking(Zoo), training=SCALE_FREE),
    "zoo, scale-free, wait_for 3, 3 directions": gentle(looking(Zoo, wait_for=3, directions=3), training=SCALE_FREE),
    "zoo, scale-free, own columns": gentle(looking(Zoo), "regression", own_columns=True, training=SCALE_FREE),
    "zoo-sync, scale-free": gentle(looking(ZooSync), training=SCALE_FREE),
    "zoo-sync, scale-free, 2 two-sided, own columns": gentle(
        looking(ZooSync, directions=2, two_sided=True), "multiclass", own_columns=True, training=SCALE_FREE
    ),
    "dpzv, scale-free": gentle(looking(Dpzv, server_update="zeroth-order", server_directions=3), training=SCALE_FREE),
    "dpzv, scale-free, noise, reordered": gentle(
        looking(Dpzv, clip=0.05, noise=0.2, in_flight=3), simulate=REORDERED, training=SCALE_FREE
    ),
    "dpzv, scale-free, 3 directions, reordered": gentle(
        looking(Dpzv, directions=3, server_directions=2, in_flight=3), simulate=REORDERED, training=SCALE_FREE
    ),
    "dpzv, scale-free, 2 directions, noise, private-zo": gentle(
        looking(Dpzv, directions=2, noise=0.2, server_update="private-zo", server_noise=0.2), training=SCALE_FREE
    ),
    "dpzv, scale-free, l2, l1, first-order": gentle(
        looking(Dpzv, distribution="signs", server_update="first-order"), training=SCALE_FREE_REGULARISED
    ),
    "cascaded, weights": weighted(gentle(looking(Cascaded)), "balanced"),
    "cascaded, weights, noise, dp-sgd": weighted(
        gentle(looking(Cascaded, clip=0.2, noise=0.1, server_update="dp-sgd", server_noise=0.1)), {"0": 2.0}
    ),
    "zoo, weights, own columns": weighted(gentle(looking(Zoo), "multiclass", own_columns=True)),
    "zoo-sync, weights": weighted(gentle(looking(ZooSync)), {"1": 0.5}),
    "czofo, weights": weighted(gentle(looking(Czofo))),
    "dpzv, weights, noise, private-zo": weighted(
        gentle(looking(Dpzv, clip=0.05, noise=0.2, server_update="private-zo", server_noise=0.1)), {"1": 3.0}
    ),
    "cascaded": gentle(looking(Cascaded)),
    "cascaded, reordered": gentle(looking(Cascaded, in_flight=3), simulate=REORDERED),
    "cascaded, wait_for 2": gentle(looking(Cascaded, wait_for=2)),
    "cascaded, max_delay 3": gentle(looking(Cascaded, max_delay=3)),
    "cascaded, refreshes that time out": gentle(
        looking(Cascaded, max_delay=4, refresh_timeout_seconds=0.01), simulate=SLOW_LINKS
    ),
    "cascaded, in_flight 3, Poisson": gentle(looking(Cascaded, in_flight=3, activation_seconds=0.004)),
    "cascaded, warm_up, shared rows": gentle(looking(Cascaded, warm_up=True, shared_rows=True)),
    "cascaded, two-sided": gentle(looking(Cascaded, two_sided=True)),
    "cascaded, 3 directions": gentle(looking(Cascaded, directions=3)),
    "cascaded, 3 two-sided signs": gentle(looking(Cascaded, directions=3, two_sided=True, distribution="signs")),
    "cascaded, unit-sphere": gentle(looking(Cascaded, distribution="unit-sphere")),
    "cascaded, sphere, 2 directions": gentle(looking(Cascaded, distribution="sphere", directions=2)),
    "cascaded, own columns, max_delay 5": gentle(looking(Cascaded, wait_for=2, max_delay=5), own_columns=True),
    "cascaded, multiclass": gentle(looking(Cascaded), "multiclass"),
    "cascaded, regression": gentle(looking(Cascaded), "regression", training=training(learning_rate=0.01)),
    "cascaded, sum": gentle(looking(Cascaded), top=TopSettings("sum"), bottom=BottomSettings("linear")),
    "cascaded, sum, multiclass, own columns": gentle(
        looking(Cascaded), "multiclass", own_columns=True, top=TopSettings("sum")
    ),
    "cascaded, l2 on both sides": gentle(looking(Cascaded), training=BOTH_REGULARISED),
    "zoo, l2 on both sides": gentle(looking(Zoo), training=BOTH_REGULARISED),
    "dpzv, scale-free, wait_for 2": gentle(looking(Dpzv, wait_for=2), training=SCALE_FREE),
    "cascaded, momentum, l2": gentle(looking(Cascaded), training=MOMENTUM),
    "cascaded, Adam, l2, l1, in_flight 3": gentle(looking(Cascaded, in_flight=3), training=ADAM, bottom=RELU),
    "cascaded, noise, first-order, 3 directions": gentle(looking(Cascaded, clip=0.2, noise=0.1, directions=3)),
    "cascaded, noise, dp-sgd, two-sided": gentle(
        looking(Cascaded, noise=0.1, server_update="dp-sgd", server_clip=0.5, server_noise=0.1, two_sided=True),
        "multiclass",
    ),
    "zoo, noise, zeroth-order": gentle(looking(Zoo, clip=0.2, noise=0.1, wait_for=2)),
    "zoo, noise, private-zo, 2 two-sided": gentle(
        looking(Zoo, noise=0.1, server_update="private-zo", server_noise=0.1, directions=2, two_sided=True),
        own_columns=True,
    ),
    "zoo": gentle(looking(Zoo)),
    "zoo, wait_for 3, max_delay 4": gentle(looking(Zoo, wait_for=3, max_delay=4)),
    "zoo, in_flight 3, two-sided signs": gentle(looking(Zoo, in_flight=3, two_sided=True, distribution="signs")),
    "zoo, own columns, 3 directions": gentle(looking(Zoo, directions=3), "multiclass", own_columns=True),
    "zoo, unit-sphere, sum": gentle(looking(Zoo, distribution="unit-sphere"), top=TopSettings("sum")),
    "zoo, regression, sum-mlp": gentle(
        looking(Zoo), "regression", top=TopSettings("sum-mlp", hidden=(5,)), training=training(learning_rate=0.01)
    ),
    "zoo, momentum, l2": gentle(looking(Zoo), training=MOMENTUM),
    "zoo-sync": gentle(looking(ZooSync)),
    "zoo-sync, own columns, 2 two-sided": gentle(
        looking(ZooSync, directions=2, two_sided=True), "multiclass", own_columns=True
    ),
    "zoo-sync, regression, sum, sphere": gentle(
        looking(ZooSync, distribution="sphere"),
        "regression",
        top=TopSettings("sum"),
        training=training(learning_rate=0.01),
    ),
    "zoo-sync, momentum": gentle(looking(ZooSync), training=MOMENTUM),
    "czofo": gentle(looking(Czofo)),
    "czofo, in_flight 3, reordered": gentle(looking(Czofo, in_flight=3), simulate=REORDERED),
    "czofo, 3 two-sided, wait_for 2": gentle(looking(Czofo, directions=3, two_sided=True, wait_for=2), bottom=RELU),
    "czofo, unit-sphere, own columns": gentle(
        looking(Czofo, distribution="unit-sphere", max_delay=4), "multiclass", own_columns=True
    ),
    "czofo, regression, signs, Adam": gentle(looking(Czofo, distribution="signs"), "regression", training=ADAM),
    "czofo, Adam, rate falls, in_flight 2": gentle(
        looking(Czofo, in_flight=2), training=replace(ADAM, decay="linear", top_decay="linear")
    ),
    "dpzv, rate falls": gentle(looking(Dpzv), training=replace(GENTLE, decay="linear")),
    "dpzv": gentle(looking(Dpzv, server_update="zeroth-order")),
    "dpzv, tight clip, noise": gentle(looking(Dpzv, clip=0.05, noise=0.2, in_flight=3), simulate=REORDERED),
    "dpzv, no clip, wait_for 2, l2": gentle(
        looking(Dpzv, clip=0.0, wait_for=2, distribution="gaussian"), training=training(learning_rate=0.05, l2=0.05)
    ),
    "dpzv, zeroth-order, wait_for 2": gentle(looking(Dpzv, wait_for=2, server_update="zeroth-order")),
    "dpzv, noise, private-zo, wait_for 2": gentle(
        looking(Dpzv, clip=0.05, noise=0.2, server_update="private-zo", server_noise=0.1, wait_for=2)
    ),
    "dpzv, noise, dp-sgd, wait_for 2": gentle(
        looking(Dpzv, noise=0.2, server_update="dp-sgd", server_clip=0.5, server_noise=0.1, wait_for=2)
    ),
    "dpzv, signs, l1, first-order": gentle(
        looking(Dpzv, distribution="signs", server_update="first-order"),
        training=training(learning_rate=0.05, l1=0.05),
    ),
    "dpzv, private-zo, max_delay 4": gentle(
        looking(Dpzv, noise=0.1, server_update="private-zo", server_clip=0.2, server_noise=0.1, max_delay=4),
        own_columns=True,
    ),
    "dpzv, dp-sgd, multiclass": gentle(
        looking(Dpzv, server_update="dp-sgd", server_clip=0.5, server_noise=0.1, warm_up=True), "multiclass"
    ),
    "dpzv, 3 directions, clip of the batch, multiclass": gentle(
        looking(Dpzv, directions=3, noise=0.2, server_update="frozen", wait_for=2), "multiclass"
    ),
    "dpzv, clip of the batch, regression": gentle(
        looking(Dpzv, noise=0.2, server_update="private-zo", server_noise=0.2, distribution="signs"),
        "regression",
        training=training(learning_rate=0.01),
    ),
    "dpzv, frozen, regression": gentle(
        looking(Dpzv, server_update="frozen"), "regression", training=training(learning_rate=0.01)
    ),
}
FEATURES = {Cascaded: LookingTwin, Zoo: LookingTwin, ZooSync: LookingTwin, Czofo: EmbeddingTwin, Dpzv: GridTwin}
SERVERS = {Cascaded: CascadedServer, Zoo: ZooServer, ZooSync: ZooSyncServer, Czofo: CzofoServer, Dpzv: DpzvServer}


def twins_that_look(given: TinyFederation) -> tuple[dict[str, Any], Server]:
    features, server = twins(given)
    settings = given.algorithm
    looks = Looks(settings.distribution, getattr(settings, "directions", 1), MU, getattr(settings, "two_sided", True))
    if getattr(settings, "step", "") == "scale-free":
        given = replace(given, training=replace(given.training, optimiser="scale-free"))
        _, server = twins(given)
    by_layers = getattr(settings, "perturb", "weights") == "layers" or (
        getattr(settings, "perturb", "weights") == "auto" and given.training.optimiser == "scale-free"
    )
    looks_above = (
        not isinstance(settings, Czofo) and getattr(settings, "server_update", "zeroth-order") == "zeroth-order"
    )
    if by_layers and looks_above and given.training.optimiser == "scale-free":
        longer = getattr(settings, "wait_for", len(features)) ** 0.5 * given.training.top_learning_rate
        _, server = twins(replace(given, training=replace(given.training, top_learning_rate=longer)))
    below, _ = rules(given)
    kind: Callable[..., Any] = FEATURES[type(settings)]
    rows = given.training.batch_size
    layers = layers_of(next(iter(features.values())).bottom)
    if by_layers and any(layer.in_features > rows for layer in layers):
        kind = partial(WideGridTwin if isinstance(settings, Dpzv) else WideTwin, rows)
        # Of a wide layer a number for each unit and row, and its bias.
        drawn = [(rows if layer.in_features > rows else layer.in_features) * layer.out_features for layer in layers]
        if isinstance(settings, Dpzv):
            below = replace(below, coordinates=sum(drawn) + sum(layer.out_features for layer in layers))
    looking = {
        name: kind(twin.bottom, twin.columns, below, looks, generator_for(given.seed, name, "directions"))
        for name, twin in features.items()
    }
    if isinstance(settings, Dpzv):
        count = settings.server_directions or (15 if given.training.optimiser == "scale-free" else 1)
        looks = replace(looks, q=count)
    server |= {"looks": looks, "directions": generator_for(given.seed, "label", "directions"), "by_layers": by_layers}
    if isinstance(settings, Asynchronous):
        planned = given.training.steps(given.data.rows) * len(features)
        server |= {"t": settings.wait_for, "D": settings.max_delay, "last_exchange": planned}
    noised = getattr(settings, "noise", 0.0) > 0
    if noised or isinstance(settings, Dpzv):
        own = ("clip", "noise", "server_update", "server_clip", "server_noise")
        server |= {name: getattr(settings, name) for name in own}
        if settings.server_update == "auto":
            server["server_update"] = "first-order"
        server["noises"] = SecretGaussian(given.seed, "label", "labels").normals
    kind_above = NoisedLossServer if noised and not isinstance(settings, Dpzv) else SERVERS[type(settings)]
    return looking, kind_above(**server)


def close(ours: Any, twin: Tensor, tolerance: float = 1e-6) -> None:
    ours = torch.from_numpy(np.array(ours)) if isinstance(ours, np.ndarray) else torch.as_tensor(ours)
    torch.testing.assert_close(ours.detach().double(), twin.detach(), atol=tolerance, rtol=1e-5)


def repeat_feature_party(given: TinyFederation, party: str, items: list[Item], twin: Any) -> Counter[str]:
    compared: Counter[str] = Counter()
    # Moves of dpzv are on a grid of 1e-6; a rounding that falls the other way is one grid step away.
    tolerance = 4e-6 if isinstance(given.algorithm, Dpzv) else 1e-6
    for item in items:
        message: Any = item.message
        match message:
            case PerturbedUpload():
                embedding, others = twin.look(message.exchange, message.rows)
                close(message.embedding, embedding)
                close(message.perturbed, torch.stack(others))
                compared["upload"] += 1
            case PairUpload():
                _, others = twin.look(message.exchange, message.rows)
                close(np.concatenate([message.plus, message.minus]), torch.cat(others), tolerance)
                compared["upload"] += 1
            case WarmUpUpload() | RefreshedEmbedding():
                close(message.embedding, twin.embed(message.rows), tolerance)
                compared["asked for"] += 1
            case EvaluationEmbedding():
                test = given.data.columns[party].test[message.first_row :][: len(message.embedding)].double()
                close(message.embedding, twin.bottom(test), tolerance)
                compared["evaluation"] += 1
            case LossReply() | LossAndBatch() | RowLossReply():
                twin.take(message.exchange, torch.from_numpy(np.array(message.losses)).double())
            case SlopeReply():
                twin.take_slopes(message.exchange, [message.slope])
            case SlopesReply():
                twin.take_slopes(message.exchange, message.slopes.tolist())
    return compared


def looked(sender: str, message: Any) -> Looked:
    """An upload as it arrived, in float64."""

    def wide(array: Any) -> Tensor:
        return torch.from_numpy(np.array(array)).double()

    rows = message.rows.tolist()
    if isinstance(message, PairUpload):
        others = list(torch.cat([wide(message.plus), wide(message.minus)]).split(len(rows)))
        return Looked(sender, message.exchange, rows, torch.stack(others).mean(0), others)
    return Looked(sender, message.exchange, rows, wide(message.embedding), list(wide(message.perturbed)))


def repeat_label_party(items: list[Item], server: Any, tolerance: float) -> Counter[str]:
    compared: Counter[str] = Counter()
    for item in items:
        message: Any = item.message
        if item.type == "TimerFired":
            server.stop_waiting()
        elif item.type == "Received":
            match message:
                case PerturbedUpload() | PairUpload():
                    server.receive(looked(item.peer, message))
                case WarmUpUpload():
                    server.write(item.peer, message.rows.tolist(), torch.from_numpy(message.embedding.copy()).double())
                case RefreshedEmbedding():
                    fresh = torch.from_numpy(message.embedding.copy()).double()
                    server.receive_fresh(message.request, item.peer, message.rows.tolist(), fresh)
        elif item.type == "Send":
            match message:
                case RefreshRequest():
                    assert server.refreshes.pop(0) == (item.peer, message.rows.tolist())
                    compared["request"] += 1
                case LossReply() | LossAndBatch() | RowLossReply() | SlopeReply() | SlopesReply():
                    party, exchange, expected = server.replies.pop(0)
                    assert (item.peer, message.exchange) == (party, exchange)
                    if isinstance(message, SlopeReply):
                        # Two losses, each as far off as the tolerance, over 2μ.
                        close(np.array([message.slope]), expected, tolerance / MU)
                    elif isinstance(message, SlopesReply):
                        close(message.slopes, expected, tolerance / MU)
                    else:
                        close(message.losses, expected, tolerance)
                    compared["reply"] += 1
    assert server.replies == server.refreshes == []
    return compared


def label_weights_tolerance(given: TinyFederation) -> float:
    """How far the label party's float32 weights may be from its twin's.

    First order (`cascaded`, `czofo`, dpzv's "first-order" and "dp-sgd"): as everywhere, 1e-6. Zeroth order: a mean loss
    is off by about ε = 5e-8, a slope by ε/μ, or by √2 ε/2μ two-sided; a step moves each weight by η0 φ(d)|u| times
    that, with φ(d)|u_i| at most 4 (normal) or 4√d (unit sphere, d < 100): 40. Momentum β repeats a step 1/(1 − β)
    times. The errors of some 50 steps have random signs, so they add up like √50 ≈ 7.
    """
    settings = given.algorithm
    if isinstance(settings, Cascaded) and not isinstance(settings, Zoo):
        return 1e-6
    if isinstance(settings, Dpzv) and settings.server_update not in ("zeroth-order", "private-zo"):
        return 1e-6
    largest = 40 if settings.distribution == "unit-sphere" else 4
    repeated = 1 / (1 - given.training.momentum) if given.training.optimiser == "momentum" else 1
    return 1e-6 + given.training.learning_rate * largest * repeated * 7 * 5e-8 / MU


@pytest.mark.parametrize("name", PLANS)
def test_every_message_and_weight_equals_the_twins(name: str, tmp_path: Path) -> None:
    given = PLANS[name]
    before = weights({party: own.model() for party, own in given.parties().items()})
    outcome = given.run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    features, server = twins_that_look(given)
    tolerance = label_weights_tolerance(given)
    at_label = repeat_label_party(run["label"], server, tolerance)
    for party, twin in features.items():
        compared = repeat_feature_party(given, party, run[party], twin)
        assert compared["upload"] == len(sends(run[party], (PerturbedUpload, PairUpload))) >= 4
        assert compared["evaluation"] >= 3

    # The comparison covered the whole run, and the run moved every model.
    assert at_label["reply"] == outcome.summary["exchanges"] >= 4 * 4 * 3
    for party, twin in features.items():
        for ours, theirs in zip(outcome.models[party]["bottom"].parameters(), twin.bottom.parameters(), strict=True):
            close(ours, theirs, 4e-6 if isinstance(given.algorithm, Dpzv) else 1e-6)
    label = outcome.models["label"]
    final = [*label["top"].parameters(), *(label["bottom"].parameters() if "bottom" in label else [])]
    for ours, theirs in zip(final, server.parameters(), strict=True):
        close(ours, theirs, tolerance)
    after = weights(outcome.models)
    moved = {name.rpartition(" ")[0] for name in after if (after[name] - before[name]).abs().max() > 1e-3}
    frozen = {"label top"} if getattr(given.algorithm, "server_update", "") == "frozen" else set()
    assert moved == {name.rpartition(" ")[0] for name in after} - frozen

    # The loss that was recorded is the mean of the exchanges it stands for.
    recorded = [item.fields[3] for item in run["label"] if item.type == "Observe" and item.fields[3] is not None]
    group = getattr(given.algorithm, "wait_for", 1)
    assert len(recorded) * group == len(server.losses)
    np.testing.assert_allclose(recorded, np.array(server.losses).reshape(-1, group).mean(1), atol=tolerance, rtol=1e-5)
    if isinstance(given.algorithm, Asynchronous):
        staleness = outcome.summary["staleness"]
        assert staleness["mean"] == pytest.approx(np.mean(server.delays), abs=1e-12)  # type: ignore[attr-defined]
        assert outcome.summary["counts"]["late_rows"] == server.too_late  # type: ignore[attr-defined]


def test_the_plans_do_what_they_are_named_for(tmp_path: Path) -> None:
    def label(name: str) -> list[Item]:
        PLANS[name].run(tmp_path / name)
        return read_run(tmp_path / name)["label"]

    assert receipts(label("cascaded, max_delay 3"), RefreshedEmbedding)
    assert receipts(label("dpzv, private-zo, max_delay 4"), RefreshedEmbedding)
    assert receipts(label("cascaded, warm_up, shared rows"), WarmUpUpload)
    assert any(item.type == "TimerFired" for item in label("cascaded, refreshes that time out"))
    clipped = [abs(item.message.slope) for item in sends(label("dpzv, tight clip, noise"), SlopeReply)]
    assert max(clipped) > 0.05  # the noise is on what was clipped
    label("czofo, in_flight 3, reordered")
    order = [
        item.message.exchange
        for item in read_run(tmp_path / "czofo, in_flight 3, reordered")["party1"]
        if isinstance(item.message, RowLossReply)
    ]
    assert order != sorted(order)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cascaded", {"two_sided": True}),
        ("cascaded", {"smoothing_radius": 0.11}),
        ("cascaded, unit-sphere", {"distribution": "sphere"}),
        ("czofo", {"distribution": "sphere"}),
        ("zoo", {"wait_for": 2}),
    ],
)
def test_a_run_with_another_setting_is_told_from_the_twin(name: str, change: dict[str, Any], tmp_path: Path) -> None:
    """Or the comparisons above could not fail."""
    given = PLANS[name]
    other = replace(given, algorithm=replace(given.algorithm, **change))
    other.run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    features, server = twins_that_look(given)
    with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)):
        repeat_label_party(run["label"], server, 1e-6)
        for party, twin in features.items():
            repeat_feature_party(given, party, run[party], twin)
