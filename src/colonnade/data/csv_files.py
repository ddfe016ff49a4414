"""CSV in all its forms: separator, quotes, encoding, decimal sign and packing are found where they are not given.

The id stays text, so that its leading zeros stay. A column whose cells do not all have the type that the first ones
had stays text too; what it is, and which cells are wrong, is then decided with the other columns.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from colonnade.data.settings import PartyData
from colonnade.data.sparse import open_text
from colonnade.errors import DataError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
else:
    pa, arrow_csv = on_demand("pyarrow"), on_demand("pyarrow.csv")

GAPS = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "-", "–", "#VALUE!", "<NA>")
"""Cells that hold nothing, as different programs write them."""

SEPARATORS = (",", ";", "\t", "|")
OTHER = "cp1252"
"""What a text is written in that is no UTF-8."""

SAMPLE_BYTES = 1 << 16
MOST_ROWS_NAMED = 5


@dataclass(frozen=True)
class _Form:
    """How a file is written."""

    separator: str
    quote: str
    encoding: str
    decimal: str
    quoted: bool  # whether cells are, in the part that was looked at: then a line's end may lie within one


class CsvTable(NamedTuple):
    """What a file holds: the columns that were asked for, the names of all, and its decimal sign."""

    frame: pa.Table
    names: list[str]
    decimal: str


def read_csv(path: Path, own: PartyData, *, party: str, id: str, columns: tuple[str, ...] = ()) -> CsvTable:
    """A file, of its columns only those named, if any are. Raises ValueError for what is no such file."""
    form = _form_of(path, own, party)
    names = _header(path, form)
    stripped = [name.strip() for name in names]
    twice = sorted({name for name in stripped if stripped.count(name) > 1})
    if twice:
        raise DataError(
            f"Party {party!r}: the file {str(path)!r} has more than one column {twice[0]!r}: rename all but one."
        )
    wanted = [name for name, plain in zip(names, stripped, strict=True) if plain in columns] if columns else []
    texts = {name for name, plain in zip(names, stripped, strict=True) if plain == id}
    while True:
        try:
            table = _parsed(path, form, own, wanted, texts)
        except pa.ArrowInvalid as error:
            if "CSV conversion error" in str(error) and len(texts) < len(names):
                texts = set(names)  # cells of several kinds in one column: which are wrong is decided later
            elif "UTF8" in str(error) and form.encoding != OTHER and not own.encoding:
                form = replace(form, encoding=OTHER)
            elif not form.quoted:
                form = replace(form, quoted=True)
            else:
                _refuse_rows_of_other_lengths(path, form, names, party)
                raise ValueError("not CSV") from None
            continue
        if any(pa.types.is_binary(kind) for kind in table.schema.types) and form.encoding != OTHER and not own.encoding:
            form = replace(form, encoding=OTHER)
            continue
        if form.quoted:
            _refuse_open_quote(path, form)
        return CsvTable(table.rename_columns([name.strip() for name in table.column_names]), stripped, form.decimal)


def _parsed(path: Path, form: _Form, own: PartyData, wanted: list[str], texts: set[str]) -> pa.Table:
    convert = arrow_csv.ConvertOptions(
        column_types={name: pa.string() for name in texts},
        null_values=[*GAPS, *own.missing_values],
        strings_can_be_null=True,
        decimal_point=form.decimal,
        include_columns=wanted or None,
    )
    with _stream(path, form) as stream:
        return arrow_csv.read_csv(
            stream, read_options=_read_options(), parse_options=_parse_options(form), convert_options=convert
        )


def _stream(path: Path, form: _Form) -> Any:
    """The text in UTF-8, as a stream of Arrow's own.

    Of one of Python's, Arrow's threads would let go a moment after the file is read; and where the interpreter ends in
    that moment, as after an error, that kills the process.
    """
    kind = path.suffix.lower()
    if form.encoding.lower().startswith(("utf-8", "utf8")) and kind != ".xz":
        # Arrow takes the mark at the beginning by itself.
        return pa.input_stream(str(path), compression={".gz": "gzip", ".bz2": "bz2"}.get(kind))
    decoder, sink = codecs.getincrementaldecoder(form.encoding)(), pa.BufferOutputStream()
    with open_text(path) as file:
        while piece := file.read(1 << 22):
            sink.write(decoder.decode(piece).encode())
    sink.write(decoder.decode(b"", True).encode())
    return pa.BufferReader(sink.getvalue())


def _read_options(*, threads: bool = True) -> Any:
    return arrow_csv.ReadOptions(use_threads=threads, block_size=1 << 23)


def _parse_options(form: _Form, refused: Any = None) -> Any:
    return arrow_csv.ParseOptions(
        delimiter=form.separator, quote_char=form.quote, newlines_in_values=form.quoted, invalid_row_handler=refused
    )


def _refuse_rows_of_other_lengths(path: Path, form: _Form, names: list[str], party: str) -> None:
    """Name the rows with more or fewer cells than the header, if that is what is wrong."""
    found: list[int] = []

    def note(row: Any) -> str:
        found.append(0 if row.number is None else row.number)
        return "skip"

    text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    try:
        with _stream(path, form) as stream:
            arrow_csv.read_csv(
                stream,
                read_options=_read_options(threads=False),
                parse_options=_parse_options(form, note),
                convert_options=text,
            )
    except (pa.ArrowInvalid, ValueError):
        return
    if found:
        lines = ", ".join(str(number) for number in found[:MOST_ROWS_NAMED])
        more = f" and {len(found) - MOST_ROWS_NAMED} more" if len(found) > MOST_ROWS_NAMED else ""
        raise DataError(
            f"Party {party!r}: the file {str(path)!r} has {len(names)} columns by its header, but another number of "
            f"cells in line {lines}{more}: mend those lines, or give `separator` or `quote`."
        )


def _refuse_open_quote(path: Path, form: _Form) -> None:
    """Raise ValueError for a file that was cut off within quotes, which Arrow takes as their end."""
    quote, count, last, before = form.quote.encode(), 0, b"", b""
    with open_text(path) as file:
        while piece := file.read(1 << 22):
            count += piece.count(quote)
            place = piece.rfind(quote)
            if place >= 0:
                last = piece[place - 1 : place] if place else before
            before = piece[-1:]
    if count % 2 and last in (form.separator.encode(), b"\n", b"\r"):
        raise ValueError("cut off within quotes")


# --- how a file is written ----------------------------------------------------------------------------------------


def _form_of(path: Path, own: PartyData, party: str) -> _Form:
    with open_text(path) as file:
        sample = file.read(SAMPLE_BYTES)
    encoding = own.encoding or _encoding_of(sample)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except LookupError:
        raise DataError(f"There is no encoding {own.encoding!r}: mend the setting `encoding` of that party.") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise DataError(f"Party {party!r}: the file {str(path)!r} is empty: it has not even a header.")
    if "\0" in text:
        raise ValueError("not text")
    first = text.splitlines()[0]
    quote = own.quote or ("'" if first.lstrip().startswith("'") and '"' not in first else '"')
    separator = own.separator or _separator_of(text, quote)
    return _Form(separator, quote, encoding, own.decimal or _decimal_of(text, separator), quote in text)


def _encoding_of(sample: bytes) -> str:
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if sample.startswith(mark):
            return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return OTHER
    return "utf-8"


def _separator_of(text: str, quote: str) -> str:
    """The sign that cuts the first lines into as many cells each, and into the most."""
    best, most = SEPARATORS[0], 0.0
    for sign in SEPARATORS:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=sign, quotechar=quote) if row][:100]
        width = len(rows[0]) if rows else 0
        alike = sum(len(row) == width for row in rows[:-1] or rows) / max(1, len(rows[:-1] or rows))
        if width > 1 and alike * width > most:
            best, most = sign, alike * width
    return best


def _decimal_of(text: str, separator: str) -> str:
    if separator == ",":
        return "."
    cell = rf"(?:^|{re.escape(separator)})-?\d+%s\d+(?={re.escape(separator)}|$)"
    commas, points = (len(re.findall(cell % sign, text, re.MULTILINE)) for sign in (",", r"\."))
    return "," if commas > points else "."


def _header(path: Path, form: _Form) -> list[str]:
    with open_text(path) as file:
        lines = io.TextIOWrapper(file, form.encoding)  # whose lines may end in either way
        try:
            return next(csv.reader(lines, delimiter=form.separator, quotechar=form.quote), [])
        except csv.Error:
            raise ValueError("no header") from None
