"""Data sets that are fetched: from a server on this machine, which breaks off, lies, forgets and refuses."""

import gzip
import hashlib
import lzma
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from errno import ENOSPC
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import colonnade

from colonnade.data import dataset, downloads
from colonnade.data.catalogue import names
from colonnade.data.downloads import REMOTE, RemoteFile, RemoteSet, cache_folder, get
from colonnade.errors import DataError, RunError, SettingsError

CONTENT = b"".join(f"{i % 2 * 2 - 1} {i % 123 + 1}:1\n".encode() for i in range(40_000))


class Server(ThreadingHTTPServer):
    """What it gives, how it behaves, and what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.breaks_after: int | None = None
        self.knows_ranges = True
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, content = self.server, self.server.files.get(self.path.lstrip("/"))
        wanted = self.headers.get("Range")
        server.asked.append(wanted)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if wanted and server.knows_ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        given = content[start:]
        with suppress(OSError):
            self.wfile.write(given if server.breaks_after is None else given[: server.breaks_after])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("COLONNADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    one = Server()
    one.files = {"a9a": CONTENT, "a9a.t": CONTENT[:5000].rpartition(b"\n")[0] + b"\n"}
    files = tuple(
        RemoteFile(f"{name}.xz", f"{one.url}/{name}", hashlib.sha256(content).hexdigest(), len(content))
        for name, content in one.files.items()
    )
    monkeypatch.setitem(REMOTE, "a9a", RemoteSet("anybody may have it", one.url, files))
    thread = threading.Thread(target=one.serve_forever, daemon=True)
    thread.start()
    yield one
    one.shutdown()
    one.server_close()


def test_it_is_fetched_once_and_then_read_by_name(server: Server) -> None:
    answer = colonnade("data", "get", "a9a")
    assert answer.code == 0, answer.err
    assert "Licence: anybody may have it" in answer.out + answer.err
    kept = cache_folder() / "a9a" / "a9a.xz"
    assert str(kept) in answer.out and lzma.decompress(kept.read_bytes()) == CONTENT
    assert kept.stat().st_mode & 0o077 == 0
    assert [path.name for path in kept.parent.iterdir() if "part" in path.name] == []
    asked = len(server.asked)
    assert get("a9a")[0] == kept and len(server.asked) == asked
    assert dataset("a9a", parties=2).rows == 40_000


def test_it_goes_on_where_it_broke_off(server: Server) -> None:
    server.breaks_after = 100_000
    with pytest.raises(RunError, match=r"What has come so far is kept: give the command again to go on"):
        get("a9a")
    server.breaks_after = None
    seen: list[tuple[int, int]] = []
    get("a9a", progress=lambda file, done, whole: seen.append((done, whole)))
    assert server.asked[:2] == [None, "bytes=100000-"]
    assert seen[0][0] > 100_000 and seen[0][1] == len(CONTENT)
    assert lzma.decompress((cache_folder() / "a9a" / "a9a.xz").read_bytes()) == CONTENT


def test_a_server_without_ranges_begins_anew(server: Server) -> None:
    server.breaks_after, server.knows_ranges = 100_000, False
    with pytest.raises(RunError):
        get("a9a")
    server.breaks_after = None
    assert lzma.decompress(get("a9a")[0].read_bytes()) == CONTENT


def test_what_was_whole_before_the_check_is_not_fetched_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(downloads, "_digest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        get("a9a")
    get("a9a")
    assert server.asked[1] == f"bytes={len(CONTENT)}-"


def test_another_content_is_refused_and_removed(server: Server) -> None:
    server.files["a9a"] = CONTENT[:-2] + b"2\n"
    with pytest.raises(DataError, match=r"gave another file .* It was removed"):
        get("a9a")
    assert [*(cache_folder() / "a9a").iterdir()] == []
    server.files["a9a"] = CONTENT
    assert get("a9a")[0].exists()


def test_packed_files_are_judged_by_their_content(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files = {"a9a.gz": gzip.compress(CONTENT, 1), "bomb.gz": gzip.compress(b"0" * 50_000_000)}
    digest = hashlib.sha256(CONTENT).hexdigest()
    own = (RemoteFile("a9a.xz", f"{server.url}/a9a.gz", digest, len(CONTENT)),)
    monkeypatch.setitem(REMOTE, "a9a", RemoteSet("", "", own))
    assert lzma.decompress(get("a9a")[0].read_bytes()) == CONTENT
    bomb = (RemoteFile("b.xz", f"{server.url}/bomb.gz", digest, len(CONTENT)),)
    monkeypatch.setitem(REMOTE, "a9a", RemoteSet("", "", bomb))
    with pytest.raises(DataError, match=r"bytes were looked at"):
        get("a9a")
    server.files["bomb.gz"] = b"no gzip at all"
    with pytest.raises(DataError, match="of no such packing"):
        get("a9a")


def test_what_is_not_there(server: Server) -> None:
    server.files.clear()
    said = colonnade("data", "get", "a9a")
    assert (said.code, said.out) == (1, "") and "answered 404" in said.err and "--url" in said.err
    said = colonnade("data", "get", "a9a", "--url", "http://127.0.0.1:1")
    assert said.code == 1 and "could not be fetched" in said.err
    with pytest.raises(SettingsError, match="begins with https://"):
        get("a9a", "file:///etc")
    assert "There is no data set 'a9b'" in colonnade("data", "get", "a9b").err


def test_a_full_disk(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, flags: int) -> int:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(downloads, "open_private", full)
    with pytest.raises(RunError, match=r"No space left on device. Free some space, or name another folder"):
        get("a9a")


def test_what_must_be_asked_for(server: Server) -> None:
    said = colonnade("data", "get", "givemesomecredit")
    assert said.code == 2 and "not given away without asking" in said.err and "kaggle" in said.err
    assert "cifar10 cannot be fetched" in colonnade("data", "get", "cifar10").err
    assert "there is nothing to fetch" in colonnade("data", "get", "iris").err


def test_ones_own_copy_comes_first(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own" / "a9a"
    own.mkdir(parents=True)
    for file in ("a9a.xz", "a9a.t.xz"):
        (own / file).write_bytes(lzma.compress(CONTENT))
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "own"))
    assert get("a9a")[0] == own / "a9a.xz" and server.asked == []


def test_every_checksum_is_one_and_every_set_exists() -> None:
    known = {facts.name for facts in names()}
    assert {*REMOTE} <= known
    for one in REMOTE.values():
        assert one.licence and one.home.startswith("http")
        for file in one.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.name.endswith((".gz", ".xz"))


def test_the_cache_is_where_users_have_theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COLONNADE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "colonnade" / "data"
