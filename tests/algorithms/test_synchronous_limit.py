"""No delay, no noise, the same rows for all: `vafl` that waits for everybody is `split` is `centralised` is SGD.

Each is compared with a plain PyTorch loop (tests/reference/first_order_split.py), step by step, to 1e-6.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from first_order_split import dense, plain_loop, take_weights
from recorded_runs import NO_TIME, read_run, sends
from torch import Tensor

from colonnade import BottomSettings, Centralised, Split, TopSettings, Training, Vafl
from colonnade.messages import EmbeddingUpload, GradientAndBatch, GradientReply
from colonnade.party import Finish, Started, TimerFired
from colonnade.testing import TinyFederation, tiny_data

BOTTOM = BottomSettings("mlp", hidden=(6,), embedding=4, output_activation=False)
PARTIES = ("party1", "party2", "party3")
Steps = list[dict[str, tuple[Tensor, Tensor]]]  # of each step, by party: the embedding and its gradient


def plan(algorithm: Any, task: str) -> TinyFederation:
    # 24 rows in batches of 7: three whole ones and one of 3 rows per epoch.
    training = Training(epochs=5, batch_size=7, learning_rate=0.2 if task != "regression" else 0.05, optimiser="sgd")
    top = TopSettings("concat-mlp", hidden=(5,))
    return TinyFederation(tiny_data(task), algorithm, training, BOTTOM, top, simulate=NO_TIME)


def loop(given: TinyFederation, batches: list[list[int]]) -> tuple[Steps, list[list[Tensor]]]:
    """The plain loop's embeddings and gradients, and all weights after each step."""
    data = given.data
    outputs = 3 if data.labels.task == "multiclass" else 1
    bottoms = {name: dense([2, 6, 4]) for name in PARTIES}
    top = dense([12, 5, outputs])
    parties = given.parties()
    for name in PARTIES:
        take_weights(bottoms[name], parties[name].model()["bottom"])
    take_weights(top, parties["label"].model()["top"])
    steps: Steps = []
    weights: list[list[Tensor]] = []

    def look(_: int, embeddings: dict[str, Tensor]) -> None:
        steps.append({name: (value.detach(), value.grad) for name, value in embeddings.items()})
        models = [top, *bottoms.values()]
        weights.append([weight.detach().clone() for model in models for weight in model.parameters()])

    columns = {name: own.train for name, own in data.columns.items()}
    rate = given.training.learning_rate
    plain_loop(bottoms, columns, top, data.labels.train, data.labels.task, batches, rate, look)
    return steps, weights


def close(ours: Any, plain: Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(ours).double(), plain, atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_without_delay_all_four_are_the_same(task: str, tmp_path: Path) -> None:
    asynchronous = plan(Vafl(wait_for=3, shared_rows=True), task)
    synchronous = plan(Split(), task)
    everybody = asynchronous.run(tmp_path / "vafl")
    together = synchronous.run(tmp_path / "split")
    runs = {"vafl": read_run(tmp_path / "vafl"), "split": read_run(tmp_path / "split")}
    batches = [item.message.rows.tolist() for item in sends(runs["split"]["party1"], EmbeddingUpload)]
    assert len(batches) == 5 * 4
    steps, weights = loop(synchronous, batches)

    for run, reply in ((runs["vafl"], GradientReply), (runs["split"], GradientAndBatch)):
        for party in PARTIES:
            uploads = [item.message for item in sends(run[party], EmbeddingUpload)][: len(steps)]
            replies = [item.message for item in sends(run["label"], reply, party)]
            assert len(uploads) == len(replies) == len(steps)
            for rows, step, upload, answer in zip(batches, steps, uploads, replies, strict=True):
                embedding, gradient = step[party]
                assert upload.rows.tolist() == rows
                close(upload.embedding, embedding)
                close(answer.gradient, gradient)
    for outcome in (everybody, together):
        modules = [outcome.models["label"]["top"], *(outcome.models[party]["bottom"] for party in PARTIES)]
        assert outcome.summary["staleness"]["max"] == 0
        final = [weight for module in modules for weight in module.parameters()]
        for ours, plain in zip(final, weights[-1], strict=True):
            close(ours, plain)
    assert everybody.summary["test"] == pytest.approx(together.summary["test"], abs=1e-5)

    alone = replace(synchronous, algorithm=Centralised()).parties()["label"]
    effects = alone.handle(Started(0.0))
    for number, plain_weights in enumerate(weights, start=1):
        assert not any(isinstance(effect, Finish) for effect in effects)
        effects = alone.handle(TimerFired(0.0, "step"))
        models = alone.model()
        modules = [models["top"], *(models[f"bottom of {party}"] for party in PARTIES)]
        ours = [weight for module in modules for weight in module.parameters()]
        for weight, plain in zip(ours, plain_weights, strict=True):
            close(weight, plain)
        assert alone.counts()["steps"] == number
    assert any(isinstance(effect, Finish) for effect in effects)


def test_with_delay_asynchronous_is_something_else(tmp_path: Path) -> None:
    """Or the equality above would say little: the very same settings, but nobody waits."""
    waiting = plan(Vafl(wait_for=3, shared_rows=True), "binary").run(tmp_path / "waiting")
    rushing = plan(Vafl(shared_rows=True), "binary").run(tmp_path / "rushing")
    assert rushing.summary["staleness"]["max"] > 0
    one, other = (outcome.models["party1"]["bottom"][0].weight for outcome in (waiting, rushing))
    assert (one - other).abs().max() > 1e-3
