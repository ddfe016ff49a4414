"""Organisations explain their model over mutual TLS, as one person with all models would; kills, budgets, refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from parties import LABEL, Organisation, Town, shared, wait_until

from colonnade.explanation.explaining import explain_model
from colonnade.explanation.settings import ExplainSettings
from colonnade.prediction.account import RowAccount
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.saved_model import read_model
from colonnade.privacy.gaussian import mu_of

NAMES = [LABEL, "party1", "party2"]
ROWS = 60


def trained(town: Callable[..., Town], algorithm: str | dict[str, Any], parties: int = 2, **more: Any) -> Town:
    names = NAMES[: 1 + parties]
    data = {"id": "id", "label": "label", "test_fraction": 0.5}
    plan = shared(algorithm, data, 1, 8, **more)
    own = {name: {"data": {"file": "table.csv"}} for name in names}
    built = town({**plan, "parties": {name: {} for name in names}}, parties=parties, own=own)
    draws = np.random.default_rng(7).normal(size=(ROWS, 5))
    columns: dict[str, dict[str, Any]] = {
        LABEL: {"label": (draws[:, :3].sum(1) > 0).astype(int), "own_x": draws[:, 4]},
        "party1": {"pollen": draws[:, 0], "girth": draws[:, 3]},
        "party2": {"borough": np.where(draws[:, 1] > 0, "Oslo", "Rome"), "stopovers": draws[:, 2]},
    }
    for name in names:
        frame = pd.DataFrame({"id": [f"c{number:03}" for number in range(ROWS)], **columns[name]})
        frame.to_csv(built[name].folder / "table.csv", index=False)
    built.start()
    built.end()
    return built


def explain(one: Organisation, *more: str) -> None:
    files = [str(one.folder / "federation.toml"), "--party", str(one.folder / "party.toml")]
    if "--directory" not in more:
        more = (*more, "--directory", str(one.folder / "explained"))
    one.begin(["explain", *files, "--model", str(one.out), *more])


def page(one: Organisation, directory: str = "explained") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((one.folder / directory / f"{one.name}.json").read_text(encoding="utf-8"))
    return found


def test_who_is_killed_in_the_middle_goes_on_and_all_see_what_one_place_would_have_found(
    town: Callable[..., Town],
) -> None:
    built = trained(town, "vafl")
    options = ("--repeats", "2", "--steps", "6")
    for one in built.parties.values():
        one.options = {"milliseconds_an_event": 20}
        explain(one, *options)
    for victim, some_bytes in (("party1", 6000), (LABEL, 30000)):
        journal = built[victim].folder / "explained" / "journal"
        wait_until(lambda: _size(journal) > some_bytes, "some of the work")  # noqa: B023 — asked at once
        assert not (built[victim].folder / "explained" / "summary.json").exists()
        built[victim].kill()
        explain(built[victim], *options)
    for one in built.parties.values():
        one.end()
    models = {name: read_model(one.out / "model" / name) for name, one in built.parties.items()}
    expected = explain_model(JointModel(models, LABEL), built.data(), ExplainSettings(repeats=2, steps=6))
    for name, one in built.parties.items():
        assert page(one) == json.loads(json.dumps(expected.of(name)))
        kept = b"".join(path.read_bytes() for path in (one.folder / "explained").rglob("*") if path.is_file())
        for other, columns in {"party1": (b"pollen", b"girth"), "party2": (b"borough", b"stopovers")}.items():
            assert all((column in kept) == (other == name) for column in columns)
    # A page names the party that it is for, and its owner alone may read it.
    assert (built["party1"].folder / "explained" / "party1.html").stat().st_mode & 0o077 == 0


def test_other_options_another_purpose_changed_rows_and_masked_sums_are_refused(town: Callable[..., Town]) -> None:
    built = trained(town, {"name": "afsaga", "sums": "pairwise", "allow_two_parties": True})
    feature = built["party1"]
    explain(feature)
    feature.end(code=2)
    assert "all give --show-products" in feature.said()
    explain(built.label, "--show-products", "--repeats", "1")
    explain(feature, "--show-products", "--repeats", "2")
    feature.end(code=None)
    assert "commands differ in explain.repeats" in feature.said()
    feature.start(out=feature.folder / "again")
    feature.end(code=None)
    assert "explains and the other trains" in feature.said()
    table = feature.folder / "table.csv"
    right = table.read_bytes()
    pd.read_csv(table).assign(pollen=0.5).to_csv(table, index=False)
    explain(feature, "--show-products", "--repeats", "1")
    feature.end(code=2)
    assert "columns of party1 differ from those of its training" in feature.said()
    table.write_bytes(right)
    for name in NAMES[1:]:
        explain(built[name], "--show-products", "--repeats", "1", "--directory", str(built[name].folder / "all agree"))
    for one in built.parties.values():
        one.end()
    assert "exact products of test rows of party1" in page(feature, "all agree")["learnt"][0]


def test_a_budget_holds_across_training_and_explanations(town: Callable[..., Town]) -> None:
    privacy = {"columns_epsilon": 12.0, "delta": 1e-3, "clip": 1.0, "noise": 4.0, "bottom_update": "frozen"}
    built = trained(town, "vafl", 1, privacy=privacy)
    feature, label = built["party1"], built.label
    account = RowAccount(feature.out / "model" / "party1")
    ids = [f"c{number:03}" for number in range(ROWS)]
    before = account.begin(Path("look"), ids, 0.0)
    for one in (label, feature):
        explain(one, "--repeats", "3", "--directory", str(one.folder / "first"))
    for one in (label, feature):
        one.end()
    after = account.begin(Path("look"), ids, 0.0)
    releases, cost = 1 + 2 * 3, (2 / 4) ** 2
    test_rows = after > before
    assert int(test_rows.sum()) == page(feature, "first")["rows"]
    assert np.allclose((after - before)[test_rows], releases * cost)
    assert 0 < page(feature, "first")["epsilon"] < 12
    assert "noisy embeddings" in page(label, "first")["learnt"][0]
    explain(feature, "--repeats", "200", "--directory", str(feature.folder / "too much"))
    feature.end(code=2)
    assert "release each row of party1 401 more times" in feature.said()
    assert np.array_equal(account.begin(Path("look"), ids, 0.0), after), "what was refused has cost nothing"
    assert float(after.max()) <= mu_of(12.0, 1e-3) ** 2


def _size(journal: Path) -> int:
    return sum(path.stat().st_size for path in journal.glob("*.journal"))
