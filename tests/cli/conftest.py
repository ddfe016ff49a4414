"""Every test of the command line works in a folder of its own, and finds no data sets but the bundled ones."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    return tmp_path
