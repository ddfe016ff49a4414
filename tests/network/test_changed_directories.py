"""A party's run directory is the run it began with: its settings may not change in it, nor its journal be lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from parties import IRIS, Town, shared
from strangers import membership_of

from colonnade.errors import RunError, SettingsError
from colonnade.joining import Home
from colonnade.wire.handshake import Everybody


@pytest.fixture
def one(town: Callable[..., Town]) -> Town:
    private = {"noise": 12.0, "clip": 1.0, "bottom_update": "frozen"}
    return town(shared("vafl", IRIS, 2, 16, privacy=private))


def test_settings_that_were_edited_in_both_places_are_noticed(one: Town, tmp_path: Path) -> None:
    party = one["party1"]
    home = Home(membership_of(party, tmp_path / "run"))
    home.keep_plan()
    home.keep(Everybody("classes", 3, {}, {}))
    Home(membership_of(party, tmp_path / "run"))
    given, kept = party.folder / "federation.toml", tmp_path / "run" / "federation.toml"
    given.write_text(given.read_text().replace("noise = 12.0", "noise = 0.5"))
    with pytest.raises(SettingsError, match="holds a run with other settings"):
        Home(membership_of(party, tmp_path / "run"))
    kept.write_text(kept.read_text().replace("noise = 12.0", "noise = 0.5"))
    with pytest.raises(SettingsError, match=r"federation\.toml was changed after its run began"):
        Home(membership_of(party, tmp_path / "run"))


def test_a_party_with_a_ledger_and_without_a_journal_does_not_begin_anew(one: Town, tmp_path: Path) -> None:
    party = one["party1"]
    Home(membership_of(party, tmp_path / "run"))
    (tmp_path / "run" / "ledger.jsonl").write_text('{"party":"party1"}\n')
    with pytest.raises(RunError, match=r"party1 has a ledger of what it has released .* but no journal"):
        Home(membership_of(party, tmp_path / "run"))
