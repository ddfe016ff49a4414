"""Data sets that can be fetched: from where, under which licence, and what their content must be.

A checksum is of the content, unpacked, so that it does not matter who packed it how; where it is of the packed file it
says so. What is fetched lies in a cache folder, is checked before it gets its name, and goes on where it stopped.
"""

import gzip
import hashlib
import lzma
import os
import shutil
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from colonnade.data.catalogue import FOLDER_VARIABLE
from colonnade.errors import DataError, RunError, SettingsError, unknown_name
from colonnade.files import appearing, make_folder, open_private

CACHE_VARIABLE = "COLONNADE_CACHE"
Progress = Callable[[str, int, int], None]
"""Is told which file is fetched, how many bytes of it are there, and how many there will be; 0: not said."""
_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 18
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}


class RemoteFile(NamedTuple):
    """One file of a set."""

    name: str  # under which it is kept
    address: str  # "": nobody gives it away without asking
    sha256: str
    size: int = 0  # bytes of the content; 0: not known
    of_packed: bool = False  # whether checksum and size are of the file as it is fetched


class RemoteSet(NamedTuple):
    """A data set: whose it is, and its files."""

    licence: str
    home: str  # where people read about it
    files: tuple[RemoteFile, ...]


def _idx(base: str, *sums: str) -> tuple[RemoteFile, ...]:
    """The four files of MNIST and of those that follow it."""
    names = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    others = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
    sizes = (47_040_016, 60_008, 7_840_016, 10_008)
    each = zip((*names, *others), sums, sizes, strict=True)
    return tuple(RemoteFile(name, f"{base}/{name}", sha256, size) for name, sha256, size in each)


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_FATE = "https://raw.githubusercontent.com/FederatedAI/FATE/5a06d9e4c4cd7ab97a5c8357828adbffaca87785/examples/data"
_VOWPAL = "https://raw.githubusercontent.com/VowpalWabbit/vowpal_wabbit/872fd8da03677dbf83183890262a5d8f237ff3e0/test"
_MNIST = _idx(
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)

REMOTE: dict[str, RemoteSet] = {
    "a9a": RemoteSet(
        "UCI Adult, CC BY 4.0; as LIBSVM distributes it",
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
        (
            RemoteFile(
                *("a9a.xz", f"{_LIBSVM}/a9a", "7ba53cccb27e2e525f0fb173e1f446d49856e3fb007eb43be4ec6d0f5b3335ca"),
                2_327_314,
            ),
            RemoteFile(
                *("a9a.t.xz", f"{_LIBSVM}/a9a.t", "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
                1_164_628,
            ),
        ),
    ),
    "credit_default_uci": RemoteSet(
        "CC BY 4.0 (UCI, data set 350); as FATE (Apache-2.0) distributes it",
        "https://archive.ics.uci.edu/dataset/350",
        (
            RemoteFile(
                "UCI_Credit_Card.csv.gz",
                f"{_FATE}/UCI_Credit_Card.csv",
                "a0f0ab49d6326671d6cd83be5c88dcf18007025fe9a53ecd699119c871176ca1",
                2_862_995,
            ),
        ),
    ),
    "rcv1_sample": RemoteSet(
        "RCV1-v2 vectors: free with citation (Lewis et al. 2004); as Vowpal Wabbit (BSD-3) distributes it",
        "https://github.com/VowpalWabbit/vowpal_wabbit",
        (
            RemoteFile(
                "rcv1_small.dat.gz",
                f"{_VOWPAL}/train-sets/rcv1_small.dat",
                "348d59a15f8161852b817fedd45a0a9efa5e2602ea86d9e920ba7079f633e084",
                1_441_266,
            ),
            RemoteFile(
                "rcv1_small_test.data.gz",
                f"{_VOWPAL}/test-sets/rcv1_small_test.data",
                "c0f5f4a00497c5cec53b47c0ebb8428cc7c364d436ac10f64b5be33d90bfe293",
                730_966,
            ),
        ),
    ),
    "newsgroups20": RemoteSet(
        "no formal licence: posts to Usenet, as J. Rennie distributes them",
        "http://qwone.com/~jason/20Newsgroups/",
        (
            RemoteFile(
                "20news-bydate.tar.xz",
                "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
                "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",  # as scikit-learn has it
                of_packed=True,
            ),
        ),
    ),
    "mnist": RemoteSet("CC BY-SA 3.0 (LeCun and Cortes)", "http://yann.lecun.com/exdb/mnist/", _MNIST),
    "fashion_mnist": RemoteSet(
        "MIT (Zalando SE)",
        "https://github.com/zalandoresearch/fashion-mnist",
        _idx(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "givemesomecredit": RemoteSet(
        "the rules of a Kaggle competition (2011), which you accept there; no open licence",
        "https://www.kaggle.com/c/GiveMeSomeCredit/data",
        (
            RemoteFile(
                *("cs-training.csv.gz", "", "1bd46da486a5708c58c7b01a034fae2a13b327f6f7b62ea7ba4fe3b5824b24ac"),
                7_564_965,
            ),
        ),
    ),
    "parkinson_speech": RemoteSet(
        "CC BY 4.0 (UCI, data set 470), which packs it as a .rar",
        "https://archive.ics.uci.edu/dataset/470",
        (
            RemoteFile(
                *("pd_speech_features.csv.gz", "", "9495d1100beaa24005ea951d4b6588186091de4c21cc45009b027f38f699b8ab"),
                5_308_926,
            ),
        ),
    ),
}
REMOTE["mnist_odd_even"] = REMOTE["mnist"]
FOLDER_OF = {"mnist_odd_even": "mnist"}
"""Sets that are read from the folder of another."""


def cache_folder() -> Path:
    """Where what is fetched lies: COLONNADE_CACHE, or `colonnade` in the user's cache folder."""
    if own := os.environ.get(CACHE_VARIABLE, ""):
        return Path(own) / "data"
    return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "colonnade" / "data"


def kept_at(name: str, file: str) -> Path | None:
    """Where a file of a set lies: in the folder that COLONNADE_DATA names, or in the cache."""
    own = os.environ.get(FOLDER_VARIABLE, "")
    folders = [*([Path(own)] if own else []), cache_folder()]
    return next((found for folder in folders if (found := folder / name / file).is_file()), None)


def get(name: str, url: str = "", progress: Progress = lambda file, done, whole: None) -> list[Path]:
    """Fetch a set's files that are not there yet; gives where all of them lie. `url`: a folder to fetch them from."""
    if name not in REMOTE:
        raise unknown_name("data set to fetch", name, sorted(REMOTE))
    folder = FOLDER_OF.get(name, name)
    found = []
    for file in REMOTE[name].files:
        kept = kept_at(folder, file.name)
        if kept is None:
            kept = cache_folder() / folder / file.name
            _get_file(name, file, _address(name, file, url, kept), kept, progress)
        found.append(kept)
    return found


def _address(name: str, file: RemoteFile, url: str, kept: Path) -> str:
    if not (url or file.address):
        raise DataError(
            f"The data set {name!r} is not given away without asking ({REMOTE[name].licence}): see "
            f"{REMOTE[name].home}. Put {file.name} into {kept.parent}, or name a folder to fetch "
            f"{file.name.removesuffix('.gz')} from with --url."
        )
    last = file.address.rpartition("/")[2] or file.name.removesuffix(".gz")
    address = f"{url.rstrip('/')}/{last}" if url else file.address
    if urlsplit(address).scheme not in ("http", "https"):
        raise SettingsError(f"{address!r} is no address to fetch from: it begins with https:// or http://.")
    return address


def _get_file(name: str, file: RemoteFile, address: str, kept: Path, progress: Progress) -> None:
    packing = Path(urlsplit(address).path).suffix
    part = kept.with_name(f"{kept.name}.{hashlib.sha256(address.encode()).hexdigest()[:8]}.part")
    try:
        make_folder(kept.parent)
        _fetch(name, address, part, progress)
        found, size = _digest(part, "" if file.of_packed else packing, file.size)
        if found != file.sha256:
            part.unlink()
            raise DataError(
                f"{address} gave another file than the data set {name!r} is known by: its SHA-256 is {found} "
                f"({size:,} bytes were looked at), and {file.sha256} was expected. It was removed. Try again; if it "
                "stays so, the file has changed, or somebody has changed it on its way."
            )
        _keep(part, packing, kept)
    except OSError as error:
        raise RunError(
            f"{kept} could not be written: {error.strerror or error}. Free some space, or name another folder with "
            f"{CACHE_VARIABLE}; what has come so far is kept."
        ) from None


def _fetch(name: str, address: str, part: Path, progress: Progress) -> None:
    """Append to what is there what is not there yet."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            goes_on = have > 0 and answer.status == 206
            done = have if goes_on else 0
            whole = done + int(answer.headers.get("Content-Length") or 0)
            beginning = os.O_APPEND if goes_on else os.O_TRUNC
            with os.fdopen(open_private(part, os.O_WRONLY | os.O_CREAT | beginning), "wb") as out:
                while chunk := answer.read(_CHUNK_BYTES):
                    out.write(chunk)
                    done += len(chunk)
                    progress(part.name, done, whole)
        if whole and done < whole:
            raise HTTPException("the connection ended")
    except HTTPError as error:
        if error.code == 416 and have:
            return  # it was there whole
        raise RunError(
            f"The data set {name!r} could not be fetched: {address} answered {error.code} ({error.reason}). If the "
            "address has changed, name a folder that has the file with --url."
        ) from None
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        why = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise RunError(
            f"The data set {name!r} could not be fetched from {address}: {why}. What has come so far is kept: give the "
            "command again to go on."
        ) from None


def _digest(part: Path, packing: str, size: int) -> tuple[str, int]:
    """SHA-256 and length of the content; no more of it is unpacked than there should be."""
    digest, read = hashlib.sha256(), 0
    try:
        with _opened(part, packing) as file:
            while (read <= size or not size) and (chunk := file.read(_CHUNK_BYTES)):
                digest.update(chunk)
                read += len(chunk)
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError):
        return "of no such packing", part.stat().st_size
    return digest.hexdigest(), read


def _keep(part: Path, packing: str, kept: Path) -> None:
    """Give a file that is checked its name, packed as the name says."""
    if packing == kept.suffix:
        part.replace(kept)
        return
    with (
        appearing(kept) as unfinished,
        _opened(part, packing) as source,
        _OPENERS[kept.suffix](unfinished, "wb") as out,
    ):
        shutil.copyfileobj(source, out, _CHUNK_BYTES)
    part.unlink()


def _opened(path: Path, packing: str) -> IO[bytes]:
    opener = _OPENERS.get(packing)
    found: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return found
