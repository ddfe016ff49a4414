"""An audit bounds a run that gave away at least as much, and no other."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_runs import NOISED_PRIVACY, full_run
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import RunError, SettingsError
from colonnade.reports.epsilons import HEADS, OBSERVED, figure_rows, heads
from colonnade.reports.observed import audit_of, observe
from colonnade.reports.run_page import write_report
from colonnade.reports.rundir import Run, read_run
from colonnade.trials.audit import Audit, run_audit

LABELS, COLUMNS, TESTS = "labels of bank, training rows", "columns of shop, training rows", "columns of shop, test rows"
WIRE = "somebody on the wire who sees the releases and not their rows"


def figure(direction: str, adversary: str, sound: float | None, conditional: float | None = None) -> dict[str, Any]:
    return {"direction": direction, "adversary": adversary, "claimed": 1.0, "sound": sound, "conditional": conditional}


FIGURES = [
    figure(LABELS, "feature party shop; feature party clinic", 8.0, 5.0),
    figure(LABELS, "all feature parties together", 8.0),
    figure(LABELS, WIRE, 8.0),
    figure(COLUMNS, "label party bank; all other parties together", None, 6.0),
    figure(COLUMNS, "feature party clinic", None, 6.0),
    figure(TESTS, "label party bank", 8.0),
    figure("columns of clinic", "every other party", None),
]


def audit(algorithm: str, cost: float, observed: float = 2.0, delta: float = 1e-5, update: str = "frozen") -> Any:
    asked = {"algorithm": algorithm, "delta": delta, "confidence": 0.95, "server_update": update}
    protects = "one row's label" if algorithm == "dpzv" else "one row's columns at a feature party"
    told = {"audit": asked, "protects": protects, "adversary": "somebody", "canaries": 100}
    return {**told, "observed": observed, "given_hidden_state": cost}


def a_run(algorithm: str = "dpzv", update: str = "frozen") -> Run:
    privacy = {"delta": 1e-5, "figures": FIGURES}
    settings = {"algorithm": {"server_update": update}, "privacy": {"bottom_update": update}}
    return Run(Path("run"), "run", {"algorithm": algorithm, "privacy": privacy, "settings": settings}, (), ())


def bounded(run: Run, *audits: Any) -> list[int]:
    """Which of the figures have an observed ε."""
    seen = observe(run, FIGURES, audits)
    assert seen.words.endswith(".") and seen.any == any("observed" in one for one in seen.figures)
    return [place for place, one in enumerate(seen.figures) if one.get("observed") is not None]


def test_only_adversaries_that_are_told_as_much_as_the_audits() -> None:
    assert bounded(a_run(), audit("dpzv", 8.0)) == [1]  # one party alone is sent less
    assert bounded(a_run(), audit("dpzv", 5.0)) == [0, 1]
    assert bounded(a_run("vafl"), audit("vafl", 6.0)) == [3]  # test rows are not audited; others see no embedding
    assert bounded(a_run(), audit("dpzv", 8.01)) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (audit("vafl", 1.0), "an audit of vafl, and this run is of dpzv"),
        (audit("dpzv", 1.0, delta=1e-6), "at δ = 1e-06"),
        (audit("dpzv", 1.0, update="zeroth-order"), "server_update = zeroth-order"),
        (audit("dpzv", 9.0), "cost ε = 9; this run's cost less (at most 8)"),
    ],
)
def test_an_audit_of_something_else_is_no_bound(other: Any, words: str) -> None:
    seen = observe(a_run(), FIGURES, [other])
    assert words in seen.words and "says nothing of this run" in seen.words
    assert not seen.any and seen.figures == FIGURES
    assert heads(seen.figures) == HEADS


@pytest.mark.parametrize("algorithm", ["dpzv", "vafl"])
def test_what_private_updates_cost_is_never_shown_to_anybody(algorithm: str) -> None:
    """A run may spend most of its ε on updates: an audit with as much ε, all of it seen, bounds nothing."""
    seen = observe(a_run(algorithm, "dp-sgd"), FIGURES, [audit(algorithm, 1.0, update="dp-sgd")])
    assert not seen.any and "private updates (dp-sgd)" in seen.words


def test_of_several_audits_the_smallest_bound_counts() -> None:
    seen = observe(a_run(), FIGURES, [audit("dpzv", 8.0, 3.0), audit("dpzv", 8.0, 2.5)])
    assert seen.figures[1]["observed"] == 2.5 and "smallest of 2" in seen.words


def test_the_column_is_there_only_with_an_audit() -> None:
    seen = observe(a_run(), FIGURES, [audit("dpzv", 8.0, 2.5)])
    place = heads(seen.figures).index(OBSERVED)
    rows, _ = figure_rows(seen.figures)
    assert [row[place] for row in rows if row[0] == LABELS] == ["not audited", "2.5", "not audited"]
    rows, _ = figure_rows(FIGURES)
    assert all(len(row) == len(HEADS) for row in rows)


def private_run(path: Path) -> Path:
    privacy = {**NOISED_PRIVACY, "figures": [figure(COLUMNS, "label party bank", 8.0)], "sound": 8.0}
    run = full_run(path, exchanges=40)  # of vafl
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"privacy": privacy}))
    return run


@pytest.mark.usefixtures("undrawn")
def test_a_real_audit_in_a_real_page(tmp_path: Path) -> None:
    run = private_run(tmp_path / "run")
    result = run_audit(Audit("vafl", epsilon=8.0, formula="sound", rows=256, batch_size=16, epochs=2)).as_values()
    assert "observed ε" not in write_report(run).read_text()
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps([result]))
    page = write_report(run, elsewhere).read_text()
    assert OBSERVED in page and f"<td>{result['observed']:.4g}</td>" in page
    assert "256 canaries" in page and "95 % confidence" in page
    assert 0 < result["observed"] < 8
    # Its own is found without being named; one that says nothing is told of there, and refused when asked for.
    (run / "audit.json").write_text(json.dumps([result]))
    assert OBSERVED in write_report(run).read_text()
    (run / "audit.json").write_text(json.dumps([audit("dpzv", 1.0)]))
    page = write_report(run).read_text()
    assert OBSERVED not in page and "an audit of dpzv, and this run is of vafl" in page
    with pytest.raises(SettingsError, match="this run is of vafl"):
        write_report(run, run)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["audit", "observed", "protects"]), inner, max_size=3)
        ),
        max_leaves=5,
    )
)
def test_anything_else_is_no_audit(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("odd") / "audit.json"
    path.write_text(json.dumps(value))
    with pytest.raises(RunError, match="is no audit"):
        audit_of(a_run(), path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    run = read_run(private_run(tmp_path / "run"))
    assert audit_of(run) == []
    with pytest.raises(SettingsError, match="could not be read"):
        audit_of(run, tmp_path)
