"""Data sets by name: bundled ones as their facts say, others from tiny folders in the same layout."""

import gzip
import io
import lzma
import math
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from PIL import Image

from colonnade.data import dataset, names
from colonnade.data.bundled import read_bundled
from colonnade.data.datasets import read_dataset
from colonnade.errors import DataError, SettingsError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    return tmp_path


def write_idx(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes()))


def write_mnist(folder: Path, name: str = "mnist") -> None:
    # Image i is 4×4, and every pixel of it is 10·i; its label is i mod 3.
    for part, count in (("train", 6), ("t10k", 3)):
        images = np.full((count, 4, 4), 10 * np.arange(count)[:, None, None])
        write_idx(folder / name / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / name / f"{part}-labels-idx1-ubyte.gz", np.arange(count) % 3)


@pytest.mark.parametrize("facts", [f for f in names() if f.source != "COLONNADE_DATA"], ids=lambda f: f.name)
def test_bundled_sets_are_what_the_list_says(facts) -> None:
    data = dataset(facts.name, parties=2)
    assert data.rows + data.test_rows == facts.rows
    assert sum(math.prod(columns.shape) for columns in data.columns.values()) == facts.columns
    assert data.labels.task == facts.task
    assert data.feature_parties == ("party1", "party2")


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes", "digits"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_bundled_sets_are_scikit_learns(name: str, elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, read from its files, or by itself if they should lie elsewhere one day."""
    if elsewhere:
        monkeypatch.setattr("colonnade.data.bundled.find_spec", lambda name: None)
    X, y, columns = read_bundled(name)
    theirs = getattr(sklearn.datasets, f"load_{name}")()
    assert X.tobytes() == theirs.data.tobytes() and X.dtype == theirs.data.dtype
    assert y.tobytes() == theirs.target.tobytes() and y.dtype == theirs.target.dtype
    assert columns == tuple(theirs.feature_names) and len(columns) == X.shape[1]


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_images_keep_their_own_test_part(folder: Path, name: str) -> None:
    write_mnist(folder, name)
    data = dataset(name, split="row-strips", parties=2)
    assert (data.rows, data.test_rows, data.labels.task) == (6, 3, "multiclass")
    top = data.columns["party1"]
    assert (top.shape, top.names) == ((1, 2, 4), ("pixels[0:2, 0:4]",))
    # Pixels are 10·i / 50, labels i mod 3: rows stay with their labels through the shuffle.
    image = (top.train[:, 0, 0, 0] * 5).round().long()
    assert sorted(image.tolist()) == [0, 1, 2, 3, 4, 5]
    assert (image % 3).tolist() == data.labels.train.tolist()
    assert (top.test[:, 0, 0, 0] * 5).round().long().tolist() == data.labels.test.tolist()


def test_an_explicit_test_fraction_pools_the_two_parts(folder: Path) -> None:
    write_mnist(folder)
    data = dataset("mnist", parties=4, test_fraction=1 / 3)
    assert (data.rows, data.test_rows) == (6, 3)
    assert dataset("mnist", parties=4, test_fraction=0).rows == 9


def test_max_rows_limits_both_parts(folder: Path) -> None:
    write_mnist(folder)
    data = dataset("mnist", parties=4, max_rows=4)
    assert (data.rows, data.test_rows) == (4, 3)


def test_cifar_tiles_come_in_reading_order_with_channels_first(folder: Path) -> None:
    def sprite(count_down: int, first: int) -> Image.Image:
        pixels = np.zeros((32 * count_down, 64, 3), dtype=np.uint8)
        for tile in range(2 * count_down):
            rows, columns = (
                slice(32 * (tile // 2), 32 * (tile // 2 + 1)),
                slice(32 * (tile % 2), 32 * (tile % 2 + 1)),
            )
            pixels[rows, columns] = (first + tile, 100, 200)
        return Image.fromarray(pixels)

    (folder / "cifar10").mkdir()
    sprite(2, 0).save(folder / "cifar10" / "data_batch_1.webp", lossless=True)
    sprite(1, 4).save(folder / "cifar10" / "data_batch_2.webp", lossless=True)
    sprite(1, 9).save(folder / "cifar10" / "test_batch.webp", lossless=True)
    np.savez(folder / "cifar10" / "labels.npz", train=np.arange(8) % 2, test=np.array([1, 0]))
    joined = read_dataset("cifar10")
    assert joined.X.shape == (6, 3, 32, 32)
    assert joined.X[:, :, 5, 7].tolist() == [[tile, 100, 200] for tile in range(6)]
    assert joined.y.tolist() == [0, 1, 0, 1, 0, 1]
    assert dataset("cifar10", split="patches", parties=4).columns["party2"].shape == (3, 16, 16)

    np.savez(folder / "cifar10" / "labels.npz", train=np.arange(3), test=np.array([1, 0]))
    with pytest.raises(DataError, match="fewer labels \\(3 and 2\\) than images \\(6 and 2\\)"):
        read_dataset("cifar10")


def test_odd_digits_against_even_ones(folder: Path) -> None:
    write_mnist(folder)
    data = dataset("mnist_odd_even", parties=8)
    assert (data.labels.task, data.labels.classes) == ("binary", ("even", "odd"))
    assert (data.columns["party1"].shape, data.columns["party1"].names) == ((2,), ("pixel_0_0", "pixel_0_1"))
    # Pixels are 10·i / 50 and the digit is i mod 3, so 1 alone is odd.
    image = (data.columns["party1"].train[:, 0] * 5).round().long()
    assert (image % 3 == 1).long().tolist() == data.labels.train.tolist()


def test_a9a_is_sparse_with_labels_minus_one_and_one(folder: Path) -> None:
    (folder / "a9a").mkdir()
    (folder / "a9a" / "a9a.xz").write_bytes(lzma.compress(b"-1 3:1 80:1 \n+1 1:1 123:1 \n"))
    (folder / "a9a" / "a9a.t.xz").write_bytes(lzma.compress(b"+1 2:1 \n"))
    joined = read_dataset("a9a")
    assert joined.X.shape == (2, 123)
    assert np.argwhere(joined.X.toarray()).tolist() == [[0, 2], [0, 79], [1, 0], [1, 122]]
    data = dataset("a9a", parties=3)
    assert data.labels.classes == (-1, 1)
    assert (data.rows, data.test_rows) == (2, 1)
    assert all(columns.sparse for columns in data.columns.values())
    pooled = dataset("a9a", parties=1, test_fraction=0)
    assert (pooled.rows, pooled.columns["party1"].train.nnz) == (3, 5)


def test_a_truncated_a9a_is_refused(folder: Path) -> None:
    (folder / "a9a").mkdir()
    (folder / "a9a" / "a9a.xz").write_bytes(lzma.compress(b"-1 3:1 \n+1 1:"))
    with pytest.raises(DataError, match=r"a9a.xz' of the data set 'a9a' could not be read"):
        read_dataset("a9a")
    (folder / "a9a" / "a9a.xz").write_bytes(lzma.compress(b"-1 3:1 \n+1 124:1"))
    with pytest.raises(DataError, match="damaged or incomplete"):
        read_dataset("a9a")


def test_rcv1_keeps_its_values_and_spreads_its_columns(folder: Path) -> None:
    (folder / "rcv1_sample").mkdir()
    text = b"-1 |f 1:0.6 2:0.8\n1 |f 1:0.6 47236:0.8\n"
    (folder / "rcv1_sample" / "rcv1_small.dat.gz").write_bytes(gzip.compress(text))
    (folder / "rcv1_sample" / "rcv1_small_test.data.gz").write_bytes(gzip.compress(b"1 |f 3:1\n"))
    joined = read_dataset("rcv1_sample")
    # By popularity: column 1, then 2, then 47236, then the rest; the first two go to different halves.
    assert (joined.names[0], joined.names[47_236 // 2]) == ("x1", "x2")
    assert joined.X[:, [0]].toarray().tolist() == [[np.float32(0.6)], [np.float32(0.6)]]
    data = dataset("rcv1_sample", parties=2)
    # Not scaled: 0.6 stays, though it is the largest of its column.
    assert data.columns["party1"].train.max() < 1
    assert data.labels.classes == (-1, 1)


def write_newsgroups(path: Path, messages: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for name, text in messages.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))


def test_newsgroups_become_tf_idf_with_the_train_parts_words(folder: Path) -> None:
    path = folder / "newsgroups20" / "20news-bydate.tar.xz"
    write_newsgroups(
        path,
        {
            "20news-bydate-train/sci.space/1": b"the moon the orbit",
            "20news-bydate-train/rec.autos/2": b"the caf\xe9 engine",
            "20news-bydate-test/sci.space/3": b"moon rocket",
        },
    )
    joined = read_dataset("newsgroups20")
    assert sorted(joined.names) == ["caf\u00e9", "engine", "moon", "orbit", "the"]
    assert joined.names[0] == "the"  # the most popular word comes first, and the second one in the other half
    assert joined.y.tolist() == ["sci.space", "rec.autos"]
    length = np.sqrt((joined.X.toarray() ** 2).sum(axis=1))
    assert length.tolist() == pytest.approx([1.0, 1.0])
    assert joined.X_test.toarray()[0, joined.names.index("moon")] == pytest.approx(1.0)
    data = dataset("newsgroups20", parties=2, task="binary")
    assert data.labels.classes == ("rec.autos", "sci.space")
    assert data.columns["party1"].sparse

    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match="'newsgroups20' could not be read"):
        read_dataset("newsgroups20")
    write_newsgroups(path, {"readme": b"nothing"})
    with pytest.raises(DataError, match="'newsgroups20' could not be read"):
        read_dataset("newsgroups20")


def test_credit_sets_leave_out_id_and_label(folder: Path) -> None:
    rows = 8
    (folder / "credit_default_uci").mkdir()
    pd.DataFrame(
        {"ID": range(rows), "LIMIT_BAL": range(rows), "AGE": range(rows), "default.payment.next.month": [0, 1] * 4}
    ).to_csv(folder / "credit_default_uci" / "UCI_Credit_Card.csv.gz", index=False)
    assert dataset("credit_default_uci", parties=2).columns["party1"].names == ("LIMIT_BAL",)


def test_gaps_of_givemesomecredit_are_filled_unless_refused(folder: Path) -> None:
    (folder / "givemesomecredit").mkdir()
    pd.DataFrame(
        {"SeriousDlqin2yrs": [0, 1] * 4, "age": range(8), "MonthlyIncome": [1.0, None] + [3.0] * 5 + [80.0]}
    ).to_csv(folder / "givemesomecredit" / "cs-training.csv.gz")
    data = dataset("givemesomecredit", parties=2, test_fraction=0)
    assert data.columns["party2"].names == ("MonthlyIncome",)
    assert data.columns["party2"].train.isfinite().all()
    raw = dataset("givemesomecredit", parties=2, test_fraction=0, standardise=False)
    # The person of age 1 gets the median of the seven incomes that are known.
    assert raw.columns["party2"].train[raw.columns["party1"].train[:, 0] == 1].item() == 3.0
    with pytest.raises(DataError, match="'party2': 1 rows miss a value in the columns 'MonthlyIncome'"):
        dataset("givemesomecredit", parties=2, test_fraction=0, missing="refuse")


def test_parkinson_recordings_of_one_person_stay_together(folder: Path) -> None:
    (folder / "parkinson_speech").mkdir()
    people = np.repeat(np.arange(8), 3)
    table = pd.DataFrame({"id": people, "gender": people % 2, "PPE": people * 1.0, "class": people % 2})
    text = ",,Baseline Features,\n" + table.to_csv(index=False)
    (folder / "parkinson_speech" / "pd_speech_features.csv.gz").write_bytes(gzip.compress(text.encode()))
    data = dataset("parkinson_speech", parties=2, standardise=False)
    train, test = (data.columns["party2"].train[:, 0].tolist(), data.columns["party2"].test[:, 0].tolist())
    assert (len(train), len(test)) == (18, 6)
    assert not set(train) & set(test)


def test_without_the_variable_the_error_names_it_and_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    for facts in names():
        if facts.source == "COLONNADE_DATA":
            folder = facts.name.removesuffix("_odd_even")
            with pytest.raises(DataError, match=rf"the file {folder}/.*COLONNADE_DATA is not set"):
                dataset(facts.name)


def test_a_missing_file_and_a_damaged_one_are_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz' does not exist.*correct COLONNADE_DATA"):
        dataset("mnist")
    write_mnist(folder)
    (folder / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x09short"))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.gz' of the data set 'mnist' could not be read"):
        dataset("mnist")


def test_a_misspelt_set_is_offered_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"no data set 'digit'. Did you mean 'digits'"):
        dataset("digit")
