"""The owner of protected data dies all the time, by SIGKILL: its ledger never counts less than what left it.

Every byte that a party gives to its link is written down before the link encrypts it, over all its lives. What left is
read from there, with the product's own codec: a frame that is sent again is one release, another draw of noise for the
same exchange would be a second one. Then both are compared, row by row.
"""

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from parties import LINEAR_SPLIT, PATIENCE_SECONDS, Organisation, Town, shared, wait_until, with_tables

from colonnade.errors import ProtocolError
from colonnade.messages import (
    EmbeddingUpload,
    EvaluationEmbedding,
    Message,
    PairUpload,
    RefreshedEmbedding,
    SlopeReply,
    WarmUpUpload,
)
from colonnade.privacy.gaussian import mu_of
from colonnade.privacy.ledger import Ledger
from colonnade.wire.codec import MAGIC, decode, encode
from colonnade.wire.packets import FRAME, HEADER_BYTES, PacketReader, header

KILLS = 25  # of each owner
EXCHANGES_A_LIFE = 64  # about; a party that is killed sooner has hardly come back
EPSILON = 6.0
BATCH = 64
EPOCH_EXCHANGES = 64  # 2,000 rows to train on are 32 batches, of each of two parties
EPOCHS = (KILLS + 2) * EXCHANGES_A_LIFE / EPOCH_EXCHANGES
OFTEN = {"learning_rate": 0.1, "observe_every_epochs": 8 / EPOCH_EXCHANGES, "evaluate_every_epochs": 2.0}

LABELS = shared(
    # Both parties draw the same batches, so that the number of an exchange says which rows it was about.
    {"name": "dpzv", "clip": 1.0, "server_update": "private-zo", "shared_rows": True},
    {},
    EPOCHS,
    BATCH,
    training=OFTEN,
    privacy={"labels_epsilon": EPSILON},
    **LINEAR_SPLIT,
)
COLUMNS = shared(
    {"name": "vafl", "max_delay": 40, "warm_up": True, "in_flight": 2},
    {},
    EPOCHS,
    BATCH,
    training=OFTEN,
    privacy={"columns_epsilon": EPSILON, "clip": 1.0, "bottom_update": "dp-sgd"},
    **LINEAR_SPLIT,
)


# --- what left ---------------------------------------------------------------------------------------------------


class Left(NamedTuple):
    """A frame that was given to a link."""

    number: int  # of the frame on its link
    body: bytes
    end: int  # how many bytes had been recorded with it

    @property
    def message(self) -> Message:
        return decode(bytearray(self.body))


def frames_in(recorded: bytes) -> Iterator[Left]:
    """Every whole frame, also where lives and links follow one another: each begins with its packet's header.

    A frame that a death tore in the record had not been given to the link yet.
    """
    for found in re.finditer(re.escape(MAGIC), recorded):
        start = found.start() - HEADER_BYTES
        length = int.from_bytes(recorded[start : start + 4], "little") if start >= 0 else 0
        end = found.start() + length
        if not len(MAGIC) < length <= len(recorded) - found.start():
            continue
        try:
            (packet,) = PacketReader().feed(recorded[start:end])
            decode(bytearray(packet.body))
        except (ProtocolError, ValueError):
            continue  # the same bytes within a frame's numbers, or a torn one
        assert packet.kind == FRAME
        yield Left(packet.number, bytes(packet.body), end)


def different(frames: list[Left], links: int) -> list[Left]:
    """Each frame once. A number stands for the same bytes for ever, on each of so many links."""
    once: dict[bytes, Left] = {}
    bodies: dict[int, set[bytes]] = {}
    for frame in frames:
        once.setdefault(frame.body, frame)
        bodies.setdefault(frame.number, set()).add(frame.body)
        assert len(bodies[frame.number]) <= links, f"the frame {frame.number} left with other bytes than before"
    return [*once.values()]


def times_by_row(released: list[NDArray[np.uint32]], rows: int) -> NDArray[np.int64]:
    times = np.zeros(rows, np.int64)
    for batch in released:
        np.add.at(times, batch, 1)
    return times


# --- what was counted --------------------------------------------------------------------------------------------


def counted_by_row(
    one: Organisation, rows: int, choose: Callable[[dict[str, Any]], bool]
) -> tuple[NDArray[np.int64], float]:
    """How often each row was released in the kinds of event that are chosen, and what that cost the worst, in μ²."""
    ledger = Ledger()
    ledger.restore(one.saved().part("ledger"))
    times, costs = np.zeros(rows, np.int64), np.zeros(rows)
    for kind in filter(choose, ledger.by_row()):
        own = kind["per_row"][:rows]
        assert not kind["per_row"][rows:].any()
        times[: own.size] += own
        costs[: own.size] += own * (kind["sensitivity"] / kind["noise"]) ** 2
    return times, float(costs.max())


def lines_of(one: Organisation, choose: Callable[[dict[str, Any]], bool]) -> int:
    whole = (one.out / "ledger.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()
    return sum(choose(json.loads(line)) for line in whole)


# --- deaths ------------------------------------------------------------------------------------------------------


class Witness:
    """Kills one party again and again, and notes after each death what had left it and what it had written down."""

    def __init__(self, town: Town, owner: Organisation, chosen: Callable[[dict[str, Any]], bool]) -> None:
        self._town = town
        self._owner = owner
        self._chosen = chosen
        self._chance = random.Random(owner.name)
        self.notes: list[tuple[int, int]] = []  # recorded bytes, lines of the ledger

    def kill_now_and_then(self) -> None:
        """At random places of the training, so that it ends neither before the last death nor long after it.

        Three times of four while something leaves: what was given to the link has then seldom arrived.
        """
        record = Path(self._owner.options["record"])
        for killed in range(KILLS):
            place = (killed + self._chance.random()) * EXCHANGES_A_LIFE
            wait_until(lambda place=place: self._town.exchanges() > place, f"exchange {place:.0f}")
            time.sleep(self._chance.uniform(0.0, 0.05))
            assert self._owner.alive(), f"the training ended after {killed} kills"
            if killed % 4:
                _wait_for_more(record)
            self._owner.kill()
            size = record.stat().st_size
            self.notes.append((size, lines_of(self._owner, self._chosen) if size else 0))
            self._owner.start()


def _wait_for_more(record: Path) -> None:
    """Until a file grows; the pauses are shorter than what left takes to arrive."""
    size, deadline = record.stat().st_size, time.monotonic() + PATIENCE_SECONDS
    while record.stat().st_size == size and time.monotonic() < deadline:
        time.sleep(0.0001)


def disturbed(
    build: Callable[..., Town], plan: dict[str, Any], owner: str, chosen: Callable[[dict[str, Any]], bool]
) -> tuple[Town, dict[str, list[Left]], Witness]:
    """A training whose owner of protected data died so often; what left everybody."""
    # Long enough to come back on a busy machine, so that the others do not end the training without who is killed; and
    # after the last death: who has heard everybody's end lingers no longer.
    town = with_tables(build, plan, parties=2, checkpoint_seconds=0.5, notice_seconds=10.0, linger_seconds=60.0)
    for one in town.parties.values():
        one.options["record"] = str(town.folder / f"{one.name}.bytes")
    witness = Witness(town, town[owner], chosen)
    town.start()
    witness.kill_now_and_then()
    summary = town.end()
    assert summary["status"] == "finished"
    assert town[owner].started == 1 + KILLS
    recorded = {name: [*frames_in((town.folder / f"{name}.bytes").read_bytes())] for name in town.parties}
    return town, recorded, witness


def test_labels_of_a_label_party_that_dies(town: Callable[..., Town]) -> None:
    def is_slope(kind: dict[str, Any]) -> bool:
        return len(kind["viewers"]) == 1  # the label party's own update is seen by all

    one, recorded, witness = disturbed(town, LABELS, "label", is_slope)
    rows_of: dict[int, NDArray[np.uint32]] = {}
    for party in one.feature_parties:
        for frame in recorded[party.name]:
            if isinstance(upload := frame.message, PairUpload):
                assert np.array_equal(rows_of.setdefault(upload.exchange, upload.rows), upload.rows)
    slopes = [frame for frame in different(recorded["label"], links=2) if isinstance(frame.message, SlopeReply)]
    asked = [rows_of[frame.message.exchange] for frame in slopes]  # type: ignore[attr-defined]
    assert len(slopes) > KILLS * EXCHANGES_A_LIFE
    rows = one.data().rows
    left = times_by_row(asked, rows)
    counted, worst = counted_by_row(one.label, rows, is_slope)
    updates, own = counted_by_row(one.label, rows, lambda kind: not is_slope(kind))
    assert (counted >= left).all()
    assert (updates >= left).all()  # each answer was followed by an update that later ones depend on
    assert worst + own <= mu_of(EPSILON, 1e-5) ** 2 * (1 + 1e-6)
    assert_written_before_it_left(witness, slopes)


def test_columns_of_a_feature_party_that_dies(town: Callable[..., Town]) -> None:
    def is_embedding(kind: dict[str, Any]) -> bool:
        return kind["sensitivity"] == 2.0  # 2 C; that of a DP-SGD step is divided by the batch

    one, recorded, witness = disturbed(town, COLUMNS, "party1", is_embedding)
    training: list[NDArray[np.uint32]] = []
    test: list[NDArray[np.uint32]] = []
    noised: list[Left] = []
    for frame in different(recorded["party1"], links=1):
        match frame.message:
            case EmbeddingUpload(rows=rows) | RefreshedEmbedding(rows=rows) | WarmUpUpload(rows=rows):
                training.append(rows)
                noised.append(frame)
            case EvaluationEmbedding(first_row=first, embedding=embedding) if len(embedding):
                test.append(np.arange(first, first + len(embedding), dtype=np.uint32))
                noised.append(frame)
    assert len(noised) > KILLS * EXCHANGES_A_LIFE / 8
    data = one.data()
    for released, which, rows in ((training, "training", data.rows), (test, "test", data.test_rows)):
        left = times_by_row(released, rows)
        assert left.any()

        def chosen(kind: dict[str, Any], which: str = which) -> bool:
            return is_embedding(kind) and kind["protects"] == f"columns of party1, {which} rows"

        counted, _ = counted_by_row(one["party1"], rows, chosen)
        assert (counted >= left).all()
    _, worst = counted_by_row(one["party1"], data.rows, lambda kind: kind["protects"].endswith("training rows"))
    assert worst <= mu_of(EPSILON, 1e-5) ** 2 * (1 + 1e-6)
    assert_written_before_it_left(witness, noised)


def assert_written_before_it_left(witness: Witness, noised: list[Left]) -> None:
    """At every death the file held a line for each value that had left by then."""
    assert len(witness.notes) == KILLS
    for size, lines in witness.notes:
        assert lines >= sum(frame.end <= size for frame in noised)


# --- the comparison itself ---------------------------------------------------------------------------------------


def sent(number: int, slope: float) -> bytes:
    frame = encode(SlopeReply(7, slope))
    return header(FRAME, number, 0, len(frame)) + bytes(frame)


def test_a_second_draw_of_noise_would_be_noticed() -> None:
    again = sent(1, 0.25) + b"torn" + sent(2, 0.5)[:-3] + sent(1, 0.25) + sent(2, 0.5)
    assert [frame.number for frame in frames_in(again)] == [1, 1, 2]
    assert len(different([*frames_in(again)], links=1)) == 2
    with pytest.raises(AssertionError, match="the frame 2 left with other bytes"):
        different([*frames_in(again + sent(2, 0.75))], links=1)
    assert times_by_row([np.array([0, 2], np.uint32), np.array([2], np.uint32)], 3).tolist() == [1, 0, 2]
