"""Tables that a query makes: of files in place through DuckDB, of a database through SQLAlchemy.

Passwords come from the environment or from a file. An address with a password in it is refused when settings are read,
and no message repeats what a database said of a cell.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.data.ids import Array
from colonnade.data.settings import PartyData
from colonnade.errors import DataError, SettingsError
from colonnade.files import read_whole
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = on_demand("pyarrow")

ROWS_AT_ONCE = 50_000
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# Of what is wrong with a query or an account, and never of what a cell holds.
_ABOUT_QUERIES = (
    *("ParserException", "BinderException", "CatalogException", "IOException", "OperationalError"),
    *("UndefinedTable", "UndefinedColumn", "UndefinedFunction", "SyntaxError", "InsufficientPrivilege"),
)


def table_of_query(own: PartyData, base: Path, *, party: str) -> pa.Table:
    """What a party's `sql` gives."""
    folder = base / own.folder
    return _from_database(own, folder, party) if own.database else _from_files(own.sql, folder, party)


def rows_where(condition: str, table: pa.Table | Path, *, party: str) -> Array:
    """The positions of the rows, of a table or of a Parquet file, for which an SQL condition holds."""
    duckdb = _extra("duckdb", "`where`")
    with duckdb.connect() as session:
        if isinstance(table, Path):
            name = str(table).replace("'", "''")
            source, row = f"read_parquet('{name}', file_row_number = true)", "file_row_number"
        else:
            row = "colonnade_row"
            session.register("own_table", table.append_column(row, pa.array(np.arange(table.num_rows))))
            source = "own_table"
        try:
            found = session.execute(f"SELECT {row} FROM {source} WHERE ({condition})").fetchnumpy()[row]
        except duckdb.Error as error:
            raise DataError(f"Party {party!r}: its condition `where` failed: {_said(error)}") from None
    return np.sort(np.asarray(found, dtype=np.int64))


def _from_files(query: str, folder: Path, party: str) -> pa.Table:
    duckdb = _extra("duckdb", "`sql` without `database`")
    with duckdb.connect() as session:
        place = str(folder.resolve()).replace("'", "''")
        session.execute(f"SET file_search_path = '{place}'")
        try:
            found = session.sql(query)
            if found is None:
                raise DataError(f"Party {party!r}: its query gives no table: end it with a SELECT.")
            return found.to_arrow_table()
        except duckdb.Error as error:
            raise DataError(f"Party {party!r}: its query failed: {_said(error)}") from None


def _from_database(own: PartyData, folder: Path, party: str) -> pa.Table:
    sqlalchemy = _extra("sqlalchemy", "`database`")
    address, secrets = _address(own, folder, party, sqlalchemy)
    try:
        engine = sqlalchemy.create_engine(address)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"Party {party!r}: its database needs the Python package {error.name!r}: install it."
        ) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise SettingsError(f"Party {party!r}: its `database` is not known: {_said(error, secrets)}") from None
    try:
        with engine.connect().execution_options(stream_results=True) as connection:
            result = connection.execute(sqlalchemy.text(own.sql))
            names = list(result.keys())
            pieces = [_piece(names, list(zip(*rows, strict=True))) for rows in result.partitions(ROWS_AT_ONCE)]
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise DataError(f"Party {party!r}: its database failed: {_said(error, secrets)}") from None
    finally:
        engine.dispose()
    if not pieces:
        raise DataError(f"Party {party!r}: its query gives no row.")
    return pa.concat_tables(pieces, promote_options="permissive")


def _address(own: PartyData, folder: Path, party: str, sqlalchemy: Any) -> tuple[Any, tuple[str, ...]]:
    """The address with its secrets filled in, and those secrets, which nothing may repeat."""
    secrets = [_variable(name, party) for name in _VARIABLE.findall(own.database)]
    whole = _VARIABLE.fullmatch(own.database)
    try:
        url = sqlalchemy.make_url(secrets[0] if whole else own.database)
    except sqlalchemy.exc.ArgumentError:
        raise SettingsError(
            f"Party {party!r}: its `database` is no SQLAlchemy address, such as postgresql+psycopg://bank@host/loans."
        ) from None
    parts = {
        name: _VARIABLE.sub(lambda found: _variable(found[1], party), value)
        for name in ("username", "password", "host", "database")
        if isinstance(value := getattr(url, name), str)
    }
    url = url.set(**parts)
    if own.password_file:
        try:
            password = read_whole(folder / own.password_file, links=True).decode().strip()
        except (OSError, UnicodeError) as error:
            raise SettingsError(
                f"Party {party!r}: its password file {own.password_file!r} cannot be read ({type(error).__name__})."
            ) from None
        url = url.set(password=password)
    if url.password:
        secrets.append(str(url.password))
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        file = folder / url.database
        if not file.is_file():
            raise DataError(f"Party {party!r} has no database {str(file)!r}: check the setting `database`.")
        url = url.set(database=str(file))
    return url, tuple(secrets)


def _variable(name: str, party: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise SettingsError(
            f"Party {party!r}: its `database` names the environment variable {name}, which is not set: set it where "
            "this program is started."
        )
    return value


def _piece(names: list[str], columns: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table({name: _column(values) for name, values in zip(names, columns, strict=True)})


def _column(values: tuple[Any, ...]) -> pa.Array:
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Values of several kinds, or of a kind of the database's own, such as UUIDs.
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _said(error: Exception, secrets: tuple[str, ...] = ()) -> str:
    """What a database said, if it speaks of the query and not of a cell: its first line, without secrets."""
    inner = getattr(error, "orig", None) or error
    kind = type(inner).__name__
    if kind not in _ABOUT_QUERIES:
        return f"{kind}."
    text = str(inner).strip().splitlines()[0] if str(inner).strip() else ""
    for secret in secrets:
        text = text.replace(secret, "…")
    return f"{kind}: {text}"


def _extra(package: str, what: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise SettingsError(f"{what} needs the package {package}: pip install 'colonnade[sql]'.") from None
