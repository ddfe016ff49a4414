"""Files of every kind give the same table; a wrong file gives one clear sentence that shows no value."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from colonnade.data.sources import Table, choose_columns, read_table
from colonnade.errors import DataError


def cells(table: Table) -> dict[str, list]:
    return {name: table.column(name).to_pylist() for name in table.columns}


FRAME = pd.DataFrame({"id": [7, 3], "age": [40.0, 50.0], "income": [1.5, 2.5], "churn": [0, 1]})


def write(kind: str, folder: Path) -> Path:
    path = folder / f"shop{kind}"
    if kind == ".parquet":
        FRAME.to_parquet(path)
    elif kind == ".npz":
        np.savez(
            path,
            ids=FRAME["id"].to_numpy(),
            columns=FRAME[["age", "income"]].to_numpy(),
            names=np.array(["age", "income"]),
            labels=FRAME["churn"].to_numpy(),
        )
    else:
        FRAME.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("kind", [".csv", ".csv.gz", ".csv.xz", ".parquet", ".npz"])
def test_every_kind_of_file_gives_the_same_table(kind: str, tmp_path: Path) -> None:
    table = read_table(write(kind, tmp_path), party="shop", id="id", label="churn")
    assert table.ids.tolist() == ["7", "3"]
    assert cells(table) == {"age": [40.0, 50.0], "income": [1.5, 2.5], "churn": [0, 1]}
    assert "40" not in repr(table)


def test_a_matrix_has_its_ids_in_the_first_column(tmp_path: Path) -> None:
    np.save(tmp_path / "shop.npy", np.array([[7.0, 40.0, 1.5], [3.0, 50.0, 2.5]]))
    table = read_table(tmp_path / "shop.npy", party="shop", id="id")
    assert table.ids.tolist() == ["7", "3"]
    assert cells(table) == {"shop_1": [40.0, 50.0], "shop_2": [1.5, 2.5]}


def test_a_frame_may_carry_its_ids_as_index() -> None:
    table = read_table(FRAME.set_index("id"), party="shop", id="id")
    assert table.ids.tolist() == ["7", "3"]
    assert list(table.columns) == ["age", "income", "churn"]


def test_leading_zeros_of_an_id_are_kept(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("id,age\n007,40\n7,50\n")
    assert read_table(tmp_path / "shop.csv", party="shop", id="id").ids.tolist() == ["007", "7"]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME.rename(columns={"id": "ident"}), "'shop': its frame has no id column 'id'"),
        (FRAME.rename(columns={"id": "idd"}), "Did you mean 'idd'"),
        (FRAME.assign(id=[7, 7]), "repeats ids \\(1 of its 2 rows"),
        (FRAME.assign(id=["7", None]), "1 rows without an id"),
        (FRAME.assign(id=[7.5, 3.0]), "ids that are not whole numbers"),
        (FRAME.assign(id=[1e24, 3.0]), "floats too large to be told apart"),
        (FRAME.set_axis(["id", "age", "age", "churn"], axis=1), "more than one column 'age'"),
    ],
)
def test_bad_ids_are_refused(frame: pd.DataFrame, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_table(frame, party="shop", id="id")


def test_a_missing_file_is_named_with_its_party(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'shop' has no file '.*shop.csv'"):
        read_table(tmp_path / "shop.csv", party="shop", id="id")


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not known by its ending: use one of .csv"):
        read_table(tmp_path / "shop.xlsx", party="shop", id="id")


@pytest.mark.parametrize(
    "kind", [".csv", ".csv.gz", ".csv.xz", ".parquet", ".npz", ".npy", ".svm", ".libsvm.gz", ".svm.xz"]
)
@pytest.mark.parametrize("content", [b"", b'id,age\n1,"secret', b"\x00\xff\xfesecret"])
def test_a_damaged_file_is_refused_without_showing_it(kind: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"shop{kind}"
    path.write_bytes(content)
    with pytest.raises(DataError, match="'shop'") as caught:
        read_table(path, party="shop", id="id")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_npz_file_without_ids_is_told_what_it_lacks(tmp_path: Path) -> None:
    np.savez(tmp_path / "shop.npz", values=np.zeros((2, 2)))
    with pytest.raises(DataError, match="must hold the arrays `ids` and `columns`; it holds values"):
        read_table(tmp_path / "shop.npz", party="shop", id="id")


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "shop.npy", np.array([[1, "a"], [2, "b"]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"could not be read as .npy"):
        read_table(tmp_path / "shop.npy", party="shop", id="id")


def test_columns_are_all_but_id_and_label_unless_named() -> None:
    table = read_table(FRAME, party="shop", id="id")
    assert choose_columns(table, (), party="shop", id="id", label="churn") == ("age", "income")
    assert choose_columns(table, ("income",), party="shop", id="id", label="churn") == ("income",)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (("agee",), "'shop' has no column 'agee'. Did you mean 'age'"),
        (("churn",), "that is the label"),
        (("id",), "that is the id"),
        (("age", "age"), "lists a column twice"),
    ],
)
def test_wrong_columns_are_refused(wanted: tuple[str, ...], words: str) -> None:
    table = read_table(FRAME, party="shop", id="id")
    with pytest.raises(DataError, match=words):
        choose_columns(table, wanted, party="shop", id="id", label="churn")


TEXT = b"# made by hand\n-1 2:1.5 \n+1 1:2 4:-3\n"


@pytest.mark.parametrize("kind", [".svm", ".svmlight.gz"])
def test_libsvm_text_is_a_sparse_table_with_labels_and_line_numbers(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"shop{kind}"
    path.write_bytes(gzip.compress(TEXT) if kind.endswith(".gz") else TEXT)
    table = read_table(path, party="shop", id="id", label="churn")
    assert table.ids.tolist() == ["1", "2"]
    assert table.sparse.toarray().tolist() == [[0, 1.5, 0, 0], [2, 0, 0, -3]]
    assert table.names == ["shop_1", "shop_2", "shop_3", "shop_4", "churn"]
    assert table.column("churn").to_pylist() == [-1, 1]
    assert choose_columns(table, (), party="shop", id="id", label="churn") == table.sparse_names
    assert repr(table) == "Table(2 rows, 5 columns)"


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_a_saved_sparse_matrix_is_a_sparse_table(form: str, tmp_path: Path) -> None:
    matrix = sparse.csr_array([[0, 7], [0, 0], [5, 0]]).asformat(form)
    sparse.save_npz(tmp_path / "shop.npz", matrix)
    table = read_table(tmp_path / "shop.npz", party="shop", id="id")
    assert table.ids.tolist() == ["1", "2", "3"]
    assert table.sparse.toarray().tolist() == [[0, 7], [0, 0], [5, 0]]
    assert table.names == ["shop_1", "shop_2"]


def sparse_file(folder: Path, **changes) -> Path:
    matrix = sparse.csr_array([[0.0, 7.0], [5.0, 0.0]])
    parts = {"format": b"csr", "shape": (2, 2), "data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    np.savez(folder / "shop.npz", **{**parts, **changes})
    return folder / "shop.npz"


def test_a_saved_sparse_matrix_may_carry_ids_names_and_labels(tmp_path: Path) -> None:
    path = sparse_file(tmp_path, ids=np.array(["b", "a"]), names=np.array(["age", "income"]), labels=np.array([1, 0]))
    table = read_table(path, party="shop", id="id", label="churn")
    assert table.ids.tolist() == ["b", "a"]
    assert table.names == ["age", "income", "churn"]
    assert table.column("churn").to_pylist() == [1, 0]
    assert table.column("income").to_pylist() == [7.0, 0.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.array([1, 9])},
        {"indices": np.array([-1, 0])},
        {"indptr": np.array([0, 5, 2])},
        {"indptr": np.array([0, 1])},
        {"format": b"dok"},
        {"data": np.array(["secret", "x"])},
        {"ids": np.array([1])},
        {"names": np.array(["a"])},
        {"labels": np.array([1, 0, 1])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_sparse_matrix_whose_parts_do_not_fit_is_refused(changes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'shop': the file .*shop.npz' could not be read as .npz"):
        read_table(sparse_file(tmp_path, **changes), party="shop", id="id")


def test_a_sparse_column_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names a column twice"):
        read_table(sparse_file(tmp_path, names=np.array(["a", "a"])), party="shop", id="id")


@pytest.mark.parametrize(
    "text",
    [
        b"-1 2:1\n+1 3:",
        b"-1 2:1\n+1 3",
        b"1 3:1 2:1\n",
        b"1 2:1 2:1\n",
        b"1 2:secret\n",
        b"1 99999999999:1\n",
        b"1 -2:1\n",
        b"id,age\n1,2\n",
        b"# nothing\n",
    ],
)
def test_malformed_libsvm_text_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "shop.svm").write_bytes(text)
    with pytest.raises(DataError, match=r"'shop': the file .*shop.svm' could not be read") as caught:
        read_table(tmp_path / "shop.svm", party="shop", id="id")
    assert "secret" not in str(caught.value)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.svm.gz").write_bytes(gzip.compress(TEXT)[:-12])
    with pytest.raises(DataError, match=r"could not be read.*check that it is complete"):
        read_table(tmp_path / "shop.svm.gz", party="shop", id="id")
