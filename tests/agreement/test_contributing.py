"""The algorithm that CONTRIBUTING.md shows is real: taken from the page, it learns, resumes and replays.

The code blocks are run as they stand: the message of step 1 is declared, the file of step 2 becomes a module, the line
of step 3 is run, and all are gone after the tests. In a copy of the repository the five files are all that is needed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tree import ROOT, repository_files

import colonnade
from colonnade import algorithms, messages
from colonnade.algorithms import split_models
from colonnade.data.federated import FederatedData
from colonnade.federation.building import build_parties
from colonnade.runtimes.replay import replay
from colonnade.testing import check_algorithm

PAGE = ROOT / "CONTRIBUTING.md"
TRAINING = colonnade.Training(epochs=3, batch_size=32, evaluate_every_epochs=0.5)
MODULE = "colonnade.algorithms.split_models.signvafl"


def blocks(language: str) -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split("## Add an algorithm in five steps")[1]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def signvafl() -> Iterator[ModuleType]:
    """The page's module, while its message is declared and its row stands in the table."""
    message, source, line = blocks("python")
    kinds, names, table = dict(messages.KINDS), set(vars(messages)), dict(algorithms.ALGORITHMS)
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses look their module up
    try:
        exec(compile(message, f"{PAGE.name}, step 1", "exec"), vars(messages))
        exec(compile(source, f"{PAGE.name}, step 2", "exec"), vars(module))
        split_models.signvafl = module  # type: ignore[attr-defined]
        exec(compile(line, f"{PAGE.name}, step 3", "exec"), {"register": algorithms.register})
        yield module
    finally:
        algorithms.ALGORITHMS.clear()
        algorithms.ALGORITHMS.update(table)
        messages.KINDS.clear()
        messages.KINDS.update(kinds)
        for name in set(vars(messages)) - names:
            delattr(messages, name)
        del sys.modules[MODULE]
        del split_models.signvafl  # type: ignore[attr-defined]


def test_the_five_files_are_all_that_is_needed(tmp_path: Path) -> None:
    """Steps 1, 2, 3 and 5 by hand, `make tables`, and what agrees in the repository agrees in its copy."""
    root = tmp_path / "copy"
    for path in repository_files() or pytest.skip("not a git checkout"):
        if not path.is_relative_to(ROOT / "tests") or path.is_relative_to(ROOT / "tests" / "agreement"):
            target = root / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    message, source, line = blocks("python")
    (page,) = blocks("markdown")
    package = root / "src" / "colonnade"
    with (package / "messages.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{message}")
    (package / "algorithms" / "split_models" / "signvafl.py").write_text(source, encoding="utf-8")
    with (package / "algorithms" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{line}")
    (root / "docs" / "algorithms" / "signvafl.md").write_text(page, encoding="utf-8")

    def run(*words: str) -> str:
        own = {**os.environ, "PYTHONPATH": str(root / "src")}
        done = subprocess.run([sys.executable, *words], cwd=root, env=own, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    written = run("tools/algorithm_tables.py").splitlines()
    assert sorted(written) == [
        f"{name} written."
        for name in (
            *("README.md", "docs/settings.md", "docs/which-algorithm.md", "mkdocs.yml", "src/colonnade/__init__.py"),
        )
    ]
    run("tools/settings_tables.py")
    told = run(
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "tests/agreement/test_documents.py",
        "tests/agreement/test_package.py",
        "-k",
        "signvafl or page_of_an_algorithm "
        "or every_algorithm_file or from_the_table or layout or public or table or links_lead or SignVafl",
    )
    assert " passed" in told


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


def test_its_name_is_found_and_taken(signvafl: ModuleType) -> None:
    assert algorithms.find("signvafl").settings is signvafl.SignVafl
    assert "SignReply" in messages.KINDS
    with pytest.raises(ValueError, match="already"):
        algorithms.register(algorithms.find("signvafl"))


def test_it_refuses_a_wrong_setting_of_its_own_and_of_the_schedule(signvafl: ModuleType) -> None:
    with pytest.raises(colonnade.SettingsError, match=r"boost is 0\.0"):
        signvafl.SignVafl(boost=0.0)
    with pytest.raises(colonnade.SettingsError, match="wait_for is 0"):
        signvafl.SignVafl(wait_for=0)


def test_signs_come_back_as_they_were_packed(signvafl: ModuleType) -> None:
    @given(rows=st.integers(1, 5), width=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
    def check(rows: int, width: int, seed: int) -> None:
        gradient = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
        words = signvafl.packed(gradient)
        assert words.shape == (rows, -(-width // 32)) and words.dtype == np.uint32
        assert np.array_equal(signvafl.unpacked(words, width), np.sign(gradient))

    check()


def test_it_learns_with_fewer_bytes_down(signvafl: ModuleType, data: FederatedData) -> None:
    longer = colonnade.Training(epochs=15, batch_size=32)
    wide = colonnade.BottomSettings(embedding=64)
    summary = colonnade.train(data, "signvafl", training=longer, bottom=wide).summary
    assert summary["exchanges"] == 3 * 15 * 10  # 300 training rows are 10 batches of at most 32
    assert summary["test"]["accuracy"] > 0.8
    whole = colonnade.train(data, "vafl", training=longer, bottom=wide).summary
    assert summary["bytes_up"] == whole["bytes_up"]
    assert summary["bytes_down"] < whole["bytes_down"] / 10


def test_one_row_and_one_number_an_embedding_make_it_vafl(signvafl: ModuleType) -> None:
    few = colonnade.dataset("synthetic", parties=2, max_rows=40)
    how: dict[str, Any] = {
        "training": colonnade.Training(epochs=2, batch_size=1, learning_rate=0.05),
        "bottom": colonnade.BottomSettings(kind="linear", embedding=1),
        "top": colonnade.TopSettings(kind="concat-linear"),
    }
    ours = weights(colonnade.train(few, signvafl.SignVafl(), **how))
    theirs = weights(colonnade.train(few, "vafl", **how))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name])
    boosted = weights(colonnade.train(few, signvafl.SignVafl(boost=2.0), **how))
    assert any(not torch.allclose(boosted[name], theirs[name]) for name in theirs)


@pytest.fixture(scope="module")
def whole(signvafl: ModuleType, data: FederatedData, tmp_path_factory: pytest.TempPathFactory) -> colonnade.Outcome:
    """A run that nobody stopped."""
    algorithm, out = signvafl.SignVafl(wait_for=2, in_flight=2), tmp_path_factory.mktemp("unbroken") / "whole"
    return colonnade.train(data, algorithm, training=TRAINING, out=out, trace=True)


@pytest.mark.parametrize("events", [1, 40, 150])
def test_it_resumes_to_the_same_bits(
    signvafl: ModuleType, data: FederatedData, whole: colonnade.Outcome, tmp_path: Path, events: int
) -> None:
    algorithm = signvafl.SignVafl(wait_for=2, in_flight=2)
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
    assert whole.directory is not None
    assert lines_but_for_wall_time(tmp_path / "cut") == lines_but_for_wall_time(whole.directory)
    for trace in (whole.directory / "trace").iterdir():
        assert (tmp_path / "cut" / "trace" / trace.name).read_bytes() == trace.read_bytes()


def test_it_replays_from_its_trace(signvafl: ModuleType, data: FederatedData, tmp_path: Path) -> None:
    crash = colonnade.SimulatedParty(slowdown=2.0, crashes=((0.3, 0.6),))
    world = colonnade.Simulate(loss=0.1, parties={"party2": crash})
    outcome = colonnade.train(data, "signvafl", training=TRAINING, simulate=world, out=tmp_path / "run", trace=True)
    models = (colonnade.PerturbationSettings(), colonnade.BottomSettings(), colonnade.TopSettings())
    parties = build_parties(data, signvafl.SignVafl(), TRAINING, *models, seed=0)
    expected = weights(outcome)
    for name, party in parties.items():
        assert replay(party, tmp_path / "run" / "trace" / f"{name}.trace") > 20
        for kind, module in party.model().items():
            for key, tensor in module.state_dict().items():
                assert torch.equal(tensor, expected[f"{name} {kind} {key}"])


def test_it_keeps_the_contract(signvafl: ModuleType) -> None:
    check_algorithm(algorithms.find("signvafl"), signvafl.SignVafl(in_flight=2))
