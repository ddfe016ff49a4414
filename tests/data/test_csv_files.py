"""CSV as programs of all countries write it: what is not given is found; a broken file is told without its cells."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from colonnade.data import csv_files
from colonnade.data.csv_files import read_csv
from colonnade.data.settings import PartyData
from colonnade.errors import DataError


def read(folder: Path, content: bytes, ending: str = ".csv", **own):
    path = folder / f"shop{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    return read_csv(path, PartyData(**own), party="shop", id="id").frame.to_pydict()


TABLE = {"id": ["007", "7"], "näme": ["Jürgen", None], "size": [1.5, 2.25]}


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("id,näme,size\n007,Jürgen,1.5\n7,NA,2.25\n", "utf-8"),
        ("id;näme;size\r\n007;Jürgen;1,5\r\n7;?;2,25\r\n", "cp1252"),
        ("id\tnäme\tsize\n007\tJürgen\t1.5\n7\t\t2.25\n", "utf-8-sig"),
        ("id|näme|size\n007|Jürgen|1.5\n7|null|2.25\n", "utf-16"),
        ('"id","näme","size"\n"007","Jürgen","1.5"\n"7","","2.25"\n', "utf-8"),
        (" id , näme,size\n007,Jürgen,1.5\n7,,2.25\n", "utf-8"),
        ("id,näme,size\r007,Jürgen,1.5\r7,,2.25\r", "utf-8"),
    ],
    ids=["commas", "semicolons", "tabs", "bars", "quotes", "spaces in the header", "an old Macintosh"],
)
def test_how_a_file_is_written_is_found(text: str, encoding: str, tmp_path: Path) -> None:
    assert read(tmp_path, text.encode(encoding)) == TABLE
    assert read(tmp_path, text.encode(encoding), ".csv.gz") == TABLE


def test_how_a_file_is_written_can_be_given(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "id:näme:size\n007:'a:b':1\n7:none given:2\n".encode("latin-1"),
        separator=":",
        quote="'",
        encoding="latin-1",
        missing_values=("none given",),
    )
    assert found == {"id": ["007", "7"], "näme": ["a:b", None], "size": [1, 2]}


def test_a_letter_of_another_alphabet_may_come_late(tmp_path: Path) -> None:
    lines = "".join(f"{i},plain\n" for i in range(20_000))
    found = read(tmp_path, f"id,name\n{lines}x,Jürgen\n".encode("cp1252"))
    assert found["name"][-1] == "Jürgen"


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_arrow_is_given_no_file_of_pythons(
    ending: str, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads would let it go after the interpreter has ended, which kills the process."""
    given = []
    read_with = csv.read_csv
    monkeypatch.setattr(
        csv_files.arrow_csv, "read_csv", lambda stream, **how: (given.append(stream), read_with(stream, **how))[1]
    )
    read(tmp_path, "id,näme\n1,Jürgen\n".encode(encoding), ending)
    assert given and not [one for one in given if isinstance(one, pa.PythonFile)]


def test_lines_may_end_within_quotes(tmp_path: Path) -> None:
    assert read(tmp_path, b'id,text\n1,"a\nb"\n2,"c, d"\n')["text"] == ["a\nb", "c, d"]


def test_a_column_whose_later_cells_are_of_another_type_stays_text(tmp_path: Path) -> None:
    lines = "".join(f"{i},{i}\n" for i in range(1000))
    assert read(tmp_path, f"id,age\n{lines}x,old\n".encode())["age"][-2:] == ["999", "old"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"id,age\n1,2\n3,secret,5\n4,5\n", "has 2 columns by its header, but another number of cells in line 3:"),
        (b"id,age,age\n1,2,3\n", "more than one column 'age'"),
        (b"", "is empty: it has not even a header"),
        (b"\xef\xbb\xbf", "is empty: it has not even a header"),
    ],
)
def test_a_broken_file_is_told_where(content: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, content)
    assert "secret" not in str(caught.value)


def test_an_encoding_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no encoding 'utf-99'"):
        read(tmp_path, b"id,age\n1,2\n", encoding="utf-99")
