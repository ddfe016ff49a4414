"""Sealed envelopes: what two parties tell each other through a third, which can neither read nor alter nor repeat it.

For a run every party draws an X25519 key and signs its public half with the key of its certificate. Two parties derive
from their keys one cipher key per direction and process life. An envelope is

    salt (16 bytes) | counter (8 bytes, big-endian) | ChaCha20-Poly1305 ciphertext and tag (plain + 16 bytes)

A salt is drawn anew by every process, so that one that has forgotten its counter cannot use a nonce twice.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.errors import ProtocolError, SettingsError
from colonnade.wire.certificates import Credentials, check_peer, peer_public_key, signing_key

MOST_SALTS = 4096
"""How many lives a peer's process may have in one run."""

OVERHEAD_BYTES = 40
"""How much longer an envelope is than what is in it."""

_SALT_BYTES = 16
_KEPT_CIPHERS = 64  # one that is not kept is derived again
_COUNTER = struct.Struct(">Q")
_NONCE = struct.Struct(">4xQ")


@dataclass(frozen=True, eq=False)
class SealingKey:
    """A party's X25519 key of one run. A party that resumes keeps it; a new run has a new one."""

    private: X25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, private: bytes) -> Self:
        """The key that `to_bytes` gave."""
        try:
            return cls(X25519PrivateKey.from_private_bytes(private))
        except ValueError:
            raise SettingsError(
                f"A sealing key has 32 bytes; {len(private)} were given. Give the bytes that were saved, or a new run."
            ) from None

    def to_bytes(self) -> bytes:
        """The secret itself, for a file that its owner alone can read."""
        return self.private.private_bytes_raw()

    def public_bytes(self) -> bytes:
        return self.private.public_key().public_bytes_raw()


# --- introductions: whose sealing key this is --------------------------------------------------------------------


def sign_introduction(credentials: Credentials, federation_digest: str, public: bytes) -> bytes:
    """A signature under: this sealing key, in this federation, is mine."""
    told = _introduction(federation_digest, credentials.name, public)
    return signing_key(credentials).sign(told, ec.ECDSA(SHA256()))


def check_introduction(
    certificate_pem: bytes,
    authority_pem: bytes,
    revoked: frozenset[int],
    federation_digest: str,
    public: bytes,
    signature: bytes,
) -> str:
    """The name of the party whose sealing key this is, verified by its certificate and its signature."""
    name = check_peer(certificate_pem, authority_pem, revoked)
    told = _introduction(federation_digest, name, public)
    try:
        peer_public_key(certificate_pem).verify(signature, told, ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise ProtocolError(
            f"The sealing key that is said to be {name!r}'s was not signed by {name!r} for this federation. Somebody "
            "on the way changed it, or the two parties have different federation.toml files: compare them."
        ) from None
    return name


def _introduction(federation_digest: str, name: str, public: bytes) -> bytes:
    return _joined(b"colonnade sealing introduction 1", federation_digest.encode(), name.encode(), public)


# --- envelopes ---------------------------------------------------------------------------------------------------


class Envelope:
    """Seals what one party sends to one other, and opens what comes from it.

    Make one a peer and process life. Envelopes of a life arrive in order, each once. A process that starts again with
    the same key must `restore` what it had opened, or the third party could hand it old envelopes again.

    >>> shop, clinic = SealingKey.generate(), SealingKey.generate()
    >>> ours = Envelope(shop, "shop", clinic.public_bytes(), "clinic", "digest")
    >>> theirs = Envelope(clinic, "clinic", shop.public_bytes(), "shop", "digest")
    >>> theirs.open(ours.seal(b"a mask"))
    b'a mask'
    """

    def __init__(
        self, own: SealingKey, own_name: str, peer_public: bytes, peer_name: str, federation_digest: str
    ) -> None:
        if own_name == peer_name:
            raise SettingsError(f"{own_name!r} cannot seal envelopes to itself: give the name of another party.")
        try:
            self._secret = own.private.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:  # a wrong length, or a point of low order, with which the secret would be known to all
            raise ProtocolError(
                f"The sealing key of {peer_name!r} is not a usable X25519 key of 32 bytes. That party must send the "
                "one that it made for this run."
            ) from None
        self._peer_name = peer_name
        ours = own_name.encode(), own.public_bytes()
        theirs = peer_name.encode(), peer_public
        # Sender before receiver: a direction has keys of its own, and nobody is sent back what it said itself.
        self._sent_as = _joined(b"colonnade envelope 1", federation_digest.encode(), *ours, *theirs)
        self._received_as = _joined(b"colonnade envelope 1", federation_digest.encode(), *theirs, *ours)
        self._salt = os.urandom(_SALT_BYTES)
        self._cipher = self._derive(self._salt, self._sent_as)
        self._sealed = 0
        self._opened: dict[bytes, int] = {}  # the last counter of every salt
        self._ciphers: dict[bytes, ChaCha20Poly1305] = {}

    def seal(self, plain: bytes | bytearray | memoryview) -> bytes:
        counter = self._sealed
        self._sealed += 1  # first, so that not even a failure uses a nonce twice
        return b"".join((self._salt, _COUNTER.pack(counter), self._cipher.encrypt(_NONCE.pack(counter), plain, None)))

    def open(self, sealed: bytes | bytearray | memoryview) -> bytes:
        """What the peer sealed, or a ProtocolError, after which nothing has changed."""
        view = memoryview(sealed)
        if len(view) < OVERHEAD_BYTES:
            raise ProtocolError(
                f"An envelope said to be from {self._peer_name!r} is truncated: {len(view)} bytes are fewer than any "
                "has. Whoever passed it on cut it short."
            )
        salt = bytes(view[:_SALT_BYTES])
        (counter,) = _COUNTER.unpack_from(view, _SALT_BYTES)
        last = self._opened.get(salt, -1)
        if counter <= last:
            raise ProtocolError(
                f"An envelope said to be from {self._peer_name!r} has the number {counter}, but number {last} was "
                "opened already. Whoever passed it on repeated it."
            )
        if salt not in self._opened and len(self._opened) >= MOST_SALTS:
            raise ProtocolError(
                f"{self._peer_name!r} has started anew more than {MOST_SALTS} times in this run. Find out why it does, "
                "then start a new run."
            )
        cipher = self._ciphers.get(salt) or self._derive(salt, self._received_as)
        try:
            plain = cipher.decrypt(_NONCE.pack(counter), view[_SALT_BYTES + _COUNTER.size :], None)
        except InvalidTag:
            raise ProtocolError(
                f"An envelope said to be from {self._peer_name!r} was not sealed by it for this party in this run, or "
                "was altered on the way. Ask whoever passes the envelopes on, and compare the federation.toml files."
            ) from None
        # Only now, after the tag: else anybody could fill the table with salts of their own.
        self._opened[salt] = counter
        if salt not in self._ciphers:
            if len(self._ciphers) >= _KEPT_CIPHERS:
                del self._ciphers[next(iter(self._ciphers))]
            self._ciphers[salt] = cipher
        return plain

    def state(self) -> dict[str, int]:
        """Which envelopes have been opened; no key is part of it."""
        return {salt.hex(): counter for salt, counter in self._opened.items()}

    def restore(self, state: Mapping[str, int]) -> None:
        """Refuse what the process before this one had opened."""
        self._opened = {bytes.fromhex(salt): int(counter) for salt, counter in state.items()}

    def _derive(self, salt: bytes, info: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(self._secret))


def _joined(*words: bytes) -> bytes:
    """Words, each with its length before it, so that no two lists of words spell the same."""
    return b"".join(struct.pack(">I", len(word)) + word for word in words)
