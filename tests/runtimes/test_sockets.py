"""Real sockets between small parties, a thread for each carrier: connecting, large frames, strangers, ends."""

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, ProtocolError, RunError, SettingsError
from colonnade.messages import BatchRequest
from colonnade.party import Effect, Finish, Received, Send, Started
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.journal import Journal
from colonnade.runtimes.links import Peers
from colonnade.runtimes.processes import sockets
from colonnade.runtimes.processes.sockets import SocketCarrier, socket_folder
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.station import Recording, Station
from colonnade.testing import Scripted, finishes_after, letter, says, sends
from colonnade.wire.codec import encode
from colonnade.wire.packets import FRAME, RESUME, header

ORDER = ["bank", "shop"]


class Life:
    """One party's station and carrier, run in a thread; `result` is what the carrier returned or raised."""

    def __init__(self, name: str, party: Scripted, directory: Path, folder: Path, **more: Any) -> None:
        self.party = party
        self.stop = threading.Event()
        self.result: bool | ColonnadeError | None = None
        self._recorder = Recorder("bank", virtual=False)
        peers = [other for other in ORDER if other != name]
        self.station = Station(
            name, party, Peers(peers, "bank"), directory, Recording(self._recorder, lambda _: Ledger())
        )
        linger = more.pop("linger_seconds", 30.0)
        self.carrier = SocketCarrier(
            self.station, ORDER, folder, linger_seconds=linger, stop_requested=self.stop.is_set, **more
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self.carrier.run()
        except ColonnadeError as error:
            self.result = error
        finally:
            self.carrier.close()
            self.station.close()
            self._recorder.close()

    def end(self, stop: bool = False) -> bool | ColonnadeError | None:
        if stop:
            self.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the carrier does not end"
        return self.result


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as short:  # a socket's path must be short
        yield Path(short)


@pytest.fixture
def live(tmp_path: Path, folder: Path) -> Iterator[Callable[..., Life]]:
    lives: list[Life] = []

    def begin(name: str, party: Scripted, **more: Any) -> Life:
        lives.append(Life(name, party, tmp_path, folder, **more))
        return lives[-1]

    yield begin
    for life in lives:
        life.end(stop=True)


def until(what: Callable[[], object]) -> None:
    """Wait for something that must come; the time-out of the whole test says if it does not."""
    while not what():
        threading.Event().wait(0.005)


def counting(to: str, last: int, first: bool = False) -> Scripted:
    """Sends letters back and forth up to the last."""

    def script(_: Scripted, what: str) -> Sequence[Effect]:
        if what == "Started":
            return [Send(to, letter(1))] if first else []
        number = int(what.removeprefix("letter "))
        effects: list[Effect] = [Send(to, letter(number + 1))] if number < last else []
        return [*effects, Finish()] if number >= last - 1 else effects

    return Scripted(script)


def test_letters_go_back_and_forth_whoever_comes_first(live: Any) -> None:
    shop = live("shop", counting("bank", 60))
    bank = live("bank", counting("shop", 60, first=True))
    assert (bank.end(), shop.end()) == (True, True)
    assert bank.party.names() == ["Started", *(f"letter {n}" for n in range(2, 61, 2))]
    assert shop.party.names() == ["Started", *(f"letter {n}" for n in range(1, 60, 2))]


def test_frames_larger_than_a_socket_holds_cross_each_other(live: Any) -> None:
    large = BatchRequest(1, np.arange(2_000_000, dtype=np.uint32))

    def both(to: str) -> Scripted:
        return says({"Started": [Send(to, large), Send(to, large)], "letter 1": []})

    def check(party: Scripted, what: str) -> Sequence[Effect]:
        return [Finish()] if what == "letter 1" and party.names("letter") else []

    parties = {"bank": both("shop"), "shop": both("bank")}
    for party in parties.values():
        start = party.script
        party.script = lambda own, what, start=start: [*start(own, what), *check(own, what)]
    bank, shop = live("bank", parties["bank"]), live("shop", parties["shop"])
    assert (bank.end(), shop.end()) == (True, True)
    assert bank.station.frames_taken == shop.station.frames_taken == 2


def test_a_party_that_stops_and_comes_again_goes_on(live: Any) -> None:
    """The shop is stopped after some letters; its second life has what its first had."""
    bank = live("bank", says({"Started": [Send("shop", letter(n)) for n in range(100)], "letter 9": [Finish()]}))
    one = live("shop", says({}))
    until(lambda: len(one.party.names()) > 3)
    assert one.end(stop=True) is False
    before = one.party.names()

    def last(party: Scripted, what: str) -> Sequence[Effect]:
        return [Send("bank", letter(9)), Finish()] if what == "letter 99" else []

    two = live("shop", Scripted(last))
    assert two.end() is True
    assert bank.end() is True
    assert two.party.names() == ["Started", *(f"letter {n}" for n in range(100))]
    assert two.party.names()[: len(before)] == before
    assert bank.station.reconnects() == 1


def test_strangers_and_the_nameless_are_turned_away(live: Any, folder: Path) -> None:
    bank = live("bank", counting("shop", 6, first=True))
    until((folder / "bank.sock").exists)
    guests = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    for guest in guests:
        guest.connect(str(folder / "bank.sock"))
        guest.settimeout(30)
    guests[0].sendall(b"nobody".ljust(64, b"\0"))
    guests[1].sendall(b"bank".ljust(64, b"\0"))  # itself
    guests[2].sendall(b"\xff" * 64)
    guests[3].sendall(b"sho")
    guests[3].shutdown(socket.SHUT_WR)  # goes before it has said its name
    assert [guest.recv(1) for guest in guests[:4]] == [b""] * 4  # closed; the last one just says nothing
    shop = live("shop", counting("bank", 6))
    assert (bank.end(), shop.end()) == (True, True)
    for guest in guests:
        guest.close()


def test_the_newer_connection_of_a_name_counts(live: Any, folder: Path) -> None:
    """The bank has not noticed yet that the shop's first process is gone."""
    bank = live("bank", counting("shop", 6, first=True))
    until((folder / "bank.sock").exists)
    with socket.socket(socket.AF_UNIX) as before:
        before.settimeout(30)
        before.connect(str(folder / "bank.sock"))
        before.sendall(b"shop".ljust(64, b"\0"))
        until(lambda: not bank.station.absent())
        shop = live("shop", counting("bank", 6))
        assert (bank.end(), shop.end()) == (True, True)
        while before.recv(1 << 16):
            pass


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (header(FRAME, 1, 0, 3) + b"abc", "These bytes are not a Colonnade frame"),
        (header(99, 0, 0), "unknown kind 99"),
    ],
)
def test_what_is_refused_would_be_refused_again_and_ends_the_run(
    live: Any, folder: Path, data: bytes, said: str
) -> None:
    """Such as the embeddings of a training that has diverged: dropping the connection would go on for ever."""
    bank = live("bank", says({}))
    until((folder / "bank.sock").exists)
    with socket.socket(socket.AF_UNIX) as shop:
        shop.connect(str(folder / "bank.sock"))
        shop.sendall(b"shop".ljust(64, b"\0") + header(RESUME, 0, 0) + data)
        error = bank.end()
    assert isinstance(error, RunError)
    assert str(error).startswith("bank refused what shop sent, so the training cannot go on: ")
    assert said in str(error)


def test_a_message_that_the_party_refuses_ends_the_run_too(live: Any) -> None:
    def script(_: Scripted, what: str) -> Sequence[Effect]:
        if what == "letter 1":
            raise ProtocolError("Letter 1 is not taken here.")
        return []

    bank = live("bank", Scripted(script))
    live("shop", sends("bank", letter(1), finish=False))
    error = bank.end()
    assert str(error) == "bank refused what shop sent, so the training cannot go on: Letter 1 is not taken here."


def test_who_has_lost_its_parent_ends(live: Any) -> None:
    ours, theirs = os.pipe()
    bank = live("bank", says({}), parent=ours)
    until(lambda: bank.station is not None)
    os.close(theirs)
    assert bank.end() is False
    os.close(ours)


def test_a_finished_party_waits_for_its_peers_only_so_long(live: Any) -> None:
    """The shop has taken nothing of the last letter and never comes again."""
    bank = live("bank", says({"Started": [Send("shop", letter(1)), Finish()]}), linger_seconds=0.1)
    shop = live("shop", says({}), linger_seconds=0.1)
    assert bank.end() is True
    shop.end(stop=True)
    assert not (bank.carrier._folder / "bank.sock").exists()


def test_who_died_at_its_end_comes_again_to_say_so(live: Any, tmp_path: Path) -> None:
    """The shop's first life has written down the last letter, and was killed before it acknowledged it."""
    journal = Journal(tmp_path / "journal", "shop", 0)
    journal.append(Started(0.0))
    journal.append(Received(0.0, "bank", letter(1)), encode(letter(1)))
    journal.flush()
    journal.close()
    bank = live("bank", says({"Started": [Send("shop", letter(1)), Finish()]}))
    with socket.socket(socket.AF_UNIX) as first:  # so that the bank begins
        until((bank.carrier._folder / "bank.sock").exists)
        first.connect(str(bank.carrier._folder / "bank.sock"))
        first.sendall(b"shop".ljust(64, b"\0"))
        until(lambda: bank.station.finished)
    shop = live("shop", finishes_after(1))
    assert (shop.end(), bank.end()) == (True, True)
    assert bank.station.settled()


def test_a_socket_left_by_a_killed_process_is_no_obstacle(live: Any, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(folder / "bank.sock"))
    bank, shop = live("bank", counting("shop", 4, first=True)), live("shop", counting("bank", 4))
    assert (bank.end(), shop.end()) == (True, True)


def test_sockets_have_short_paths_wherever_temporary_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("deep" * 30)
    long.mkdir()
    names = ["bank", "n" * 64]
    for place in (str(long), tempfile.gettempdir()):
        monkeypatch.setattr(tempfile, "tempdir", place)
        with socket_folder(names) as folder:
            assert Path(folder).stat().st_mode & 0o777 == 0o700
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(f"{folder}/{names[1]}.sock")
        assert not Path(folder).exists()
    assert list(long.iterdir()) == []


def test_no_short_path_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LONGEST_PATH_BYTES", 12)
    with pytest.raises(SettingsError, match=r"at most 12 bytes, and neither .* nor /tmp gives such: set TMPDIR"):
        socket_folder(["bank"])


def test_frames_are_what_the_codec_makes(live: Any, folder: Path) -> None:
    """Read beside the carrier: 64 bytes of name, then packets."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(folder / "bank.sock"))
    door.listen(1)
    door.settimeout(30)
    shop = live("shop", sends("bank", letter(5), finish=False))
    link, _ = door.accept()
    link.settimeout(30)
    with door, link, link.makefile("rb") as heard:
        assert heard.read(64) == b"shop".ljust(64, b"\0")
        assert heard.read(24) == header(RESUME, 0, 0)
        link.sendall(header(RESUME, 0, 0) + header(4, 0, 0))  # and START
        assert heard.read(24 + 32) == header(FRAME, 1, 0, 32) + encode(letter(5))
        shop.end(stop=True)
