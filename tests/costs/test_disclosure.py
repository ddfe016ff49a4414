"""What each party learnt: the sentences of small runs, word for word, and counts that are the traces' own."""

from pathlib import Path
from typing import Any

import pytest

import colonnade
from colonnade import Czofo, Dpzv, PerturbationSettings, Split, Training, Vafl, ZooSync
from colonnade.messages import Message
from colonnade.trace import read_trace
from colonnade.wire.codec import decode

# 112 training rows in batches of 15: seven whole ones and one of 7 an epoch; 38 test rows.
DATA = colonnade.dataset("iris", parties=2)
TRAINING = Training(epochs=2, batch_size=15, learning_rate=0.01, optimiser="sgd")


def sentences(algorithm: Any, **privacy: Any) -> list[str]:
    summary = colonnade.train(
        DATA, algorithm, training=TRAINING, privacy=PerturbationSettings(**privacy), seed=2
    ).summary
    assert all({"sender", "viewer", "kind", "frames", "sentence"} == {*one} for one in summary["learnt"])
    return [one["sentence"] for one in summary["learnt"] if "party2" not in (one["sender"], one["viewer"])]


def test_vafl() -> None:
    # 16 answered uploads of 224 rows, and one of 15 that no reply came to.
    assert sentences(Vafl(warm_up=True), noise=0.5, clip=1.0) == [
        "label saw 112 noisy 16-number embeddings of 112 training rows of party1 before the training.",
        "label saw 239 noisy 16-number embeddings of 112 training rows of party1.",
        "label saw 76 noisy 16-number embeddings of 38 test rows of party1.",
        "party1 saw 224 exact 16-number gradients that tell of label's labels.",
        "party1 was asked 2 times by label for test rows.",
    ]


def test_dpzv() -> None:
    told = sentences(Dpzv(clip=1.0, noise=2.0, server_update="frozen"))
    assert told[0] == "label saw 478 exact 16-number embeddings of 112 training rows of party1."
    assert told[2] == "party1 saw 16 noisy mean slopes, one number per batch, that tell of label's labels."


def test_lock_step() -> None:
    told = sentences(ZooSync(directions=1))
    assert told[0] == "label saw 448 exact 16-number embeddings of 112 training rows of party1."
    assert "party1 saw 32 exact mean losses of 16 batches, that tell of label's labels." in told
    assert "party1 saw 224 exact 16-number gradients that tell of label's labels." in sentences(Split())


def test_czofo() -> None:
    told = sentences(Czofo(directions=2))
    assert told[0] == "label saw 717 exact 16-number embeddings of 112 training rows of party1."
    assert "party1 saw 672 exact losses of single rows, that tell of label's labels." in told


def test_linear_federations() -> None:
    told = colonnade.train(DATA, "afsgd", training=TRAINING).summary["learnt"]
    assert {one["viewer"] for one in told} == {"other parties"}
    sums = [one["sentence"] for one in told if one["kind"] == "ProductSum" and one["sender"] == "party1"]
    assert sums and sums[0].startswith("Other parties saw what party1 sent: exact sums of products, in ")


def test_one_who_trains_alone_tells_nobody_anything() -> None:
    assert colonnade.train(DATA, "centralised", training=TRAINING).summary["learnt"] == []


class Traced:
    """What a trace says of a run: frames and rows, by sender, viewer and kind."""

    def __init__(self, directory: Path) -> None:
        self.frames: dict[tuple[str, str, str], int] = {}
        self.rows: dict[tuple[str, str, str], int] = {}
        for path in (directory / "trace").glob("*.trace"):
            for record in read_trace(path):
                if record.type == "Received":
                    message = decode(bytearray(record.fields[2]))
                    way = (record.fields[1], path.stem, type(message).__name__)
                    self.frames[way] = self.frames.get(way, 0) + 1
                    values = getattr(message, "embedding", getattr(message, "gradient", []))
                    self.rows[way] = self.rows.get(way, 0) + len(values)


BUDGETS: dict[str, tuple[Any, float, dict[str, float]]] = {
    # The test rows' budget pays for a few of the evaluations; the answers after that are empty.
    "vafl": (Vafl(warm_up=True), 9.0, {"columns_epsilon": 2.0, "noise": 6.0}),
    "split": (Split(), 9.0, {"columns_epsilon": 3.0, "noise": 3.0}),
    "vafl, nothing affordable": (Vafl(warm_up=True), 2.0, {"columns_epsilon": 0.1, "noise": 0.5}),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_sentences_count_as_a_trace_does_when_a_budget_runs_out(name: str, tmp_path: Path) -> None:
    algorithm, epochs, privacy = BUDGETS[name]
    outcome = colonnade.train(
        colonnade.dataset("iris", parties=3),
        algorithm,
        training=Training(
            epochs=epochs, batch_size=15, learning_rate=0.01, optimiser="sgd", evaluate_every_epochs=0.25
        ),
        privacy=PerturbationSettings(clip=1.0, bottom_update="frozen", **privacy),
        bottom=colonnade.BottomSettings(hidden=(), embedding=4),
        out=tmp_path / "run",
        trace=True,
    )
    traced = Traced(tmp_path / "run")
    evaluations = traced.frames["party1", "label", "EvaluationEmbedding"]
    assert traced.rows["party1", "label", "EvaluationEmbedding"] < 38 * evaluations
    for one in outcome.summary["learnt"]:
        way = (one["sender"], one["viewer"], one["kind"])
        if one["kind"] == "BatchRequest":
            assert traced.frames[way] == one["frames"] == 1
        elif one["kind"] in ("EvaluationEmbedding", "WarmUpUpload"):
            assert traced.frames[way] == one["frames"]
            assert f"label saw {traced.rows[way]:,} noisy 4-number embedding" in one["sentence"]
        elif one["kind"] in ("GradientReply", "GradientAndBatch"):
            assert f" saw {traced.rows[way]:,} exact 4-number gradients" in one["sentence"]


def test_refusals_are_told_in_all(tmp_path: Path) -> None:
    """Nothing tells who got how many of them, so nobody is told to have got a share."""
    outcome = colonnade.train(
        colonnade.dataset("iris", parties=3),
        Dpzv(server_update="frozen", clip=1.0, noise=0.5),
        training=Training(epochs=4.0, batch_size=15, learning_rate=0.01, optimiser="sgd"),
        privacy=PerturbationSettings(labels_epsilon=1.0),
        simulate=colonnade.Simulate(parties={"party1": colonnade.SimulatedParty(slowdown=3.0)}),
        out=tmp_path / "run",
        trace=True,
    )
    traced = Traced(tmp_path / "run")
    each = [count for (_, _, kind), count in traced.frames.items() if kind == "RowsRefused"]
    assert len({*each}) > 1  # not the same for all
    (told,) = [one for one in outcome.summary["learnt"] if one["kind"] == "RowsRefused"]
    assert (told["viewer"], told["frames"]) == ("feature parties", sum(each))
    words = f"which rows have no budget left, {sum(each)} times in all."
    assert told["sentence"] == f"The feature parties were told by label {words}"


@pytest.mark.parametrize("epochs", [1, 12])  # 12: numbers of uploads that take another byte
def test_rows_are_counted_as_they_were_sent(epochs: int, tmp_path: Path) -> None:
    training = Training(epochs=epochs, batch_size=15)
    outcome = colonnade.train(DATA, Vafl(max_delay=5, in_flight=2), training=training, out=tmp_path / "run", trace=True)
    sent: dict[str, int] = {}
    frames: dict[str, int] = {}
    for record in read_trace(tmp_path / "run" / "trace" / "party1.trace"):
        if record.type == "Send":
            message: Message = decode(bytearray(record.fields[1]))
            kind = type(message).__name__
            sent[kind] = sent.get(kind, 0) + len(getattr(message, "embedding", []))
            frames[kind] = frames.get(kind, 0) + 1
    told = {one["kind"]: one for one in outcome.summary["learnt"] if one["sender"] == "party1"}
    assert {kind: one["frames"] for kind, one in told.items()} == frames
    for kind in ("EmbeddingUpload", "EvaluationEmbedding"):
        assert f" {sent[kind]:,} exact" in told[kind]["sentence"]
    about = int(told["RefreshedEmbedding"]["sentence"].split(" saw about ")[1].split()[0].replace(",", ""))
    assert about == pytest.approx(sent["RefreshedEmbedding"], rel=0.02, abs=1)
