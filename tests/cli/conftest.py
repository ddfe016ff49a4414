"""Every test of the command line works in a folder of its own, and finds no data sets but the bundled ones."""

from pathlib import Path

import pytest
from command_line import draw_no_more


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    return tmp_path


@pytest.fixture
def drawn_figures() -> None:
    """For tests that want true figures."""


@pytest.fixture(autouse=True)
def undrawn_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all others: one takes a fifth of a second to draw, which tests/reports is about."""
    if "drawn_figures" not in request.fixturenames:
        draw_no_more(monkeypatch)
