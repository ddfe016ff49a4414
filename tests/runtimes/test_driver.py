"""The driver performs effects in the order in which they were returned, and nothing after a refusal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ProtocolError
from colonnade.messages import BatchRequest, EvaluationRequest, Message
from colonnade.party import Checkpoint, Effect, Finish, Observe, Received, Send, SetTimer, Spend, Started
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.driver import Driver, encoded
from colonnade.runtimes.recorder import Recorder
from colonnade.testing import LETTER_BYTES, evaluation, letter, says
from colonnade.trace import TraceWriter, read_trace
from colonnade.wire.codec import decode, encode


def release(rows: int = 2, noise: float = 4.0) -> PrivacyEvent:
    ids = np.arange(rows, dtype=np.uint32)
    return PrivacyEvent("gaussian", 2.0, noise, rows, row_ids=ids, protects="one row", viewers=("label",))


class Diary:
    """A port, a ledger and a recorder that write into one list what they were asked to do, in order."""

    def __init__(self, refused: int | None = None) -> None:
        self.lines: list[str] = []
        self.refused = refused  # which Spend, counted from 0, is refused
        self.recorder = Recorder("label")
        self.recorder.observe = self.observe  # type: ignore[method-assign]

    def transmit(self, to: str, frame: bytearray, message: type[Message]) -> None:
        self.lines.append(f"send {decode(frame).step} to {to}")  # type: ignore[attr-defined]

    def set_timer(self, name: str, seconds: float) -> None:
        self.lines.append(f"timer {name} {seconds}")

    def checkpoint(self) -> None:
        self.lines.append("checkpoint")

    def finish(self) -> None:
        self.lines.append("finish")

    def spend(self, party: str, event: PrivacyEvent) -> bool:
        spent = len([line for line in self.lines if line.startswith("spend")])
        self.lines.append(f"spend of {party}")
        return spent != self.refused

    def observe(self, party: str, observed: Observe, now: float) -> None:
        self.lines.append(f"observe {observed.exchange} of {party} at {now}")


def test_a_message_to_several_is_encoded_once() -> None:
    one, other = letter(1), letter(2)
    effects: list[Effect] = [Send("a", one), Send("b", one), Checkpoint(), Send("c", one), Send("a", other)]
    frames = [frame for _, frame in encoded(effects)]
    assert frames[0] is frames[1] is frames[3] and frames[2] is None
    assert frames[0] == encode(one) and frames[4] == encode(other)


def driven(effects: list[Effect], diary: Diary, trace: TraceWriter | None = None) -> Driver:
    ledger: Any = diary
    return Driver("bank", says({"Started": effects}), diary, ledger, diary.recorder, trace)


EVERYTHING: list[Effect] = [
    SetTimer("wake", 2.5),
    Spend(release()),
    Send("label", letter(1)),
    Observe(7, 7, 0.5),
    Checkpoint(),
    Spend(release()),
    Send("label", letter(2)),
    Finish(),
]


def test_effects_are_performed_in_order() -> None:
    diary = Diary()
    driven(EVERYTHING, diary).deliver(Started(1.5))
    assert diary.lines == [
        "timer wake 2.5",
        "spend of bank",
        "send 1 to label",
        "observe 7 of bank at 1.5",
        "checkpoint",
        "spend of bank",
        "send 2 to label",
        "finish",
    ]


@pytest.mark.parametrize(("refused", "last"), [(0, "spend of bank"), (1, "spend of bank")])
def test_a_refused_spend_cancels_everything_after_it(refused: int, last: str) -> None:
    diary = Diary(refused)
    driver = driven(EVERYTHING, diary)
    driver.deliver(Started(0.0))
    assert diary.lines[-1] == last
    assert [line for line in diary.lines if line.startswith("send")] == ["send 1 to label"][:refused]
    assert "finish" not in diary.lines
    # What was not sent is not counted either.
    assert diary.recorder.traffic_of("bank").frames == ({} if refused == 0 else {BatchRequest: 1})
    driver.deliver(Started(1.0))  # the refusal is of that value; later events are handled as before
    assert len(diary.lines) > 2


def test_frames_are_counted_by_kind_and_evaluation_apart() -> None:
    diary = Diary()
    diary.transmit = lambda *_: None  # type: ignore[method-assign]
    sent: list[Effect] = [Send("label", letter(1)), Send("label", letter(2, eights=1)), Send("label", evaluation(1))]
    driven(sent, diary).deliver(Started(0.0))
    traffic = diary.recorder.traffic_of("bank")
    assert traffic.frames == {BatchRequest: 2, EvaluationRequest: 1}
    assert traffic.total_bytes() == traffic.bytes[BatchRequest] == 3 * LETTER_BYTES
    assert traffic.evaluation_bytes() == len(encode(evaluation(1)))


def test_an_undeclared_message_is_neither_sent_nor_counted() -> None:
    class Secret(Message, frozen=True, eq=False):
        weight: float

    diary = Diary()
    with pytest.raises(ProtocolError, match="Secret is not declared"):
        driven([Send("label", Secret(1.0))], diary).deliver(Started(0.0))
    assert diary.lines == []
    assert diary.recorder.traffic_of("bank").frames == {}


def test_the_trace_holds_events_and_effects_in_order_with_the_frames_that_were_sent(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "bank.trace")
    driver = driven(EVERYTHING, Diary(), writer)
    driver.deliver(Started(1.5))
    driver.deliver(Received(2.0, "label", letter(9)), encode(letter(9)))
    writer.close()
    records = list(read_trace(tmp_path / "bank.trace"))
    assert [record.type for record in records] == [
        "Started",
        *(type(effect).__name__ for effect in EVERYTHING),
        "Received",
    ]
    assert [record.is_event for record in records] == [True, *[False] * len(EVERYTHING), True]
    assert records[0].fields == (1.5,)
    assert records[1].fields == ("wake", 2.5)
    rows = np.arange(2, dtype="<u4").tobytes()
    assert records[2].fields == ("gaussian", 2.0, 4.0, 2, rows, "one row", ["label"])
    assert records[3].fields == ("label", bytes(encode(letter(1))))
    assert records[4].fields == (7, 7, 0.5, None, None, "")
    assert records[-1].fields == (2.0, "label", bytes(encode(letter(9))))


def test_the_trace_of_a_refusal_ends_with_the_refused_spend(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "bank.trace")
    driven(EVERYTHING, Diary(refused=0), writer).deliver(Started(0.0))
    writer.close()
    assert [record.type for record in read_trace(tmp_path / "bank.trace")] == ["Started", "SetTimer", "Spend"]


def test_a_real_ledger_takes_what_the_driver_gives_it() -> None:
    ledger = Ledger()
    diary = Diary()
    party = says({"letter 1": [Spend(release()), Send("label", letter(2))]})
    driver = Driver("bank", party, diary, ledger, diary.recorder)
    driver.deliver(Received(0.0, "label", letter(1)))
    assert ledger.summary()[0]["releases"] == 1
    assert diary.lines == ["send 2 to label"]
