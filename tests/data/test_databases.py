"""Tables by query: DuckDB over files in place, SQLite, and a real PostgreSQL; passwords are shown nowhere."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from postgres_server import postgres_server

from colonnade.data.settings import PartyData
from colonnade.data.sources import Table, ids_of, read_own, read_table
from colonnade.errors import DataError, SettingsError
from colonnade.federation.file import federation_values, parse_federation

PASSWORD = "tell/nobody@all:of it"
CUSTOMERS = pd.DataFrame({"id": ["001", "002", "003"], "age": [30, None, 50], "town": ["Graz", "Linz", "Wien"]})


def content(table: Table) -> dict[str, list]:
    return {"id": table.ids.tolist(), **{name: table.column(name).to_pylist() for name in table.columns}}


def read(folder: Path, **own) -> Table:
    return read_own(PartyData(**own), folder, party="bank", id="id")


# --- files in place ---------------------------------------------------------------------------------------------


def test_a_query_joins_files_where_they_lie(tmp_path: Path) -> None:
    CUSTOMERS.to_parquet(tmp_path / "customers.parquet")
    (tmp_path / "loans.csv").write_text("customer,amount\n001,10\n003,30\n")
    query = (
        "SELECT c.id, c.age, l.amount FROM 'customers.parquet' c "
        "JOIN read_csv('loans.csv', all_varchar = true) l ON l.customer = c.id ORDER BY c.id"
    )
    found = read(tmp_path, sql=query)
    assert content(found) == {"id": ["001", "003"], "age": [30, 50], "amount": ["10", "30"]}
    assert ids_of(PartyData(sql=query), tmp_path, party="bank", id="id").tolist() == ["001", "003"]


@pytest.mark.parametrize("kind", [".parquet", ".csv", "frame"])
def test_a_condition_chooses_rows(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"customers{kind}"
    if kind == ".parquet":
        CUSTOMERS.to_parquet(path)
    elif kind == ".csv":
        CUSTOMERS.to_csv(path, index=False)
    source = CUSTOMERS if kind == "frame" else path
    own = PartyData(where="age >= 40 AND town <> 'Graz'")
    table = read_table(source, party="bank", id="id", own=own)
    assert content(table) == {"id": ["003"], "age": [50], "town": ["Wien"]}
    assert table.row_numbers([0]) == [3]
    with pytest.raises(DataError, match=r"no row of .* fits its condition"):
        read_table(source, party="bank", id="id", own=replace(own, where="age > 99"))
    with pytest.raises(DataError, match=r"its condition `where` failed: BinderException.*agee"):
        read_table(source, party="bank", id="id", own=replace(own, where="agee > 99"))


def test_a_wrong_query_is_told_without_cells(tmp_path: Path) -> None:
    (tmp_path / "loans.csv").write_text("id,amount\n1,secret\n")
    with pytest.raises(DataError, match="its query failed: ParserException"):
        read(tmp_path, sql="SELEC 1")
    with pytest.raises(DataError, match="its query failed: ConversionException") as caught:
        read(tmp_path, sql="SELECT id, CAST(amount AS INTEGER) AS amount FROM 'loans.csv'")
    assert "secret" not in str(caught.value)


# --- databases --------------------------------------------------------------------------------------------------


def test_sqlite_lies_beside_the_settings(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "bank.db") as connection:
        CUSTOMERS.to_sql("customers", connection, index=False)
    connection.close()
    found = read(tmp_path, database="sqlite:///bank.db", sql="SELECT * FROM customers WHERE town <> 'Linz'")
    assert content(found) == {"id": ["001", "003"], "age": [30, 50], "town": ["Graz", "Wien"]}
    with pytest.raises(DataError, match="OperationalError: no such table: custmers"):
        read(tmp_path, database="sqlite:///bank.db", sql="SELECT * FROM custmers")
    with pytest.raises(DataError, match=r"has no database '.*bnak.db'"):
        read(tmp_path, database="sqlite:///bnak.db", sql="SELECT 1")
    with pytest.raises(DataError, match="gives no row"):
        read(tmp_path, database="sqlite:///bank.db", sql="SELECT * FROM customers WHERE 1 = 0")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://bank:hunter2@host/loans",
        "postgresql://bank:a/b@host/loans",
        "mysql://host/loans?user=bank&password=hunter2",
        "postgresql://bank:x${SECRET}@host/loans",
    ],
)
def test_an_address_that_holds_a_password_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(SettingsError, match="holds a password") as caught:
        PartyData(database=address, sql="SELECT 1")
    assert "hunter2" not in str(caught.value) and "a/b" not in str(caught.value)


def test_what_a_database_needs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="environment variable BANK_ADDRESS, which is not set"):
        read(tmp_path, database="${BANK_ADDRESS}", sql="SELECT 1")
    with pytest.raises(SettingsError, match="no SQLAlchemy address"):
        read(tmp_path, database="bank", sql="SELECT 1")
    with pytest.raises(SettingsError, match="password file 'none' cannot be read"):
        read(tmp_path, database="sqlite://", sql="SELECT 1", password_file="none")
    with pytest.raises(SettingsError, match="names a `database` and no `sql`"):
        PartyData(database="sqlite://")
    monkeypatch.setattr("colonnade.data.databases.import_module", lambda name: __import__("no_such_package"))
    with pytest.raises(SettingsError, match=r"pip install 'colonnade\[sql\]'"):
        read(tmp_path, sql="SELECT 1")


# --- PostgreSQL -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[Path]:
    with postgres_server(PASSWORD) as folder:
        yield folder


def test_postgresql_with_a_password_from_the_environment_or_a_file(
    postgres: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlalchemy

    monkeypatch.setenv("BANK_PASSWORD", PASSWORD)
    rest = f"@/postgres?host={postgres}"
    url = sqlalchemy.make_url(f"postgresql+psycopg://bank{rest}").set(password=PASSWORD)
    engine = sqlalchemy.create_engine(url)
    rows = CUSTOMERS.assign(income=[1.5, 2.5, None], since=pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]))
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text(
                "CREATE TABLE customers (id text, age integer, town text, income numeric(9, 2), since date, key uuid)"
            )
        )
        for row in rows.astype(object).where(rows.notna(), None).to_dict("records"):
            connection.execute(
                sqlalchemy.text("INSERT INTO customers VALUES (:id, :age, :town, :income, :since, gen_random_uuid())"),
                row,
            )
    engine.dispose()
    query = "SELECT id, age, town, income, since FROM customers WHERE town <> 'Linz' ORDER BY id"
    own = PartyData(database="postgresql+psycopg://bank:${BANK_PASSWORD}" + rest, sql=query)
    table = read_own(own, tmp_path, party="bank", id="id")
    found = content(table)
    assert (found["id"], found["age"], found["income"]) == (["001", "003"], [30, 50], [1.5, None])
    assert [str(day) for day in found["since"]] == ["2020-01-01", "2022-01-01"]
    by_key = replace(own, sql="SELECT key, age FROM customers")
    assert len(read_own(by_key, tmp_path, party="bank", id="key").ids.tolist()[0]) == 36

    (tmp_path / "secret").write_text(f"{PASSWORD}\n")
    from_file = replace(own, database=f"postgresql+psycopg://bank{rest}", password_file="secret")
    assert content(read_own(from_file, tmp_path, party="bank", id="id")) == found

    (tmp_path / "secret").write_text("wrong, and nobody's business")
    with pytest.raises(DataError, match="its database failed: OperationalError") as caught:
        read_own(from_file, tmp_path, party="bank", id="id")
    assert "nobody's business" not in str(caught.value) and PASSWORD not in str(caught.value)
    with pytest.raises(DataError, match=r"UndefinedColumn: column .agee. does not exist"):
        read_own(replace(own, sql="SELECT agee FROM customers"), tmp_path, party="bank", id="id")


def test_no_secret_is_written_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_PASSWORD", PASSWORD)
    own = {"database": "postgresql+psycopg://bank:${BANK_PASSWORD}@host/loans", "sql": "SELECT 1", "password_file": "p"}
    federation = parse_federation({"data": {"label": "y"}, "parties": {"bank": own}})
    written = federation_values(federation.with_absolute_files(Path("/etc")))["parties"]["bank"]
    assert PASSWORD not in str(written)
    assert (written["database"], written["folder"]) == (own["database"], "/etc")
