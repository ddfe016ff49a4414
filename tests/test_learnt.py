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
TRAINING = Training(epochs=2, batch_size=15, learning_rate=0.01)


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
    assert told[2] == "party1 saw 16 noisy mean slopes, one number a batch, that tell of label's labels."


def test_lock_step() -> None:
    told = sentences(ZooSync())
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
