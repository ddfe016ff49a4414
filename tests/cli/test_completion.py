"""What a shell completes: verbs, options, and names that are kept apart from the slow modules that own them."""

import os
from typing import get_args, get_type_hints
from unittest import mock

from command_line import colonnade

from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.afsvrg import Afsvrg
from colonnade.benchmarks import benchmarks
from colonnade.cli import names
from colonnade.data import names as data_sets
from colonnade.exports import exporting
from colonnade.launch import experiment
from colonnade.trials import audit


def completed(line: str) -> list[str]:
    """What bash would offer after this line."""
    words = line.split(" ")
    asked = {"_COLONNADE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    with mock.patch.dict(os.environ, asked):
        return colonnade().out.split()


def test_the_names_are_those_of_their_tables() -> None:
    assert names.algorithm_names() == sorted(ALGORITHMS)
    assert names.data_set_names() == [facts.name for facts in data_sets()]
    assert tuple(experiment.RUNTIMES) == names.RUNTIMES
    assert names.AUDITED == audit.AUDITED
    assert tuple(benchmarks()) == names.BENCHMARKS
    assert exporting.FORMS == names.EXPORT_FORMS
    assert get_args(get_type_hints(Afsvrg)["sums"]) == names.SUMS


def test_verbs_and_options() -> None:
    assert completed("colonnade re") == ["report", "replay", "reproduce"]
    assert completed("colonnade attack ") == [
        *("label-inference", "model-completion", "embedding-inversion", "product-inference")
    ]
    assert completed("colonnade run --che") == ["--checkpoint-seconds"]


def test_names() -> None:
    assert completed("colonnade run --runtime p") == ["processes"]
    assert completed("colonnade attack label-inference --algorithm zoo") == ["zoo", "zoo-sync"]
    assert completed("colonnade attack label-inference --data ir") == ["iris"]
    assert completed("colonnade bench zer") == ["zeroth-order"]
    assert completed("colonnade audit v") == ["vafl"]


def test_the_script_of_a_shell_can_be_shown() -> None:
    with mock.patch("typer.completion._get_shell_name", return_value="bash"):
        shown = colonnade("--show-completion")
    assert shown.code == 0 and "_COLONNADE_COMPLETE=complete_bash" in shown.out
