"""Whatever comes to the label party's port, a certified party is let in afterwards, and nobody hears of our machine."""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import stranger
from stranger import NONSENSE, PARTIES, Place
from tls_caller import TlsCaller

from colonnade.errors import ProtocolError, RunError
from colonnade.runtimes.network import limits
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.handshake import Refused, Welcome, heard, say

SHOP, CLINIC = PARTIES


over_tls = pytest.mark.parametrize("place", ["tls"], indirect=True, scope="module")
"""Bounds of our own; gRPC has others, of ten seconds."""


@pytest.fixture(scope="module", params=stranger.CALLERS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "HELLO_SECONDS", 0.3)
        patch.setattr(limits, "HANDSHAKE_SECONDS", 1.0)
        with Place(tmp_path_factory.mktemp("place"), request.param).listening() as one:
            yield one


# --- without a certificate ----------------------------------------------------------------------------------------


def test_silence_and_noise_before_tls(place: Place) -> None:
    links = [stranger.connect(place.port) for _ in range(10)]
    for link in links[5:]:
        link.sendall(os.urandom(200))
    assert place.greets(SHOP)
    for link in links:
        link.close()


def test_half_a_handshake(place: Place) -> None:
    links = [stranger.connect(place.port) for _ in range(5)]
    for link in links:
        link.sendall(stranger.first_words_of_tls())
        assert link.recv(1)  # it is answered, and says no more
    assert place.greets(SHOP)
    for link in links:
        link.close()


def test_tls_without_a_certificate_or_with_a_wrong_one(place: Place, tmp_path: Path) -> None:
    trusted = place.folder / SHOP / "authority.pem"
    assert stranger.through_tls(place.port, trusted) == b""
    make_authority(tmp_path / "other", "somebody else", 2)
    issued = issue(tmp_path / "other", SHOP, tmp_path / SHOP, [], 1)
    assert stranger.through_tls(place.port, trusted, issued.certificate, issued.key) == b""
    assert place.greets(SHOP)


def test_a_certificate_and_no_http(place: Place) -> None:
    """Here TLS is passed, and the server ends the connection by its own protocol."""
    own = place.folder / SHOP
    assert stranger.through_tls(place.port, own / "authority.pem", own / "shop.pem", own / "shop.key")
    assert place.greets(SHOP)


@over_tls
def test_who_is_slow_is_put_out(place: Place) -> None:
    """Whether it never begins, or stops half way: after a time the connection ends from our side."""
    quiet, slow = stranger.connect(place.port), stranger.connect(place.port)
    quiet.sendall(b"\x16")
    slow.sendall(stranger.first_words_of_tls())
    for link in (quiet, slow):
        with link:
            while link.recv(1 << 14):
                pass
    assert place.greets(SHOP)


@over_tls
def test_a_length_is_not_believed_before_it_is_there(place: Place) -> None:
    own = place.files(SHOP).read()
    for length, said in ((0xFFFFFFFF, "A message of 4294967295 bytes came"), (1 << 19, "are the most")):
        caller = TlsCaller.calling(place.port, own.authority_pem, own.certificate_pem, own.key_pem)
        caller.say_raw(length.to_bytes(4, "little") + b"x" * 100_000)
        data = caller.hear()
        assert data is not None
        word = heard(data)
        assert isinstance(word, Refused) and said in word.sentence
        caller.close()
    assert place.greets(SHOP)


def test_another_carrier_is_told_of_on_both_sides(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A party whose file names the other one finds out what is spoken here, and is refused in that."""
    (theirs,) = stranger.CALLERS.keys() - {place.carrier}
    guest = place.guest(SHOP, theirs)
    with caplog.at_level(logging.WARNING), pytest.raises(RunError) as ended:
        asyncio.run(guest.run())
    sentence = f'shop has [network] carrier = "{theirs}", and that of label "{place.carrier}": use the same file.'
    assert sentence in str(ended.value)
    assert f"refused shop: The federation.toml of {sentence}" in caplog.text
    assert place.greets(SHOP)


# --- with one -----------------------------------------------------------------------------------------------------


def test_a_good_certificate_of_nobody_in_the_federation(place: Place, tmp_path: Path) -> None:
    issue(place.authority, "visitor", place.folder / "visitor", [], 1)
    with place.caller("visitor") as caller:
        assert "is not a feature party of this federation" in caller.refusal().sentence


@pytest.mark.parametrize("said", NONSENSE)
def test_nonsense_in_the_place_of_a_greeting(place: Place, said: str) -> None:
    with place.caller(SHOP) as caller:
        caller.say(NONSENSE[said])
        assert caller.refusal().final
    assert place.greets(SHOP)


def test_another_version(place: Place) -> None:
    """Another patch version is let in; another minor version is told what must be the same."""
    for version, is_let_in in (("0.1.999", True), ("0.2.0", False), ("", False)):
        with place.caller(SHOP) as caller:
            caller.say(say(place.hello(SHOP, version=version)))
            word = caller.hear()
            assert isinstance(word, Welcome) is is_let_in
            if isinstance(word, Refused):
                assert "the first two numbers must be the same" in word.sentence


def test_what_goes_wrong_here_is_not_told(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a defect nor a fault of the disk: the caller may come again, and the log has the words."""
    for error, told in (
        (RuntimeError("/secret/place"), "label could not go on with this stream."),
        (OSError(24, "Too many open files", "/secret/place"), "label has a fault of its own machine at the moment."),
    ):

        def fails(name: str, hello: object, error: Exception = error) -> None:
            raise error

        place.door.admits = fails
        caplog.clear()
        with place.caller(SHOP) as caller:
            caller.say(say(place.hello(SHOP)))
            assert caller.refusal() == Refused(told, final=False)
            assert "secret" not in caller.details()
        assert "/secret/place" in caplog.text
        place.door.admits = lambda name, hello: None
    assert place.greets(SHOP)


def test_no_line_of_the_log_is_a_peers(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    def refuses(name: str, hello: object) -> None:
        raise ProtocolError("a name\n12:00:00 label: all is well\x1b[2J")

    place.door.admits = refuses
    with caplog.at_level(logging.WARNING), place.caller(SHOP) as caller:
        caller.say(say(place.hello(SHOP)))
        assert "\n" not in caller.refusal().sentence
    place.door.admits = lambda name, hello: None
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert "\x1b" not in caplog.text


def test_who_opens_many_streams_keeps_others_out_of_nothing(place: Place) -> None:
    assert place.host is not None
    with ExitStack() as stack:
        for _ in range(limits.STREAMS_PER_PARTY):
            stack.enter_context(place.host._greeting.stream_of(SHOP))
        with place.caller(SHOP) as caller:
            word = caller.refusal()
            assert "streams open already" in word.sentence
            assert not word.final
        assert place.greets(CLINIC)
    assert place.greets(SHOP)


def test_our_own_files_are_waited_for(place: Place) -> None:
    """While the label party's certificate is gone nobody new is let in; then it goes on by itself."""
    file = place.folder / "label" / "label.pem"
    content = file.read_bytes()
    file.unlink()
    with place.caller(SHOP) as caller:
        caller.say(say(place.hello(SHOP)))
        assert caller.refusal() == Refused("label has no valid certificate of its own at the moment.", final=False)
    file.write_bytes(content)
    assert place.greets(SHOP)
