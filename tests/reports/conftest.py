"""What tests of pages share."""

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that read a page's words and count its pictures: one takes a fifth of a second to draw."""
    monkeypatch.setattr("colonnade.reports.figures.png_bytes", lambda figure, dots_per_inch=0: b"png")
