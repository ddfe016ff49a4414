"""A finished network run goes on with more epochs, once all parties have them in their files; a kill in the middle."""

import json
from collections.abc import Callable

import pytest
from parties import IRIS, Town, assert_same_bits, shared, wait_until

from colonnade.prediction.saved_model import read_model

STEPS = {"learning_rate": 0.05, "optimiser": "sgd"}


def lengthen(town: Town, epochs: int) -> None:
    town.shared["training"]["epochs"] = epochs
    for one in town.parties.values():
        one.write_files()


@pytest.mark.parametrize("algorithm", ["split", {"name": "fsaga", "step": "fixed", "precondition": "none"}])
def test_more_epochs_are_what_one_longer_run_trains(algorithm: str | dict[str, str], town: Callable[..., Town]) -> None:
    one = town(shared(algorithm, IRIS, 1, 16, training=STEPS))
    one.start()
    first = one.end()
    known = {name: read_model(party.out / "model" / name).description for name, party in one.parties.items()}
    lengthen(one, 4)
    for party in one.parties.values():
        party.options = {"milliseconds_an_event": 10}
    one.start()
    victim = one["party1"]
    victim.hear("connected to label", 2)
    before = len(one.label.metrics())
    wait_until(lambda: len(one.label.metrics()) > before, "the training to go on")
    victim.kill()
    victim.start()
    longer = one.end()
    assert longer["status"] == "finished" and longer["epochs"] == 4
    once = one.simulated()
    assert longer["exchanges"] == once.summary["exchanges"] > first["exchanges"]
    assert_same_bits(one.models(), once.models)
    told = {read_model(party.out / "model" / name).description.training for name, party in one.parties.items()}
    assert len(told) == 1 and told.pop()[:16] != known["party1"].training[:16], "earlier models are of another training"


def test_what_all_have_not_agreed_on_or_is_no_longer_run_is_refused(town: Callable[..., Town]) -> None:
    privacy = {"columns_epsilon": 20.0, "delta": 1e-3, "clip": 1.0, "bottom_update": "frozen"}
    one = town(shared("vafl", IRIS, 1, 16, privacy=privacy))
    one.start()
    one.end()
    lengthen(one, 2)
    for party in (one.label, one["party1"]):
        party.start()
        party.end(2)
        assert "was chosen so that 1 epochs keep privacy.columns_epsilon = 20" in party.said()
    kept = json.loads((one.label.out / "rows.json").read_text(encoding="utf-8"))
    assert "extension" not in kept, "what was refused has changed nothing"
    plain = town(shared("split", IRIS, 2, 16))
    plain.start()
    plain.end()
    label, party = plain.label, plain["party1"]
    label.write_files(training={**plain.shared["training"], "epochs": 3})
    label.start()
    party.start()  # it has the file of before, and has finished by it
    assert party.end(0) == 0
    party.write_files(training={**plain.shared["training"], "epochs": 4})
    party.start()
    assert party.end(1) == 1
    assert "differ in training.epochs: use the same file" in party.said()
    plain["party2"].write_files(training={**plain.shared["training"], "epochs": 1})
    plain["party2"].start()
    assert plain["party2"].end(2) == 2
    assert "holds a run with other settings" in plain["party2"].said()
