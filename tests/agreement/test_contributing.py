"""The algorithm that CONTRIBUTING.md shows is real: taken from the page, it learns, resumes and replays.

The code blocks are run as they stand: the file of step 2 becomes a module, the row of step 3 is registered, and both
are gone after the test.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import colonnade
from colonnade import algorithms
from colonnade.data.federated import FederatedData
from colonnade.experiment import build_parties
from colonnade.runtimes.replay import replay

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
TRAINING = colonnade.Training(epochs=3, batch_size=32, evaluate_every_epochs=0.5)
MODULE = "algorithm_of_the_contributing_page"


@pytest.fixture(scope="module")
def turns() -> Iterator[ModuleType]:
    """The page's module, while its row stands in the table."""
    section = PAGE.read_text(encoding="utf-8").split("## Add an algorithm in five steps")[1]
    source, row = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses look their module up
    exec(compile(source, f"{PAGE.name}, step 2", "exec"), module.__dict__)
    before = dict(algorithms.ALGORITHMS)
    names = {"register": algorithms.register, "Algorithm": algorithms.Algorithm, "turns": module}
    exec(compile(row, f"{PAGE.name}, step 3", "exec"), names)
    yield module
    algorithms.ALGORITHMS.clear()
    algorithms.ALGORITHMS.update(before)
    del sys.modules[MODULE]


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return colonnade.dataset("synthetic", parties=3, max_rows=400)


def weights(outcome: colonnade.Outcome) -> dict[str, torch.Tensor]:
    return {
        f"{party} {name} {key}": tensor
        for party, models in outcome.models.items()
        for name, module in models.items()
        for key, tensor in module.state_dict().items()
    }


def lines_but_for_wall_time(directory: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_seconds"} for line in lines]


def test_its_name_is_found_and_taken(turns: ModuleType) -> None:
    assert algorithms.find("turns").settings is turns.Turns
    with pytest.raises(ValueError, match="already"):
        algorithms.register(algorithms.find("turns"))


def test_it_refuses_a_wrong_setting(turns: ModuleType) -> None:
    with pytest.raises(colonnade.SettingsError, match="batches_a_turn is 0"):
        turns.Turns(batches_a_turn=0)


def test_it_learns(turns: ModuleType, data: FederatedData) -> None:
    longer = colonnade.Training(epochs=15, batch_size=32)
    summary = colonnade.train(data, "turns", training=longer).summary
    exchanges_of_one_party = 15 * 10  # 300 training rows are 10 batches of at most 32
    assert summary["exchanges"] == 3 * exchanges_of_one_party
    assert [summary["parties"][name]["steps"] for name in data.feature_parties] == [exchanges_of_one_party] * 3
    assert summary["test"]["accuracy"] > 0.8
    assert summary["bytes_up"] > 0 and summary["evaluation_bytes"] > 0


def test_with_one_feature_party_it_is_split(turns: ModuleType) -> None:
    alone = colonnade.dataset("synthetic", parties=1, max_rows=200)
    ours = weights(colonnade.train(alone, turns.Turns(), training=TRAINING))
    theirs = weights(colonnade.train(alone, "split", training=TRAINING))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("events", [1, 40, 150])
def test_it_resumes_to_the_same_bits(turns: ModuleType, data: FederatedData, tmp_path: Path, events: int) -> None:
    algorithm = turns.Turns(batches_a_turn=2)
    whole = colonnade.train(data, algorithm, training=TRAINING, out=tmp_path / "whole", trace=True)
    left = iter(range(events))
    stopped = colonnade.train(
        data,
        algorithm,
        training=TRAINING,
        out=tmp_path / "cut",
        trace=True,
        stop_requested=lambda: next(left, None) is None,
    )
    assert not stopped.finished
    resumed = colonnade.train(data, algorithm, training=TRAINING, out=tmp_path / "cut", trace=True, resume=True)
    ours, theirs = weights(resumed), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert lines_but_for_wall_time(tmp_path / "cut") == lines_but_for_wall_time(tmp_path / "whole")
    for trace in (tmp_path / "whole" / "trace").iterdir():
        assert (tmp_path / "cut" / "trace" / trace.name).read_bytes() == trace.read_bytes()


def test_it_replays_from_its_trace(turns: ModuleType, data: FederatedData, tmp_path: Path) -> None:
    crash = colonnade.SimulatedParty(slowdown=2.0, crashes=((0.3, 0.6),))
    world = colonnade.Simulate(loss=0.1, parties={"party2": crash})
    outcome = colonnade.train(data, "turns", training=TRAINING, simulate=world, out=tmp_path / "run", trace=True)
    models = (colonnade.PerturbationSettings(), colonnade.BottomSettings(), colonnade.TopSettings())
    parties = build_parties(data, turns.Turns(), TRAINING, *models, seed=0)
    expected = weights(outcome)
    for name, party in parties.items():
        assert replay(party, tmp_path / "run" / "trace" / f"{name}.trace") > 30
        for kind, module in party.model().items():
            for key, tensor in module.state_dict().items():
                assert torch.equal(tensor, expected[f"{name} {kind} {key}"])
