"""Secret scalars of Curve25519 and their inverses, as X25519 takes them.

X25519 clamps: it takes multiples of 8 from 2^254 to 2^255. To take a scalar off again one multiplies by its inverse
modulo the order of the prime subgroup, and that inverse must be of the same kind. About every second scalar has such an
inverse; `blinding_pair` draws until it meets one.
"""

import hashlib

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the subgroup of prime order, ℓ."""


def clamped(entropy: bytes) -> bytes:
    """32 bytes as the scalar that X25519 makes of them."""
    scalar = bytearray(entropy)
    scalar[0] &= 248
    scalar[31] = (scalar[31] & 127) | 64
    return bytes(scalar)


def derived(secret: bytes, *words: str) -> bytes:
    """32 bytes that only those can know who know the secret; other words, other bytes."""
    whole = b"".join(len(part).to_bytes(4, "big") + part for part in (secret, *(word.encode() for word in words)))
    return hashlib.sha256(b"colonnade alignment 1" + whole).digest()


def blinding_pair(secret: bytes) -> tuple[bytes, bytes]:
    """A scalar a, and b with b·a·k·P = k·P for every clamped k and every P of the curve.

    a and b are multiples of 8, so a·b is one too and kills what P has outside the prime subgroup, as k does by itself;
    inside it a·b = 1.
    """
    attempt = 0
    while True:
        a = clamped(derived(secret, "blinding", str(attempt)))
        inverse = pow(int.from_bytes(a, "little"), -1, ORDER)
        for multiple in range(8):
            b = inverse + multiple * ORDER
            if b % 8 == 0 and 2**254 <= b < 2**255:
                return a, b.to_bytes(32, "little")
        attempt += 1
