"""What two organisations say before the first packet, and what they say about the link itself later.

Everything on a stream is one of these words, MessagePack with a tag, or packets: the first byte tells. A feature party
says `Hello`; the label party answers `Welcome` or `Refused`, and `Everybody` once all have been there. Who is speaking
is never in a word: it is the name in the certificate of the connection.
"""

import hashlib
from importlib import metadata
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from colonnade.errors import ProtocolError, plain
from colonnade.wire.certificates import Credentials, check_peer, peer_public_key, signing_key

PROTOCOL: Final = 2
VERSION: Final = metadata.version("colonnade")

PACKETS: Final = 0x50  # then packets between the two ends of the stream
ENVELOPE: Final = 0x45  # then a byte, so many bytes of a name (to or from whom), the generation, and a sealed envelope
WORD: Final = 0x57  # then one of the words below

LONGEST_WORD_BYTES = 1 << 22
NONCE_BYTES = 16


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A feature party at the door."""

    protocol: int
    settings: str  # the federation's settings as JSON, so that a difference can be named
    row_digest: str
    rows: int
    test_rows: int
    shape: tuple[int, ...]  # of one of its rows
    width: int  # of its embedding; 0 where none is sent
    token: str  # of its run directory: a second process of the same name has another
    sealing_key: bytes
    signature: bytes  # over the key, by the certificate's own
    nonce: bytes  # what the label party signs in its answer
    leaves: bool = False  # for good
    version: str = ""  # of Colonnade
    carrier: str = ""  # by its federation.toml, which may not be the one that carries this


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The label party has let it in, and waits for those.

    TLS does not know which certificates are revoked, so the label party shows its own here once more and signs.
    """

    waits_for: tuple[str, ...]
    certificate: bytes
    signature: bytes


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Why the stream ends. `final`: coming again will not help."""

    sentence: str
    final: bool = True


class Introduced(msgspec.Struct, frozen=True):
    """One party as the others need to know it: its certificate vouches for its key."""

    certificate: bytes
    sealing_key: bytes
    signature: bytes


class Roster(msgspec.Struct, frozen=True, tag="everybody", omit_defaults=True):
    """What all parties know of one another, from the label party, when all have been there."""

    task: str
    classes: int
    shapes: dict[str, tuple[int, ...]]
    widths: dict[str, int]
    largest_weight: float = 1.0  # of a training row, in a linear federation
    run: str = ""  # drawn by the label party: models that were trained together, and predictions, are known by it


class Presence(msgspec.Struct, frozen=True, tag="presence"):
    """Which other feature party can be reached through the label party, and its key; `generation` 0: no longer.

    The generation tells the envelopes of one connection between the two from those of the one before.
    """

    name: str
    generation: int
    introduced: Introduced | None = None


class Left(msgspec.Struct, frozen=True, tag="left"):
    """The answer to a Hello that leaves."""


Word = Hello | Welcome | Refused | Roster | Presence | Left

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Word)


def say(word: Word) -> bytes:
    """A word as it goes on a stream."""
    return bytes([WORD]) + _encoder.encode(word)


def heard(data: bytes) -> Word:
    """The word in a message of the stream."""
    if not data or data[0] != WORD or len(data) > LONGEST_WORD_BYTES:
        raise ProtocolError("Something else came where a word of the handshake was expected.")
    try:
        word: Word = _decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError("A word of the handshake is not valid: not Colonnade, or of another version.") from error
    return word


# --- the label party is who it says ------------------------------------------------------------------------------


def sign_welcome(credentials: Credentials, federation_digest: str, guest: str, nonce: bytes) -> bytes:
    """A signature under: I, the label party of this federation, answer this Hello of this guest."""
    return signing_key(credentials).sign(_welcome(federation_digest, guest, nonce), ec.ECDSA(SHA256()))


def check_welcome(welcome: Welcome, own: Credentials, label_party: str, federation_digest: str, nonce: bytes) -> None:
    """Refuse a label party whose certificate is not to be believed, or not the one that signed."""
    name = check_peer(welcome.certificate, own.authority_pem, own.revoked)
    if name != label_party:
        raise ProtocolError(f"The certificate of {plain(name)!r} was shown for {label_party!r}.")
    try:
        told = _welcome(federation_digest, own.name, nonce)
        peer_public_key(welcome.certificate).verify(welcome.signature, told, ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise ProtocolError(f"What answers is not {label_party}: it could not sign as {label_party} does.") from None


def _welcome(federation_digest: str, guest: str, nonce: bytes) -> bytes:
    parts = (b"colonnade welcome 1", federation_digest.encode(), guest.encode(), nonce)
    return hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


# --- what two files differ in ------------------------------------------------------------------------------------


def difference(ours: Any, theirs: Any, where: str = "") -> str | None:
    """The first setting in which two parties' files differ, as `section.name`; None if there is none."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({**ours, **theirs}, key=str):
            place = f"{where}.{name}" if where else str(name)
            if name not in ours or name not in theirs:
                return place
            found = difference(ours[name], theirs[name], place)
            if found is not None:
                return found
        return None
    return None if ours == theirs else where
