"""Data sets by name, each read whole; `loading` shares their columns out afterwards.

Small ones come with scikit-learn. The others are read from the folder that the environment variable
COLONNADE_DATA names, one subfolder per set, or from where `downloads` has put them; none is shipped.
scikit-learn and Pillow are imported only where needed: a party that reads no such set should not wait for them.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from colonnade.data.bundled import read_bundled
from colonnade.data.catalogue import FOLDER_VARIABLE, MOST_WORDS
from colonnade.data.downloads import REMOTE, kept_at
from colonnade.data.ids import Array
from colonnade.data.partition import spread_out
from colonnade.data.preparation import numeric_matrix
from colonnade.data.sources import unreadable
from colonnade.data.sparse import open_text, read_svmlight
from colonnade.data.stays import COLUMNS, Stays, read_stays
from colonnade.data.synthetic import sparse_rows
from colonnade.data.views import views
from colonnade.errors import DataError, unknown_name
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse
else:
    pd, sparse = on_demand("pandas"), on_demand("scipy.sparse")

Read = TypeVar("Read")


@dataclass(frozen=True, eq=False, repr=False)
class JoinedData:
    """Rows with all their columns in one place, before anybody shares them out."""

    name: str
    X: Array | sparse.csr_array  # [n, d] a table, perhaps sparse; [n, d, time] series; [n, channels, height, width]
    y: Array
    names: tuple[str, ...] = ()  # of the columns of a table or of series
    X_test: Array | sparse.csr_array | None = None  # the set's own test part, if it has one
    y_test: Array | None = None
    groups: Array | None = None  # rows of one group stay on one side of the train/test line
    task: str = ""  # "" = inferred
    missing: str = "refuse"  # what to do with gaps unless the settings say otherwise
    scaled: bool = False  # a table to be left as it is: rows of length 1, or numbers that are names
    weights: Array | None = None  # what each row of X weighs in the loss

    def __repr__(self) -> str:
        return f"JoinedData({self.name!r}, X={list(self.X.shape)})"


def read_dataset(name: str) -> JoinedData:
    """A data set by its name, whole."""
    if name not in _READERS:
        raise unknown_name("data set", name, _READERS)
    return _READERS[name]()


def _bundled(name: str, task: str) -> JoinedData:
    X, y, columns = read_bundled(name)
    return JoinedData(name, X, y, columns, task=task)


def _digits() -> JoinedData:
    X, y, _ = read_bundled("digits")
    return JoinedData("digits", X.reshape(-1, 1, 8, 8), y, task="multiclass")


def _synthetic() -> JoinedData:
    from sklearn.datasets import make_classification

    # The seed is part of the set, so that its name always means the same rows; its columns come shuffled, so
    # that every contiguous block carries some signal.
    X, y = make_classification(
        n_samples=2_000, n_features=20, n_informative=10, n_redundant=4, class_sep=1.0, random_state=20
    )
    return JoinedData("synthetic", X, y, tuple(f"x{1 + j}" for j in range(20)), task="binary")


def _synthetic_regression() -> JoinedData:
    from sklearn.datasets import make_regression

    # Half of the columns matter. Their weights are uniform up to 100, so that the signal has a deviation of about
    # 100 √(50 / 3) = 408; a third of that as noise leaves a tenth of the variance unexplained.
    X, y = make_regression(n_samples=20_000, n_features=100, n_informative=50, noise=136.0, random_state=20)
    return JoinedData("synthetic_regression", X, y, tuple(f"x{1 + j}" for j in range(100)), task="regression")


def synthetic_sparse_rows(
    rows: int = 20_000, columns: int = 2_000, nonzeros_per_row: int = 20, seed: int = 0
) -> JoinedData:
    """What the set `synthetic_sparse` holds, in any size."""
    X, y = sparse_rows(rows, columns, nonzeros_per_row, seed)
    return JoinedData("synthetic_sparse", X, y, tuple(f"x{1 + j}" for j in range(columns)), task="binary")


def _mnist_odd_even() -> JoinedData:
    """MNIST's images; the label tells whether the digit is odd."""
    whole = _idx_images("mnist")
    assert whole.y_test is not None
    y, y_test = (np.where(part % 2, "odd", "even") for part in (whole.y, whole.y_test))
    return replace(whole, name="mnist_odd_even", y=y, y_test=y_test, task="binary")


def _idx_images(name: str) -> JoinedData:
    """The four gzipped IDX files of MNIST and of the sets that follow it."""
    parts = {}
    for part in ("train", "t10k"):
        images = _from_file(name, f"{part}-images-idx3-ubyte.gz", lambda path: _idx(path, 3))
        labels = _from_file(name, f"{part}-labels-idx1-ubyte.gz", lambda path: _idx(path, 1))
        parts[part] = (images[:, None], labels)
    (X, y), (X_test, y_test) = parts["train"], parts["t10k"]
    return JoinedData(name, X, y, X_test=X_test, y_test=y_test, task="multiclass")


def _idx(path: Path, dimensions: int) -> Array:
    """An IDX file: two zero bytes, the type (8 = unsigned byte), the number of dimensions, sizes, values."""
    content = gzip.decompress(path.read_bytes())
    if content[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError("not an IDX file of bytes")
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], dtype=">u4").astype(np.int64)
    # A view into the decompressed bytes, not a copy of them.
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(tuple(shape.tolist()))


def _cifar10() -> JoinedData:
    """Lossless sprites of 32×32 tiles in reading order; as many of the five train batches as are there."""
    name = "cifar10"
    folder = _existing(name, "data_batch_1.webp").parent
    files = ["data_batch_1.webp"]
    while (folder / f"data_batch_{len(files) + 1}.webp").is_file():
        files.append(f"data_batch_{len(files) + 1}.webp")
    batches = [_from_file(name, file, _sprite) for file in files]
    X = batches[0] if len(batches) == 1 else np.concatenate(batches)
    X_test = _from_file(name, "test_batch.webp", _sprite)
    y = _from_file(name, "labels.npz", lambda path: _npz_array(path, "train"))
    y_test = _from_file(name, "labels.npz", lambda path: _npz_array(path, "test"))
    if len(y) < len(X) or len(y_test) < len(X_test):
        raise DataError(
            f"The set 'cifar10' has fewer labels ({len(y)} and {len(y_test)}) than images ({len(X)} and "
            f"{len(X_test)}): its labels.npz and its images do not belong together. Replace them."
        )
    return JoinedData(name, X, y[: len(X)], X_test=X_test, y_test=y_test[: len(X_test)], task="multiclass")


def _sprite(path: Path) -> Array:
    """The tiles of a sprite as [n, 3, 32, 32]."""
    from PIL import Image

    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    down, across = pixels.shape[0] // 32, pixels.shape[1] // 32
    if pixels.shape != (down * 32, across * 32, 3):
        raise ValueError("not made of 32×32 tiles")
    tiles = pixels.reshape(down, 32, across, 32, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles).reshape(down * across, 3, 32, 32)


def _npz_array(path: Path, key: str) -> Array:
    with np.load(path, allow_pickle=False) as content:
        return np.asarray(content[key])


def _modelnet10_voxel() -> JoinedData:
    """Twelve views of each shape, as the channels of one picture."""
    name, file = "modelnet10_voxel", "modelnet10_32.npz"
    keys = ("X_train", "y_train", "X_test", "y_test")
    X, y, X_test, y_test = (_from_file(name, file, partial(_npz_array, key=key)) for key in keys)
    kinds = np.array(_SHAPES)
    return JoinedData(name, views(X), kinds[y], X_test=views(X_test), y_test=kinds[y_test], task="multiclass")


_SHAPES = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")


def _physionet2012_icu() -> JoinedData:
    """Who dies in hospital, by what was measured in the first 48 hours; the challenge's set b to test on."""
    name = "physionet2012_icu"

    def read(path: Path) -> dict[str, Stays]:
        with open_text(path) as file:
            return read_stays(io.BytesIO(file.read()))

    parts = _from_file(name, "physionet2012_set-a_set-b.tar.xz", read)
    (X, y), (X_test, y_test) = parts["a"], parts["b"]
    return JoinedData(name, X, y, COLUMNS, X_test=X_test, y_test=y_test, task="binary", missing="mean")


def _imdb() -> JoinedData:
    """Film reviews: is the writer pleased?"""
    from colonnade.data import texts

    name = "imdb"

    def read(path: Path) -> dict[str, tuple[list[str], list[int]]]:
        with open_text(path) as file:
            return texts.labelled_lines(file)

    parts = _from_file(name, "imdb_50k.jsonl.xz", read)
    (X, y), (X_test, y_test) = ((texts.token_numbers(own), np.array(labels)) for own, labels in parts.values())
    return JoinedData(name, X, y, texts.NAMES, X_test=X_test, y_test=y_test, task="binary", scaled=True)


def _amazon_multidomain() -> JoinedData:
    """Reviews of books, films, electronics and kitchen things: is the writer pleased?"""
    from colonnade.data import texts

    name = "amazon_multidomain"

    def read(path: Path) -> tuple[list[str], list[int]]:
        with open_text(path) as file:
            return texts.labelled_archive(io.BytesIO(file.read()))

    reviews, labels = _from_file(name, "sorted_data_acl_labeled.tar.xz", read)
    return JoinedData(name, texts.token_numbers(reviews), np.array(labels), texts.NAMES, task="binary", scaled=True)


def _a9a() -> JoinedData:
    X, y = _from_file("a9a", "a9a.xz", lambda path: _libsvm(path, 123))
    X_test, y_test = _from_file("a9a", "a9a.t.xz", lambda path: _libsvm(path, 123))
    names = tuple(f"x{1 + j}" for j in range(X.shape[1]))
    return JoinedData("a9a", X, y, names, X_test=X_test, y_test=y_test, task="binary")


def _libsvm(path: Path, columns: int) -> tuple[sparse.csr_array, Array]:
    with open_text(path) as file:
        return read_svmlight(file, columns)


def _rcv1_sample() -> JoinedData:
    name, columns = "rcv1_sample", 47_236
    X, y = _from_file(name, "rcv1_small.dat.gz", lambda path: _vowpal(path, columns))
    X_test, y_test = _from_file(name, "rcv1_small_test.data.gz", lambda path: _vowpal(path, columns))
    # Its columns are numbered by popularity, so that the first block would hold nearly all values.
    order = _fair_order(X)
    names = tuple(f"x{1 + j}" for j in order.tolist())
    return JoinedData(name, X[:, order], y, names, X_test=X_test[:, order], y_test=y_test, task="binary", scaled=True)


def _fair_order(X: sparse.csr_array) -> Array:
    """An order of columns in which contiguous blocks hold about as many values each."""
    by_popularity = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")
    order = np.empty_like(by_popularity)
    order[spread_out(len(order))] = by_popularity
    return order


def _vowpal(path: Path, columns: int) -> tuple[sparse.csr_array, Array]:
    """Vowpal Wabbit's lines, `label |f column:value …`: a LIBSVM text but for the name of its one group of columns."""
    with open_text(path) as file:
        return read_svmlight(io.BytesIO(file.read().replace(b"|f ", b"")), columns)


def _newsgroups20() -> JoinedData:
    """tf-idf of the messages' words, weighed by the train part; the words are spread so that parties get fair parts."""
    name = "newsgroups20"
    X, y, X_test, y_test, words = _from_file(name, "20news-bydate.tar.xz", _tf_idf)
    return JoinedData(name, X, y, words, X_test=X_test, y_test=y_test, task="multiclass", scaled=True)


def _tf_idf(path: Path) -> tuple[sparse.csr_array, Array, sparse.csr_array, Array, tuple[str, ...]]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts: dict[str, list[str]] = {"train": [], "test": []}
    groups: dict[str, list[str]] = {"train": [], "test": []}
    with open_text(path) as file:
        whole = io.BytesIO(file.read())  # at once: of a truncated file, tarfile would give what there is
    with tarfile.open(fileobj=whole, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is None:  # a folder
                continue
            top, group, _ = member.name.split("/")
            part = top.removeprefix("20news-bydate-")
            texts[part].append(content.read().decode("latin-1"))
            groups[part].append(group)
    # Logarithms of counts, since a word that stands fifty times in a message is not fifty times as telling.
    vectorizer = TfidfVectorizer(max_features=MOST_WORDS, sublinear_tf=True, dtype=np.float32)
    X = sparse.csr_array(vectorizer.fit_transform(texts["train"]))
    X_test = sparse.csr_array(vectorizer.transform(texts["test"]))
    order = _fair_order(X)
    words = tuple(vectorizer.get_feature_names_out()[order].tolist())
    return X[:, order], np.array(groups["train"]), X_test[:, order], np.array(groups["test"]), words


def _credit_default_uci() -> JoinedData:
    frame = _from_file("credit_default_uci", "UCI_Credit_Card.csv.gz", pd.read_csv)
    return _from_frame("credit_default_uci", frame, label="default.payment.next.month", id="ID")


def _givemesomecredit() -> JoinedData:
    frame = _from_file("givemesomecredit", "cs-training.csv.gz", lambda path: pd.read_csv(path, index_col=0))
    return _from_frame("givemesomecredit", frame, label="SeriousDlqin2yrs", missing="median")


def _parkinson_speech() -> JoinedData:
    # The first of its two header rows names groups of columns.
    frame = _from_file("parkinson_speech", "pd_speech_features.csv.gz", lambda path: pd.read_csv(path, header=1))
    return _from_frame("parkinson_speech", frame, label="class", id="id", same_person="id")


def _from_frame(
    name: str,
    frame: pd.DataFrame,
    *,
    label: str,
    id: str = "",
    same_person: str = "",
    missing: str = "refuse",
) -> JoinedData:
    for column in filter(None, (label, id)):
        if column not in frame.columns:
            raise DataError(
                f"The file of the data set {name!r} has no column {column!r}: replace it with the file that "
                "its publisher distributes."
            )
    columns = frame.drop(columns=[column for column in (label, id) if column])
    return JoinedData(
        name,
        numeric_matrix(columns, party=name),
        frame[label].to_numpy(),
        tuple(str(column) for column in columns.columns),
        groups=frame[same_person].to_numpy() if same_person else None,
        task="binary",
        missing=missing,
    )


def _existing(name: str, file: str) -> Path:
    if (kept := kept_at(name, file)) is not None:
        return kept
    folder = os.environ.get(FOLDER_VARIABLE, "")
    fetched = f", or fetch it: colonnade data get {name}" if name in REMOTE else ""
    expected = f"The data set {name!r} is read from the file {name}/{file} in the folder of data sets"
    if not folder:
        raise DataError(
            f"{expected}, but {FOLDER_VARIABLE} is not set: set that variable to the folder's path{fetched}."
        )
    raise DataError(
        f"{expected}, but {str(Path(folder) / name / file)!r} does not exist: put the file there, or correct "
        f"{FOLDER_VARIABLE}{fetched}."
    )


def _from_file(name: str, file: str, read: Callable[[Path], Read]) -> Read:
    path = _existing(name, file)
    try:
        return read(path)
    except unreadable(tarfile.TarError) as error:
        raise DataError(
            f"The file {str(path)!r} of the data set {name!r} could not be read ({type(error).__name__}): "
            "it is damaged or incomplete. Replace it."
        ) from None


_READERS: dict[str, Callable[[], JoinedData]] = {
    "synthetic": _synthetic,
    "synthetic_sparse": synthetic_sparse_rows,
    "synthetic_regression": _synthetic_regression,
    "iris": lambda: _bundled("iris", "multiclass"),
    "wine": lambda: _bundled("wine", "multiclass"),
    "breast_cancer": lambda: _bundled("breast_cancer", "binary"),
    "diabetes": lambda: _bundled("diabetes", "regression"),
    "digits": _digits,
    "parkinson_speech": _parkinson_speech,
    "credit_default_uci": _credit_default_uci,
    "givemesomecredit": _givemesomecredit,
    "a9a": _a9a,
    "rcv1_sample": _rcv1_sample,
    "newsgroups20": _newsgroups20,
    "mnist": lambda: _idx_images("mnist"),
    "mnist_odd_even": _mnist_odd_even,
    "fashion_mnist": lambda: _idx_images("fashion_mnist"),
    "cifar10": _cifar10,
    "modelnet10_voxel": _modelnet10_voxel,
    "physionet2012_icu": _physionet2012_icu,
    "imdb": _imdb,
    "amazon_multidomain": _amazon_multidomain,
}
