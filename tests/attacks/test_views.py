"""A view holds what its adversary would have seen, and nothing else."""

from collections import Counter
from pathlib import Path

import pytest

import colonnade
from colonnade.attacks.view import read_party_view, read_wire_view
from colonnade.messages import EmbeddingUpload
from colonnade.trace import read_trace

TRAINING = colonnade.Training(epochs=2, batch_size=16)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a small noised run: they hold Spend, Observe and timers as well as messages."""
    out = tmp_path_factory.mktemp("runs") / "run"
    privacy = colonnade.PerturbationSettings(noise=0.5, clip=1.0)
    data = colonnade.dataset("iris", parties=2)
    algorithm = colonnade.Vafl(activation_seconds=0.05)
    colonnade.train(data, algorithm, training=TRAINING, privacy=privacy, out=out, trace=True)
    return out / "trace"


def test_the_traces_hold_more_than_crosses(traces: Path) -> None:
    kinds = {record.type for path in traces.iterdir() for record in read_trace(path)}
    assert {"Spend", "Observe", "SetTimer", "TimerFired", "Send", "Received"} <= kinds


def test_the_wire_carries_frames_and_nothing_else(traces: Path) -> None:
    wire = read_wire_view(traces.iterdir())
    sent = Counter(
        (path.stem, *record.fields) for path in traces.iterdir() for record in read_trace(path) if record.type == "Send"
    )
    assert Counter(wire.frames) == sent
    assert vars(wire).keys() == {"frames"}  # no timer, no observation, no column, no model
    assert all(type(sender) is str and type(receiver) is str for sender, receiver, _ in wire.frames)


def test_each_senders_order_is_kept_on_the_wire(traces: Path) -> None:
    crossings = read_wire_view(traces.iterdir()).crossings()
    for party in ("party1", "party2"):
        uploads = [m.exchange for sender, _, m in crossings if sender == party and isinstance(m, EmbeddingUpload)]
        assert uploads == list(range(len(uploads))) and len(uploads) > 10


def test_a_party_sees_its_own_messages_only(traces: Path) -> None:
    views = {path.stem: read_party_view(path) for path in traces.iterdir()}
    assert views.keys() == {"label", "party1", "party2"}
    for party, view in views.items():
        assert view.records == tuple(read_trace(traces / f"{party}.trace"))
        assert all(party in (sender, receiver) for sender, receiver, _ in view.crossings())
        assert view.columns is None and view.model is None  # unless they are given: they are in no trace
    assert not [c for c in views["party1"].crossings() if "party2" in (c.sender, c.receiver)]


def test_a_feature_party_never_sees_the_others_embeddings(traces: Path) -> None:
    theirs = {
        m.embedding.tobytes()
        for sender, _, m in read_party_view(traces / "label.trace").crossings()
        if sender == "party2" and isinstance(m, EmbeddingUpload)
    }
    seen = b"".join(
        record.fields[-1]
        for record in read_party_view(traces / "party1.trace").records
        if record.type in ("Received", "Send")
    )
    assert theirs and not [embedding for embedding in theirs if embedding in seen]


def test_a_representation_shows_no_value(traces: Path) -> None:
    shown = repr(read_party_view(traces / "label.trace")) + repr(read_wire_view(traces.iterdir()))
    assert "array" not in shown and "." not in shown and len(shown) < 120
