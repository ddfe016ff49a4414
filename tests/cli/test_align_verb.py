"""`colonnade align` for tables in one place: what it writes, what a run makes of it, and every way it refuses."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import colonnade, refused, toml

from colonnade.federation.file import read_federation
from colonnade.launch.alignment import align
from colonnade.launch.run_options import RunOptions
from colonnade.runtimes.processes.fork_server import fork_server_for
from colonnade.runtimes.processes.settings import Processes

FEDERATION = """
[federation]
name = "credit"
label_party = "bank"
[data]
id = "customer"
label = "paid"
[training]
epochs = 1
batch_size = 8
[alignment.rules.customer]
case = "lower"
[parties.bank]
file = "bank.csv"
[parties.shop]
file = "shop.parquet"
id = "Client"
"""
ALIGNED = (
    FEDERATION.replace("[training]", 'rows = "aligned"\n[training]')
    .replace('file = "bank.csv"', 'file = "bank.csv"\naligned = "runs/credit-align/bank"')
    .replace('id = "Client"', 'aligned = "runs/credit-align/shop"')
)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """41 customers of the bank, one twice and one without an id; 40 of the shop, 38 of them the bank's."""
    monkeypatch.chdir(tmp_path)
    bank = [f"C{number:03}" for number in range(40)]
    rows = [*bank, "C000", ""]
    pd.DataFrame({"customer": rows, "income": range(42), "paid": [n // 2 % 2 for n in range(42)]}).to_csv(
        "bank.csv", index=False
    )
    shop = [f" c{number:03} " for number in range(41, 1, -1)]
    pd.DataFrame({"Client": shop, "orders": range(40)}).to_parquet("shop.parquet")
    toml("federation.toml", FEDERATION)
    return tmp_path


def rows(folder: str) -> pd.DataFrame:
    return pd.read_csv(Path(folder, "rows.csv"), dtype=str)


def test_rows_that_the_shop_lacks_are_kept_where_that_is_asked(tables: Path) -> None:
    answer = colonnade("align", "federation.toml", "--set", 'alignment.rows="any"')
    assert answer.code == 0, answer.err
    assert "bank: 39 of 39 rows of bank" in answer.out and "shop: 38 of 39 rows of bank" in answer.out
    assert "learnt: Which of its own rows shop holds: 38 of 39." in answer.out
    assert "learnt: Which 38 of its own ids are among the 39 of bank, and their places in order." in answer.out
    bank, shop = rows("runs/credit-align/bank"), rows("runs/credit-align/shop")
    lacking = shop["row"].isna()
    assert bank["customer"][lacking].tolist() == ["C001"] and shop["Client"][lacking].isna().all()
    assert bank["customer"][~lacking].str.lower().tolist() == shop["Client"][~lacking].str.strip().tolist()
    ran = colonnade("run", toml("aligned.toml", ALIGNED), "--no-report", "--json")
    assert ran.code == 0, ran.err
    held = ran.object["data"]["rows_by_party"]
    assert (held["bank"]["used"], held["shop"]["used"]) == (39, 38)
    assert ran.object["data"]["parties"] == {"shop": {"columns": 2}, "bank": {"columns": 2}}
    # A line without a row is damage where all parties hold all rows.
    path = Path("runs/credit-align/shop/alignment.json")
    path.write_text(path.read_text().replace('"rows": "any"', '"rows": "all"'))
    assert "is damaged" in refused("run", "aligned.toml", "--no-report", code=1)


def test_from_tables_to_a_training(tables: Path) -> None:
    answer = colonnade("align", "federation.toml")
    assert answer.code == 0, answer.err
    assert "bank: 38 shared rows (28 train, 0 validation, 10 test) of 39 usable ids" in answer.out
    assert "left out: 1 missing, 2 repeated of 42 rows" in answer.out
    assert "learnt: That shop has 40 usable ids." in answer.out
    bank, shop = rows("runs/credit-align/bank"), rows("runs/credit-align/shop")
    assert bank["customer"].str.lower().tolist() == shop["Client"].str.strip().tolist()
    assert bank["part"].tolist() == shop["part"].tolist()
    facts = json.loads(Path("runs/credit-align/shop/alignment.json").read_text())
    assert facts["own"] == {"held": 40, "usable": 40, "missing": 0, "malformed": 0, "repeated": 0}
    assert "39" not in json.dumps(facts["own"]) and facts["told_sizes"] == {"bank": 39}
    # What the bank's ids lack is nobody's business but the bank's.
    assert "repeated" not in json.dumps(facts["learnt"])

    ran = colonnade("run", toml("aligned.toml", ALIGNED), "--no-report", "--json")
    assert ran.code == 0, ran.err
    assert ran.object["data"]["rows"] == 28

    # The same, in processes: the same seed gives the same order.
    assert colonnade("align", "federation.toml", "--runtime", "processes", "--out", "again").code == 0
    assert rows("again/bank").equals(bank)


def test_an_alignment_in_processes_ends_the_same_whoever_is_killed(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = read_federation(Path("federation.toml"))
    killed: list[str] = []

    def children() -> dict[str, int]:
        parent = fork_server_for("colonnade.launch.party_process")._process.pid
        found = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and (stat := _stat(path)) and stat[1] == parent:
                found[stat[0]] = int(path.name)
        return found

    def report(party: str, said: dict[str, Any]) -> None:
        alive = children()
        for victim in ("shop", "bank"):
            if victim not in killed and victim in alive and said.get("exchanges", 0) >= 0:
                killed.append(victim)
                os.kill(alive[victim], signal.SIGKILL)
                return

    slow = Processes(compute_seconds=0.2)
    done = align(federation, tables, slow, RunOptions("killed", report=report, checkpoint_seconds=0.1))
    assert done.finished and done.written and sorted(killed) == ["bank", "shop"]
    assert colonnade("align", "federation.toml", "--out", "whole").code == 0
    for name in ("bank", "shop"):
        assert rows(f"killed/{name}").equals(rows(f"whole/{name}"))


def _stat(path: Path) -> tuple[str, int] | None:
    try:
        text = (path / "stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *_ = rest.split()
    return None if state == "Z" else (name, int(parent))


def test_hashed_matching_gives_the_same_rows_and_says_what_it_showed(tables: Path) -> None:
    assert colonnade("align", "federation.toml").code == 0
    answer = colonnade("align", "federation.toml", "--method", "hashed", "--out", "hashed", "--json")
    assert answer.code == 0
    told = answer.object["parties"]["bank"]
    assert told["method"] == "hashed" and any("every id that it can guess" in one for one in told["learnt"])
    one, other = rows("runs/credit-align/bank"), rows("hashed/bank")
    assert set(one["customer"]) == set(other["customer"])
    assert "LEAKS" in colonnade("align", "--help").out


def test_several_columns_are_one_id(tables: Path) -> None:
    people = [("Ann", "1990"), ("Bob", "1990"), ("Ann", "1991"), ("Eve", "1980")]
    pd.DataFrame(people, columns=["first", "born"]).assign(x=1.0, paid=[0, 1, 0, 1]).to_csv("bank.csv", index=False)
    pd.DataFrame(people[::-1], columns=["Name", "Year"]).assign(y=2.0).to_csv("shop.csv", index=False)
    text = FEDERATION.replace(
        "[alignment.rules.customer]", '[alignment]\ncolumns = ["first", "born"]\n[alignment.rules.first]'
    ).replace('file = "shop.parquet"\nid = "Client"', 'file = "shop.csv"\nid_columns = ["Name", "Year"]')
    assert colonnade("align", toml("several.toml", text)).code == 0
    bank, shop = rows("runs/credit-align/bank"), rows("runs/credit-align/shop")
    assert len(bank) == 4
    assert bank[["first", "born"]].to_numpy().tolist() == shop[["Name", "Year"]].to_numpy().tolist()


def test_a_small_match_asks_for_confirmation_and_tells_its_owner_why(tables: Path) -> None:
    pd.DataFrame({"Client": [f"C{n:03}" for n in (1, 2, 3)] + [f"X{n}" for n in range(40)], "orders": 1.0}).to_parquet(
        "shop.parquet"
    )
    text = FEDERATION.replace('case = "lower"', 'case = "keep"')
    answer = colonnade("align", toml("federation.toml", text))
    assert answer.code == 2 and not Path("runs/credit-align/bank").exists()
    assert "Only 3 rows match: 7.7 % of the 39 ids of bank" in answer.err and "capital letters" in answer.err
    assert not any(f"C{n:03}" in answer.err for n in range(40))
    assert colonnade("align", "federation.toml", "--resume", "--yes").code == 0
    assert len(rows("runs/credit-align/bank")) == 3


# --- one sentence each --------------------------------------------------------------------------------------------


def sentence(text: str, *more: str) -> str:
    return refused("align", toml("federation.toml", text), *more)


def test_bad_input_is_one_sentence(tables: Path) -> None:
    assert "no id column 'Klient'. Did you mean 'Client'?" in sentence(FEDERATION.replace("Client", "Klient"))
    assert "names no file" in sentence(FEDERATION.replace('file = "bank.csv"', ""))
    assert "has no file" in sentence(FEDERATION.replace("bank.csv", "none.csv"))
    assert "pad_to = 30" in sentence(
        FEDERATION.replace("[alignment.rules", "[alignment]\npad_to = 30\n[alignment.rules")
    )
    assert "nothing to align" in refused(
        "align", toml("set.toml", '[data]\nset = "iris"\nparties = 2\n'), "--out", "set"
    )
    assert "method of alignment" in sentence(FEDERATION, "--method", "magic")
    nobody = pd.DataFrame({"Client": ["x", "y"], "orders": [1, 2]})
    nobody.to_parquet("shop.parquet")
    assert "No id is held by all parties (bank, shop)" in sentence(FEDERATION, "--out", "none")
    pd.DataFrame({"Client": ["x", "x"], "orders": [1, 2]}).to_parquet("shop.parquet")
    told = sentence(FEDERATION, "--out", "twice")
    assert "'shop' has no id that can be used: of its 2 rows 0 missing, 0 malformed, 2 repeated" in told


def test_a_run_refuses_rows_of_another_alignment_and_of_a_table_that_changed(tables: Path) -> None:
    run = toml("aligned.toml", ALIGNED)
    assert "has no alignment in" in refused("run", run)
    assert colonnade("align", "federation.toml").code == 0
    assert "does not say where its aligned rows are" in refused(
        "run", toml("without.toml", ALIGNED.replace('aligned = "runs/credit-align/shop"', ""))
    )
    other = ALIGNED.replace("runs/credit-align/shop", "runs/credit-align/bank")
    assert "is that of party 'bank', not of 'shop'" in refused("run", toml("other.toml", other))
    changed = FEDERATION.replace("[federation]", "[federation]\nseed = 1")
    assert colonnade("align", toml("other.toml", changed), "--out", "second").code == 0
    other = ALIGNED.replace("runs/credit-align/shop", "second/shop")
    assert "different alignments" in refused("run", toml("other.toml", other))
    frame = pd.read_parquet("shop.parquet")
    frame.iloc[::-1].reset_index(drop=True).to_parquet("shop.parquet")
    assert "differ from those that were aligned" in refused("run", run)
