"""A small run that tests serve from copies of."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import colonnade as command

from colonnade.federation.toml import write_toml

ROWS = 48


def write_tables(folder: Path) -> None:
    draws = np.random.default_rng(3)
    columns = draws.normal(size=(ROWS, 3))
    ids = [f"c{number:03}" for number in range(ROWS)]
    bought = np.where(columns.sum(1) > 0, "yes", "no")
    pd.DataFrame({"id": ids, "income": columns[:, 0], "bought": bought}).to_csv(folder / "bank.csv", index=False)
    pd.DataFrame({"id": ids, "orders": columns[:, 1]}).to_csv(folder / "shop.csv", index=False)
    pd.DataFrame({"id": ids, "age": columns[:, 2]}).to_csv(folder / "clinic.csv", index=False)


def train(folder: Path, name: str, **sections: Any) -> Path:
    settings = {
        "federation": {"label_party": "bank", "seed": sections.pop("seed", 0)},
        "algorithm": {"name": "vafl"},
        "data": {"label": "bought"},
        "training": {"epochs": 2},
        "parties": {party: {"file": str(folder / f"{party}.csv")} for party in ("bank", "shop", "clinic")},
        **sections,
    }
    (folder / f"{name}.toml").write_text(write_toml(settings), encoding="utf-8")
    answer = command("run", folder / f"{name}.toml", "--out", folder / name, "--no-report")
    assert answer.code == 0, answer.err
    return folder / name


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs by name, each trained once for all tests of a module."""
    folder = tmp_path_factory.mktemp("served")
    write_tables(folder)
    done: dict[str, Path] = {}

    def run_of(name: str = "vafl", **sections: Any) -> Path:
        if name not in done:
            done[name] = train(folder, name, **sections)
        return done[name]

    return run_of


@pytest.fixture
def run(trained: Callable[..., Path], tmp_path: Path) -> Path:
    """A run whose tables and models a test may change."""
    folder = trained().parent
    write_tables(tmp_path)
    copy = tmp_path / "run"
    shutil.copytree(trained(), copy)
    text = (copy / "federation.toml").read_text(encoding="utf-8").replace(str(folder), str(tmp_path))
    (copy / "federation.toml").write_text(text, encoding="utf-8")
    return copy
