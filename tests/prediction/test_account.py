"""The account of rows: what is appended to its journal is as good as what is written whole, also after a crash."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import RunError
from colonnade.prediction import account as module
from colonnade.prediction.account import RowAccount, account_names

IDS = [f"c{number}" for number in range(12)]


def started(folder: Path, **spent: float) -> RowAccount:
    account = RowAccount(folder)
    account.create(dict(zip(account_names([*spent]), spent.values(), strict=True)))
    return account


def journals(folder: Path) -> list[Path]:
    return sorted(folder.glob("account-*.journal"))


def test_rows_are_released_until_they_are_spent_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    account = started(tmp_path, a=1.0, b=0.0)
    before = (tmp_path / "account.msgpack").read_bytes()
    assert account.afford(["a", "b", "new"], 1.0, limit=2.0).tolist() == [True, True, True]
    assert account.afford(["a", "b", "new"], 1.0, limit=2.0).tolist() == [False, True, True]
    assert account.afford(["a", "b", "new"], 1.0, limit=2.0).tolist() == [False, False, False]
    assert (tmp_path / "account.msgpack").read_bytes() == before, "releases are appended, and nothing is written anew"
    assert len(journals(tmp_path)) == 1 and journals(tmp_path)[0].stat().st_mode & 0o077 == 0
    a, b, new = account_names(["a", "b", "new"])
    assert RowAccount(tmp_path).totals() == {a: 2.0, b: 2.0, new: 2.0}
    # A prediction that begins and ends goes on from there, and takes the journal in.
    assert account.begin(Path("run"), ["a", "b"], 5.0).tolist() == [2.0, 2.0]
    account.end(Path("run"), ["a"], np.array([3.0]))
    assert RowAccount(tmp_path).totals() == {a: 5.0, b: 2.0, new: 2.0}
    assert not journals(tmp_path)


def test_a_row_that_is_asked_for_twice_at_once_costs_twice_and_is_no_way_around_its_budget(tmp_path: Path) -> None:
    account = started(tmp_path, a=1.0)
    assert account.afford(["a", "b", "a", "b", "a"], 1.0, limit=2.0).tolist() == [True, True, False, True, False]
    a, b = account_names(["a", "b"])
    assert RowAccount(tmp_path).totals() == {a: 2.0, b: 2.0}


def test_a_record_that_a_crash_has_torn_is_left_out_and_one_that_is_damaged_is_refused(tmp_path: Path) -> None:
    account = started(tmp_path, a=0.0)
    account.afford(["a"], 1.0, limit=9.0)
    (journal,) = journals(tmp_path)
    whole = journal.read_bytes()
    account.afford(["a"], 1.0, limit=9.0)
    journal.write_bytes(journal.read_bytes()[:-3])  # it was killed before it released anything for that
    (a,) = account_names(["a"])
    assert RowAccount(tmp_path).totals() == {a: 1.0}
    assert account.afford(["a"], 4.0, limit=9.0).tolist() == [True]
    assert RowAccount(tmp_path).totals() == {a: 5.0}
    journal.write_bytes(whole[:-3] + b"xyz" + journal.read_bytes()[len(whole) :])
    with pytest.raises(RunError, match="damaged"):
        RowAccount(tmp_path).afford(["a"], 1.0, limit=9.0)
    (tmp_path / "account.msgpack").unlink()
    with pytest.raises(RunError, match="missing or damaged"):
        RowAccount(tmp_path).afford(["a"], 1.0, limit=9.0)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(IDS), max_size=4, unique=True)), max_size=12))
def test_two_processes_and_a_short_journal_count_as_one_table_would(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[bool, list[str]]]
) -> None:
    folder = tmp_path_factory.mktemp("account")
    started(folder, c0=1.0, c1=3.0)
    two, plain = {True: RowAccount(folder), False: RowAccount(folder)}, {"c0": 1.0, "c1": 3.0}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_LEAST_JOURNAL_BYTES", 100)
        for whose, ids in batches:
            expected = [plain.get(one, 0.0) + 1.0 <= 4.0 for one in ids]
            assert two[whose].afford(ids, 1.0, limit=4.0).tolist() == expected
            plain |= {one: plain.get(one, 0.0) + 1.0 for one, can in zip(ids, expected, strict=True) if can}
            assert sum(path.stat().st_size for path in journals(folder)) < 500
    names = dict(zip(plain, account_names([*plain]), strict=True))
    assert RowAccount(folder).totals() == {names[one]: cost for one, cost in plain.items()}
