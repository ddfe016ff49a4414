"""Gaussian noise that hides: drawn from a secret that cannot be searched, added so that no bit of the sum tells more.

Two things that `value + deviation * randn()` gets wrong. A torch generator keeps 32 bits of its seed, so all the noise
of a run can be found by trying; here it comes from a keystream (AES-256-CTR) under a key derived from the whole secret.
And a float's last digits depend on both numbers that were added: of two candidates for the value often only one can
have given the sum, whatever the noise (I. Mironov, "On Significance of the Least Significant Bits for Differential
Privacy", 2012). Here value and noise are each rounded to one grid, far finer than the noise, and added there exactly.
The result is a function of (rounded value + Gaussian noise); what rounding adds to the sensitivity is made up for by as
much more noise, so that an event's sensitivity and noise hold as declared.

Normal numbers are Box–Muller's in double precision, at most 8.57 deviations long: 10⁻¹⁷ of the mass is missing.
"""

import hashlib
from math import floor, inf, log2, pi, sqrt

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from torch import Tensor

_GRID_BITS = 30
"""A step of the grid is about 2⁻³⁰ deviations: rounding costs next to nothing, and doubles hold every sum exactly."""
_CLIP_ERROR = 2.0**-20
"""How much longer than its bound a clipped row may be, at most: clips are computed in single precision."""
_BLOCK_BYTES = 16  # of the keystream, and of two normal numbers
_LOW_BITS = np.int64(2**53 - 1)


class SecretGaussian:
    """An endless sequence of normal numbers that follows from a secret and some words, with a place in it.

    >>> noise = SecretGaussian(7, "bank", "noise")
    >>> noise.added_to(torch.zeros(2), deviation=1.0, sensitivity=1.0, coordinates=2).dtype
    torch.float32
    """

    def __init__(self, secret: int, *words: str) -> None:
        self._key = hashlib.sha256("\0".join(["colonnade noise", str(secret), *words]).encode()).digest()
        self._blocks = 0  # of the keystream used so far
        self._stream = self._from_here()

    def _from_here(self) -> CipherContext:
        first = self._blocks.to_bytes(_BLOCK_BYTES, "big")
        return Cipher(algorithms.AES(self._key), modes.CTR(first)).encryptor()

    def normals(self, count: int) -> Tensor:
        """The next numbers. They come in pairs: of an odd count the last one's sibling is dropped."""
        pairs = (count + 1) // 2
        self._blocks += pairs
        if pairs == 0:
            return torch.zeros(0, dtype=torch.float64)
        words = np.frombuffer(self._stream.update(bytes(pairs * _BLOCK_BYTES)), "<i8").reshape(2, pairs)
        first, second = torch.from_numpy(words & _LOW_BITS).double()
        radius = first.add_(1).mul_(2.0**-53).log_().mul_(-2).sqrt_()  # of numbers above 0 and at most 1
        angle = second.mul_(2 * pi * 2.0**-53)
        return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]

    def added_to(self, values: Tensor, deviation: float, sensitivity: float, coordinates: int) -> Tensor:
        """Values with noise on each of them: so many coordinates together may move by the sensitivity.

        A value that is no number, or infinite, counts as 0: what it was made of is nobody's business either.
        """
        step = grid_step(deviation)
        rounding = step * sqrt(coordinates) / sensitivity if 0 < sensitivity < inf else 0.0
        widened = deviation * (1 + rounding + _CLIP_ERROR)
        noise = self.normals(values.numel()).mul_(widened / step).round_().view(values.shape)
        whole = values.detach().to(torch.float64, copy=True).div_(step).round_().nan_to_num_(0.0, 0.0, 0.0)
        return whole.add_(noise).mul_(step).to(values.dtype)

    # --- its place, as a generator of torch would give it ---

    def get_state(self) -> Tensor:
        return torch.tensor([self._blocks], dtype=torch.int64)

    def set_state(self, state: Tensor) -> None:
        self._blocks = int(state.item())
        self._stream = self._from_here()


def grid_step(deviation: float) -> float:
    """A power of two, so that scaling by it is exact."""
    return float(2.0 ** (floor(log2(deviation)) - _GRID_BITS))
