"""Uniform masks in Z_2^64: a masked number alone tells nothing, and no mask is ever used twice.

`PairwiseMasks` are agreed by every two parties and cancel in the sum over all: one pass, and the numbers of two honest
parties stay hidden even if everybody else colludes. `OwnMasks` are a party's own; their sum travels apart (`two-tree`).

Keys are made anew for every run: numbers begin at 0 in each, and a mask that covers two different products gives away
their difference. So a party that loses its record of used numbers (a crash, a resumed run whose messages may come in
another order) must also lose its key.
"""

import struct
from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from colonnade.errors import ProtocolError, RunError, SettingsError, unknown_name
from colonnade.state import Remembering, State, custom, included

KINDS = ("training", "evaluation")
"""What a sum is for; each kind counts its exchanges for itself."""

MOST_NUMBERS = 2**32
"""In one mask: half of what the 32-bit block counter reaches."""

LATEST = 4096
"""How far a sum's number may lie below the highest that its root has used."""

# The first block of a mask's keystream, big-endian: kind (1 byte), root (3 bytes), number (8 bytes), block counter
# (4 bytes, from 0). AES-CTR counts the block upwards as one number of 128 bits; a mask has at most MOST_NUMBERS / 2
# blocks of 16 bytes, so the counter never carries into `number`, and keystreams of different masks share no block.
_FIRST_BLOCK = struct.Struct(">IQI")

# Measured for 1,024 / 65,536 ring elements, in µs, one core of a server with AES instructions: AES-256-CTR 1.9 / 125
# and ChaCha20 2.2 / 146 with a kept context and `reset_nonce`; 8.6 / 132 and 7.6 / 150 when built for every mask.
_RING = np.dtype("<u8")  # the same on every machine, or masks would not cancel between two kinds
_BLOCK = np.dtype([("head", ">u4"), ("number", ">u8"), ("counter", ">u4")])

AHEAD, SHORT = 16, 1024
"""Pairwise masks of up to `SHORT` numbers are made for so many sums at a time, one after the other. With many peers
most of a short mask's cost is to call the cipher once for each of them (127 peers, 64 numbers: 212 µs, and 26 so)."""


def generate_key(entropy: bytes | None = None) -> tuple[bytes, bytes]:
    """A private and a public key for pairwise masks: from the system's randomness, or the same for the same entropy.

    Whoever can guess the entropy has the key: it is for simulations, which must repeat themselves.
    """
    if entropy is None:
        key = X25519PrivateKey.generate()
    else:
        key = X25519PrivateKey.from_private_bytes(_derive(entropy, b"colonnade mask agreement key"))
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def check_key(private_key: bytes, peer: str, public_key: bytes) -> None:
    """Refuse a peer's public key with which no mask can be agreed on."""
    _shared_secret(X25519PrivateKey.from_private_bytes(private_key), peer, public_key)


class PairwiseMasks(Remembering):
    """One party's masks: for every peer a keystream that both know, added by the lesser name, subtracted by the other.

    `public_keys` are those of all parties of the sum; its own may be among them.

    >>> keys = {name: generate_key(name.encode()) for name in ("a", "b", "c")}
    >>> public = {name: key for name, (_, key) in keys.items()}
    >>> masks = [PairwiseMasks(name, keys[name][0], public).mask("a", 0, 4) for name in keys]
    >>> masks[0] + masks[1] + masks[2]
    array([0, 0, 0, 0], dtype=uint64)
    """

    MEMORY = (included("_nonces"),)  # which numbers are used up; keys are no part of it
    DERIVED = ("_ahead",)

    def __init__(self, name: str, private_key: bytes, public_keys: Mapping[str, bytes]) -> None:
        try:
            own = X25519PrivateKey.from_private_bytes(private_key)
        except ValueError:
            raise SettingsError(
                f"The mask key of {name!r} is no X25519 private key of 32 bytes; make one anew."
            ) from None
        own_public = own.public_key().public_bytes_raw()
        if public_keys.get(name, own_public) != own_public:
            raise SettingsError(f"The public mask key given out for {name!r} does not belong to its private key.")
        peers = sorted(public_keys.keys() - {name})
        if not peers:
            raise SettingsError(f"Party {name!r} has no peer to agree on masks with; a masked sum needs other parties.")
        self._nonces = OneTimeNonces((name, *peers))
        ciphers = {peer: _block_cipher(_pair_key(name, own, peer, public_keys[peer])) for peer in peers}
        self._added = [cipher for peer, cipher in ciphers.items() if name < peer]
        self._subtracted = [cipher for peer, cipher in ciphers.items() if name > peer]
        self._ahead: dict[bytes, dict[int, NDArray[np.uint64]]] = {}  # kind and root → first number → masks

    def check(self, root: str, number: int, count: int, kind: str = "training") -> None:
        """Refuse a request for a mask that was used, or for one far out of turn; nothing is used up by that."""
        self._nonces.check(root, number, count, kind)

    def mask(self, root: str, number: int, count: int, kind: str = "training") -> NDArray[np.uint64]:
        """The mask of `count` ring elements for the sum of that number which `root` asked for."""
        head = self._nonces.take(root, number, count, kind)[:4]
        if count > SHORT:
            return self._made(head, number, 1, count)[0, :count]
        held, first = self._ahead.setdefault(head, {}), number - number % AHEAD
        if first not in held or held[first].shape[1] < count:
            held[first] = self._made(head, first, AHEAD, count)
            if len(held) > 2:  # a number may come late
                del held[next(iter(held))]
        return held[first][number - first, :count].copy()

    def _made(self, head: bytes, first: int, sums: int, count: int) -> NDArray[np.uint64]:
        """The masks of so many sums from the first number on, one a line."""
        blocks = np.zeros((sums, -(-count // 2)), _BLOCK)
        blocks["head"] = int.from_bytes(head, "big")
        blocks["number"] = (np.uint64(first) + np.arange(sums, dtype=np.uint64))[:, None]
        blocks["counter"] = np.arange(blocks.shape[1])
        counters, numbers = memoryview(blocks.tobytes()), 2 * blocks.size
        total = np.zeros(numbers, _RING)
        scratch = np.empty(numbers + 2, _RING)  # the library asks for room for a block more
        room, stream = scratch.view(np.uint8).data, scratch[:numbers]
        for cipher in self._added:
            cipher.update_into(counters, room)
            total += stream
        for cipher in self._subtracted:
            cipher.update_into(counters, room)
            total -= stream
        return total.reshape(sums, -1)


class OwnMasks(Remembering):
    """A party's own uniform masks, from a secret seed that no other party has.

    >>> masks = OwnMasks(b"known to this party only", ["a", "b", "c"])
    >>> bool((masks.mask("a", 0, 4) == masks.mask("a", 1, 4)).any())
    False
    """

    MEMORY = (included("_nonces"),)  # which numbers are used up; the seed is no part of it
    DERIVED = ("_room",)

    def __init__(self, seed: bytes, parties: Iterable[str]) -> None:
        if not seed:
            raise SettingsError(
                "The seed of a party's own masks is empty: anybody could guess them. Give random bytes."
            )
        self._nonces = OneTimeNonces(parties)
        self._stream = _keystream(_derive(seed, b"colonnade own masks"))
        self._room = _Room()

    def check(self, root: str, number: int, count: int, kind: str = "training") -> None:
        """Refuse a request for a mask that was used, or for one far out of turn; nothing is used up by that."""
        self._nonces.check(root, number, count, kind)

    def mask(self, root: str, number: int, count: int, kind: str = "training") -> NDArray[np.uint64]:
        """The mask of `count` ring elements for the sum of that number which `root` asked for."""
        nonce = self._nonces.take(root, number, count, kind)
        mask = np.empty(count, _RING)
        _fill(self._stream, nonce, self._room.of(count), mask.view(np.uint8).data)
        return mask


class OneTimeNonces(Remembering):
    """Gives out the first block of every mask's keystream, each once.

    Requests may overtake one another, so a number may come late, but not by more than LATEST: the record stays small
    however long a run lasts.
    """

    def __init__(self, parties: Iterable[str]) -> None:
        # Sorted, so that all parties of a sum give a root the same place in the nonce.
        self._places = {name: place for place, name in enumerate(sorted(set(parties)))}
        # For each kind and root: all numbers below the first are used up, and those in the set.
        self._used: dict[str, dict[str, tuple[int, set[int]]]] = {kind: {} for kind in KINDS}

    def check(self, root: str, number: int, count: int, kind: str) -> None:
        """Refuse a number that is used up, or so far ahead that those in between could not be used any more."""
        self._check_unused(root, number, count, kind)
        below, _ = self._used[kind].get(root, (0, set()))
        if number >= below + 2 * LATEST:
            raise ProtocolError(
                f"{root!r} is said to ask for the masked sum of {kind} number {number}; {below} are used up so far. "
                "Numbers are counted one by one: after such a leap, those in between could not be asked for."
            )

    def _check_unused(self, root: str, number: int, count: int, kind: str) -> None:
        if kind not in self._used:
            raise unknown_name("kind of masked sum", kind, KINDS)
        if root not in self._places:
            raise ProtocolError(
                f"A masked sum was asked for by {root!r}, which is not among its parties: "
                f"{', '.join(self._places)}. All parties must list the same ones."
            )
        if not 0 < count <= MOST_NUMBERS:
            raise ProtocolError(
                f"{root!r} asked for a masked sum of {count} numbers; ask for 1 to {MOST_NUMBERS} at once."
            )
        below, used = self._used[kind].get(root, (0, set()))
        if not below <= number < 2**64 or number in used:
            raise ProtocolError(
                f"{root!r} asked for the masked sum of {kind} number {number}, which is used up. A mask used twice "
                "gives away the difference of what it covers: that party must count on from where it was, or all "
                "parties start the run again with new keys."
            )

    def take(self, root: str, number: int, count: int, kind: str) -> bytes:
        self._check_unused(root, number, count, kind)
        below, used = self._used[kind].get(root, (0, set()))
        used.add(number)
        while below in used:
            used.remove(below)
            below += 1
        if number - below > LATEST:
            below = number - LATEST
            used = {late for late in used if late >= below}
        self._used[kind][root] = (below, used)
        return _FIRST_BLOCK.pack(KINDS.index(kind) << 24 | self._places[root], number, 0)

    def _save_used(self, state: State) -> None:
        for kind, roots in self._used.items():
            state.values[kind] = {root: [below, *sorted(used)] for root, (below, used) in roots.items()}

    def _load_used(self, state: State) -> None:
        for kind in KINDS:
            if strangers := set(state.values[kind]) - set(self._places):
                raise RunError(
                    f"The saved state counts masked sums for {', '.join(sorted(strangers))}, not among the parties of "
                    "this run. Resume with the parties that the run was started with."
                )
            numbers = state.values[kind].items()
            self._used[kind] = {root: (int(below), {int(one) for one in used}) for root, (below, *used) in numbers}

    MEMORY = (custom("_used", save=_save_used, load=_load_used),)


class _Room:
    """Zeros, as many as the largest mask asked for has: encrypted, they give the bare keystream."""

    def __init__(self) -> None:
        self._zeros = memoryview(b"")

    def of(self, count: int) -> memoryview:
        size = count * _RING.itemsize
        if size > len(self._zeros):
            self._zeros = memoryview(bytes(size))
        return self._zeros[:size]


def _block_cipher(key: bytes) -> CipherContext:
    """AES of single blocks. Of counter blocks, each encrypted once, it is the keystream of AES-CTR."""
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor()


def _keystream(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _fill(stream: CipherContext, nonce: bytes, zeros: memoryview, room: memoryview) -> None:
    stream.reset_nonce(nonce)
    stream.update_into(zeros, room)


def _shared_secret(own: X25519PrivateKey, peer: str, public_key: bytes) -> bytes:
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(public_key))
    except ValueError:  # a wrong length, or a point of low order, with which the secret would be known to all
        raise ProtocolError(
            f"The public mask key of {peer!r} is not a usable X25519 key of 32 bytes. That party must send the key "
            "that it made for this run."
        ) from None


def _pair_key(name: str, own: X25519PrivateKey, peer: str, public_key: bytes) -> bytes:
    secret = _shared_secret(own, peer, public_key)
    # Both names, each with its length before it: a key serves this pair and no other that happens to spell the same.
    names = b"".join(struct.pack(">H", len(word)) + word for word in sorted((name.encode(), peer.encode())))
    return _derive(secret, b"colonnade pairwise masks" + names)


def _derive(secret: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
