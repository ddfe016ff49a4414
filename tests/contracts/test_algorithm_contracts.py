"""What every algorithm owes its users: one row in the table of algorithms buys all of these tests."""

from pathlib import Path
from typing import Any

import pytest

from colonnade import BottomSettings, TopSettings
from colonnade.algorithms import ALGORITHMS, Algorithm
from colonnade.meanings import settings_of
from colonnade.testing import CHECKS, Candidate

pytestmark = pytest.mark.parametrize("row", ALGORITHMS.values(), ids=list(ALGORITHMS))

# The noise of a zeroth-order estimate grows with the number of weights. On both sides of the default networks it needs
# other learning rates and many more epochs; logistic regression needs nothing but its own default settings.
LINEAR: dict[str, Any] = {"bottom": BottomSettings("linear"), "top": TopSettings("sum")}
MODELS = {"zoo": LINEAR, "zoo-sync": LINEAR, "dpzv": LINEAR}


@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_the_contract(row: Algorithm, check: str, tmp_path: Path) -> None:
    CHECKS[check](Candidate(row, **MODELS.get(row.name, {})), tmp_path)


def test_who_brings_one_model_brings_both(row: Algorithm) -> None:
    assert (row.bottom is None) == (row.top is None)


def test_every_default_is_explained(row: Algorithm) -> None:
    settings = row.settings
    assert settings.__doc__ and f'name = "{row.name}"' in settings.__doc__
    for setting in settings_of(settings):  # one without a sentence raises
        assert setting.meaning.strip(), f"{setting.name} has no sentence"
