"""Organisations align their rows over mutual TLS, survive being killed, and train on what they found."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from parties import LABEL, Organisation, Town, shared, wait_until

from colonnade.data.absence import ABSENT
from colonnade.prediction.saved_model import read_model

NAMES = [LABEL, "party1", "party2"]
IDS = {LABEL: range(90), "party1": range(10, 100), "party2": range(0, 100, 2)}
SHARED = sorted(set.intersection(*map(set, IDS.values())))
PIECES = {f"colonnade.alignment.{module}.PIECE": 8 for module in ("pieces", "conversation", "ecdh", "hashed")}


def aligning(
    town: Callable[..., Town], parties: int, milliseconds_an_event: int = 0, alignment_rows: str = "all", **more: Any
) -> Town:
    """Tables whose ids overlap, written as each organisation likes."""
    names = NAMES[: 1 + parties]
    plan = shared("vafl", {"id": "id", "label": "label"}, 1, 8, **more)
    plan["alignment"] = {"rules": {"id": {"case": "lower"}}, "rows": alignment_rows}
    own = {name: {"data": {"file": "table.csv"}} for name in names}
    built = town({**plan, "parties": {name: {} for name in names}}, parties=parties, own=own)
    for name in names:
        form = str.upper if name == "party1" else str.lower
        table = {"id": [form(f" c{number:03}") for number in IDS[name]], f"{name}_x": [n % 5 for n in IDS[name]]}
        if name == LABEL:
            table["label"] = [n // 2 % 2 for n in IDS[name]]
        pd.DataFrame(table).to_csv(built[name].folder / "table.csv", index=False)
        built[name].options = {"patches": PIECES, "milliseconds_an_event": milliseconds_an_event}
        built[name].out = built[name].folder / "aligned"
    return built


def align(one: Organisation) -> None:
    one.start("--yes", "--workers", "1", verb="align")


def rows_of(one: Organisation) -> list[tuple[str, str]]:
    """Its own ids in the common order, written alike, and their parts."""
    with (one.out / "rows.csv").open(encoding="utf-8") as file:
        return [(line["id"].strip().lower(), line["part"]) for line in csv.DictReader(file)]


def facts_of(one: Organisation) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((one.out / "alignment.json").read_text(encoding="utf-8"))
    return found


def train_on(town: Town) -> None:
    for name, one in town.parties.items():
        one.own["data"]["aligned"] = "aligned"
        one.write_files(data={"id": "id", "label": "label", "rows": "aligned"})
        one.out = one.folder / "trained"
        one.options = {}
        assert (one.folder / "aligned" / "rows.csv").exists(), name


def test_who_is_killed_in_the_middle_goes_on_and_a_training_takes_the_rows_up(town: Callable[..., Town]) -> None:
    built = aligning(town, 2, milliseconds_an_event=20)
    for one in built.parties.values():
        align(one)
    for victim, some_bytes in (("party1", 1500), (LABEL, 4000)):
        journal = built[victim].out / "journal"
        wait_until(lambda: _size(journal) > some_bytes, "some of the work")  # noqa: B023 — asked at once
        assert not (built[victim].out / "rows.csv").exists()
        built[victim].kill()
        align(built[victim])
    for one in built.parties.values():
        one.end()
    rows = {name: rows_of(one) for name, one in built.parties.items()}
    assert rows[LABEL] == rows["party1"] == rows["party2"]
    assert sorted(one for one, _ in rows[LABEL]) == [f"c{number:03}" for number in SHARED]
    assert len({facts_of(one)["digest"] for one in built.parties.values()}) == 1
    assert not [one for one in built.parties.values() if any(f"c{n:03}" in one.said().lower() for n in range(100))]

    train_on(built)
    built.start()
    assert built.end()["status"] == "finished"

    # Nobody trains on another alignment.
    path: Path = built["party1"].folder / "aligned" / "alignment.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**facts, "digest": "0" * 64}), encoding="utf-8")
    for one in built.parties.values():
        one.out = one.folder / "again"
    built.label.start()
    built["party1"].start()
    built["party1"].end(code=None)
    assert "different alignments" in built["party1"].said()


def test_rows_that_some_lack_are_placed_and_trained_on(town: Callable[..., Town]) -> None:
    built = aligning(town, 2, alignment_rows="any")
    for one in built.parties.values():
        align(one)
    for one in built.parties.values():
        one.end()
    rows = {name: rows_of(one) for name, one in built.parties.items()}
    assert sorted(one for one, _ in rows[LABEL]) == [f"c{number:03}" for number in IDS[LABEL]]
    for name in NAMES[1:]:
        held = {f"c{number:03}" for number in IDS[name]}
        assert rows[name] == [(one if one in held else "", part) for one, part in rows[LABEL]]
        assert facts_of(built[name])["held_by"] == {name: len({*IDS[name]} & {*IDS[LABEL]})}
    train_on(built)
    built.start()
    summary = built.end()
    assert (summary["status"], summary["data"]["rows"] + summary["data"]["test_rows"]) == ("finished", 90)
    for name in NAMES[1:]:
        saved = read_model(built[name].out / "model" / name)
        assert saved.stand_in() is not None and saved.description.columns[-1] == ABSENT


def test_other_rules_and_another_purpose_are_refused_at_the_door(town: Callable[..., Town]) -> None:
    built = aligning(town, 1)
    stranger = built["party1"]
    stranger.write_files(alignment={"rules": {"id": {"case": "upper"}}})
    align(built.label)
    align(stranger)
    stranger.end(code=None)
    assert "differ in alignment.rules.id.case" in stranger.said()
    stranger.write_files()
    stranger.start(out=stranger.folder / "training")
    stranger.end(code=None)
    assert "aligns rows and the other trains" in stranger.said()


def _size(journal: Path) -> int:
    return sum(path.stat().st_size for path in journal.glob("*.journal"))
