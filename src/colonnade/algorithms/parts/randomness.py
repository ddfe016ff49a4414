"""Generators that depend on the federation's seed and on words, never on global state or on the order of creation."""

import hashlib

import torch


def seed_for(seed: int, *words: str) -> int:
    """A seed of its own for each purpose, the same on every machine."""
    digest = hashlib.sha256("\0".join([str(seed), *words]).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(seed: int, *words: str) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(seed, *words))
