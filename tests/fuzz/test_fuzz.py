"""Every target of the fuzzer: what was found before, and a fixed number of fresh cases."""

from dataclasses import replace
from pathlib import Path

import fuzz
import pytest
from targets import TARGETS

# So many that the whole takes a few seconds: a page is made of every record, and certificates are verified.
CASES = {"codec": 3000, "packets": 2000, "words": 1000, "envelopes": 500}
FEWER = 150
FOUND = [(name, path) for name, target in TARGETS.items() for path in fuzz.known(target)]


@pytest.mark.parametrize("name", TARGETS)
def test_valid_inputs_are_taken_and_a_few_cases_break_nothing(name: str) -> None:
    target, cases = TARGETS[name], CASES.get(name, FEWER)
    assert all(target.one_input(data) for data in target.seeds())
    taken = fuzz.fuzz(target, seed=0, cases=cases)
    assert 0 < taken < cases  # some harm goes unnoticed (a number in an array), most does not


@pytest.mark.parametrize(("name", "path"), FOUND, ids=[f"{name}-{path.name}" for name, path in FOUND])
def test_what_was_found_before_stays_mended(name: str, path: Path) -> None:
    fuzz.attempt(TARGETS[name], path.read_bytes())


def test_the_corpus_is_of_targets_and_named_by_digest(tmp_path: Path) -> None:
    assert FOUND and {folder.name for folder in fuzz.CORPUS.iterdir()} <= {*TARGETS}
    for name, path in FOUND:
        assert fuzz.save(TARGETS[name], path.read_bytes(), tmp_path).name == path.name


def test_a_target_that_breaks_is_told_and_its_input_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(TARGETS["packets"], one_input=lambda data: bool(1 // (len(data) - 27)))
    with pytest.raises(fuzz.BrokenError, match=r"packets: ZeroDivisionError in test_fuzz\.py, line \d+, for 27 bytes"):
        fuzz.attempt(broken, bytes(27))
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path)
    monkeypatch.setattr(fuzz.save, "__defaults__", (tmp_path,))
    monkeypatch.setitem(TARGETS, "packets", replace(broken, one_input=lambda data: bool(1 // 0)))
    assert fuzz.main(["packets", "--seconds", "0.1"]) == 1
    (saved,) = (tmp_path / "packets").iterdir()
    assert saved.name in capsys.readouterr().out


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, other = ([*zip(fuzz.inputs(TARGETS["federation"], 3), range(50), strict=False)] for _ in range(2))
    assert one == other
