"""Runs with a precision against a slow twin: the same party without one, and numbers rounded one by one.

Each trace is played to a party that rounds nothing. Every message that it sends, rounded here in plain Python with the
numbers that the party itself draws, is what was sent: rounding changes what leaves, and nothing else.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade import Afsaga, Dpzv, Split, Training, Vafl
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.errors import SettingsError
from colonnade.launch.experiment import train
from colonnade.messages import KINDS, Message
from colonnade.party import Send
from colonnade.runtimes.replay import event_of, replay
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights
from colonnade.trace import read_trace
from colonnade.wire.codec import decode

EPOCHS = Training(epochs=2, batch_size=8, precision="int8")
RUNS = {
    "first order": TinyFederation(tiny_data(), Vafl(warm_up=True, max_delay=3), EPOCHS),
    "lock step": TinyFederation(
        tiny_data("multiclass"), Split(), Training(epochs=2, batch_size=8, precision="float16")
    ),
    "zeroth order": TinyFederation(tiny_data(), Dpzv(directions=2), EPOCHS),
    "linear": TinyFederation(tiny_data(), Afsaga(), Training(epochs=2, batch_size=8, precision_down="int8")),
}


def slowly(row: list[float], form: str, drawn: list[float]) -> list[float]:
    """One row of numbers, as its receiver has it."""
    largest = max((abs(number) for number in row), default=0.0)
    if form == "float16":
        power = (math.frexp(largest)[1] - 15) if largest else -15
        return [float(np.float16(math.ldexp(number, -power))) * 2.0**power for number in row]
    power = math.frexp(float(np.float32(largest) * np.float32(128 / 127)))[1] - 7
    scaled = [
        math.floor(float(np.float32(math.ldexp(number, -power) + u))) for number, u in zip(row, drawn, strict=True)
    ]
    return [max(-127, min(127, code)) * 2.0**power for code in scaled]


def as_it_arrives(message: Message, precisions: Any, rows: int, chance: torch.Generator) -> dict[str, list[float]]:
    """Every array that is rounded, flat."""
    found: dict[str, list[float]] = {}
    for name, field in KINDS[type(message).__name__].arrays:
        array = getattr(message, name)
        form = precisions.get(field.travels, "float32")
        if message.off_clock or form == "float32" or (field.dtype == "<f8" and len(array) > rows):
            continue
        near = getattr(message, field.beside) if field.beside else None
        values = np.asarray(array if near is None else array - near, np.float32)
        drawn = torch.rand(values.size, generator=chance).tolist() if form == "int8" else [0.0] * values.size
        width = values.shape[-1]
        sent = [
            number
            for place, row in enumerate(values.reshape(-1, width).tolist())
            for number in slowly(row, form, drawn[place * width : (place + 1) * width])
        ]
        if near is not None:
            there = np.asarray(found[field.beside], np.float32)
            sent = (np.asarray(sent, np.float32) + there).tolist()
        found[name] = sent
    return found


@pytest.mark.parametrize("name", RUNS)
def test_rounding_is_all_that_differs(name: str, tmp_path: Path) -> None:
    federation = RUNS[name]
    precisions, rows = federation.training.precisions, federation.data.rows
    federation.run(tmp_path / "run")
    for party, rounding in federation.parties().items():
        replay(rounding, tmp_path / "run" / "trace" / f"{party}.trace")
        exact = federation.training_with(precision="float32", precision_down="auto").parties()[party]
        chance = generator_for(federation.seed, party, "rounding")
        expected: list[tuple[Send, dict[str, list[float]]]] = []
        last: Any = None
        rounded = 0
        for record in read_trace(tmp_path / "run" / "trace" / f"{party}.trace"):
            if record.is_event:
                assert not expected
                for effect in exact.handle(event_of(record)):
                    if isinstance(effect, Send):
                        if effect.message is not last:
                            last, held = effect.message, as_it_arrives(effect.message, precisions, rows, chance)
                        expected.append((effect, held))
            elif record.type == "Send":
                sent, held = expected.pop(0)
                message = decode(bytearray(record.fields[1]))
                assert (record.fields[0], type(message)) == (sent.to, type(sent.message))
                rounded += len(held)
                for field, _ in KINDS[type(message).__name__].arrays:
                    mine = np.asarray(getattr(message, field), np.float64).reshape(-1)
                    wanted = held.get(field, np.asarray(getattr(sent.message, field), np.float64).reshape(-1))
                    assert mine.tolist() == list(wanted)
        assert rounded > 0 or (name == "linear" and party != "label") or (name == "zeroth order" and party == "label")


@pytest.mark.parametrize("name", ["first order", "zeroth order"])
def test_a_stopped_run_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    federation = RUNS[name]
    whole = federation.run(tmp_path / "whole")
    stopped = federation.run(tmp_path / "run", stop_requested=StopAfter(25), checkpoint_seconds=0.0)
    assert stopped.summary["exchanges"] < whole.summary["exchanges"]
    again = federation.run(tmp_path / "run", resume=True)
    assert_same_bits(weights(again.models), weights(whole.models))
    assert again.summary["bytes_by_message"] == whole.summary["bytes_by_message"]


def test_looking_more_often_changes_nothing(tmp_path: Path) -> None:
    federation = RUNS["lock step"].training_with(precision="int8")
    once, often = (
        federation.training_with(evaluate_every_epochs=every).run(tmp_path / str(every)) for every in (0, 0.5)
    )
    assert_same_bits(weights(once.models), weights(often.models))


@pytest.mark.parametrize("changes", [{"sums": "pairwise"}, {"sums": "two-tree"}])
def test_masked_sums_are_not_rounded(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="masks, which cancel in exact sums"):
        train(tiny_data(), Afsaga(**changes), training=EPOCHS)
    down = train(tiny_data(), Afsaga(**changes), training=Training(epochs=1, batch_size=8, precision_down="int8"))
    whole = train(tiny_data(), Afsaga(**changes), training=Training(epochs=1, batch_size=8))
    assert down.summary["bytes_down"] < whole.summary["bytes_down"]
    assert down.summary["bytes_by_message"]["MaskedSum"] == whole.summary["bytes_by_message"]["MaskedSum"]


def test_where_nothing_is_rounded_it_is_refused() -> None:
    with pytest.raises(SettingsError, match="trains in one place"):
        train(tiny_data(), "centralised", training=EPOCHS)
    with pytest.raises(SettingsError, match="exact sums over all rows"):
        train(tiny_data(), "fcg", training=EPOCHS)
    with pytest.raises(SettingsError, match="int4"):
        Training(precision="int4")
