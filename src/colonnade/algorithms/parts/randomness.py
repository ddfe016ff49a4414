"""Generators that depend on the federation's seed and on words, never on global state or on the order of creation.

Of a seed that everybody shares, a generator of torch keeps 32 bits, which is enough. A party's own secret is longer and
must not become guessable by that: it fills the generator's whole state.
"""

import hashlib

import numpy as np
import torch

_SHARED_SEED_BITS = 64
_TWISTER_WORDS, _TWISTER_AT = 624, 24  # of the Mersenne Twister, in the bytes that torch gives as its state


def seed_for(seed: int, *words: str) -> int:
    """A seed of its own for each purpose, the same on every machine."""
    digest = hashlib.sha256("\0".join([str(seed), *words]).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(seed: int, *words: str) -> torch.Generator:
    generator = torch.Generator().manual_seed(seed_for(seed, *words))
    if seed.bit_length() > _SHARED_SEED_BITS:
        drawn = hashlib.shake_256("\0".join([str(seed), *words]).encode()).digest(4 * _TWISTER_WORDS)
        state = generator.get_state()
        twister = state.numpy()[_TWISTER_AT : _TWISTER_AT + 8 * _TWISTER_WORDS].view("<u8")  # each in 64 bits
        twister[:] = np.frombuffer(drawn, "<u4")
        generator.set_state(state)
    return generator
