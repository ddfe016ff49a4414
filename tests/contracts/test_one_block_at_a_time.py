"""The papers' form of linear algorithms, in which a sum teaches the party that asked for it, keeps the contract, too.

By default all learn from a sum: `test_algorithm_contracts.py`. One algorithm of each estimator.
"""

from pathlib import Path

import pytest
from papers_form import papers_form

from colonnade.algorithms import ALGORITHMS
from colonnade.testing import CHECKS, Candidate


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["afsgd", "afsvrg", "afsaga", "asysqn-saga"])
def test_it_keeps_the_contract(name: str, check: str, tmp_path: Path) -> None:
    CHECKS[check](Candidate(ALGORITHMS[name], papers_form(name)), tmp_path)
