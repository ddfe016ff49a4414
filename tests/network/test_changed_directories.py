"""A party's run directory is the run it began with: its settings may not change in it, nor its journal be lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from parties import IRIS, Town, shared, with_tables
from strangers import membership_of

from colonnade.errors import RunError, SettingsError
from colonnade.launch.party_directory import PartyDirectory
from colonnade.wire.handshake import Roster


@pytest.fixture
def one(town: Callable[..., Town]) -> Town:
    private = {"noise": 12.0, "clip": 1.0, "bottom_update": "frozen"}
    return town(shared("vafl", IRIS, 2, 16, privacy=private))


def test_settings_that_were_edited_in_both_places_are_noticed(one: Town, tmp_path: Path) -> None:
    party = one["party1"]
    directory = PartyDirectory(membership_of(party, tmp_path / "run"))
    directory.keep_plan()
    directory.keep(Roster("classes", 3, {}, {}))
    PartyDirectory(membership_of(party, tmp_path / "run"))
    given, kept = party.folder / "federation.toml", tmp_path / "run" / "federation.toml"
    given.write_text(given.read_text().replace("noise = 12.0", "noise = 0.5"))
    with pytest.raises(SettingsError, match="holds a run with other settings"):
        PartyDirectory(membership_of(party, tmp_path / "run"))
    kept.write_text(kept.read_text().replace("noise = 12.0", "noise = 0.5"))
    with pytest.raises(SettingsError, match=r"federation\.toml was changed after its run began"):
        PartyDirectory(membership_of(party, tmp_path / "run"))


def test_a_party_with_a_ledger_and_without_a_journal_does_not_begin_anew(one: Town, tmp_path: Path) -> None:
    party = one["party1"]
    PartyDirectory(membership_of(party, tmp_path / "run"))
    (tmp_path / "run" / "ledger.jsonl").write_text('{"party":"party1"}\n')
    with pytest.raises(RunError, match=r"party1 has a ledger of what it has released .* but no journal"):
        PartyDirectory(membership_of(party, tmp_path / "run"))


@pytest.mark.parametrize("changed", ["columns", "bottom model"])
def test_what_is_sent_again_is_computed_from_the_same(town: Callable[..., Town], tmp_path: Path, changed: str) -> None:
    """Another value under the same noise would show their difference."""
    party = with_tables(town, shared("vafl", {}, 2, 64), parties=2)["party1"]
    directory = PartyDirectory(membership_of(party, tmp_path / "run"))
    directory.keep_plan()
    directory.keep(Roster("classes", 2, {}, {}))
    PartyDirectory(membership_of(party, tmp_path / "run"))
    if changed == "columns":
        table = party.folder / "table.csv"
        first, second, *others = table.read_text().splitlines()
        *cells, last = second.split(",")
        table.write_text("\n".join([first, ",".join([*cells, f"{float(last) + 0.5}"]), *others]) + "\n")
    else:
        party.own["bottom"] = {"embedding": 3}
        party.write_files()
    with pytest.raises(SettingsError, match=f"The {changed} of party1 differ from those the run in"):
        PartyDirectory(membership_of(party, tmp_path / "run"))
