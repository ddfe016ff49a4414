"""Products of rows and weights whose bits follow from the row and the weights alone: not from the rows beside it, its
place among them, the number of threads, or the kernels of a machine.

Rows and weights are first rounded to whole multiples of a power of two, of so few bits that every sum of their
products is a whole number up to 2^53. Those float64 adds without rounding, in any order. The error is about that of a
product in float32; the time is about three times that of one.
"""

import torch
from torch import Tensor

_MOST_TERMS = 512
"""Of one exact sum: both factors have 22 bits then. Longer sums are added up in one order."""
_ROWS_AT_ONCE = 256
"""So that what is rounded stays in a processor's cache."""


def exact_product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """rows · weight + bias: [rows, in], [in, out] → [rows, out], in float32.

    >>> rows, weight = torch.randn(9, 10), torch.randn(10, 3)
    >>> torch.equal(exact_product(rows, weight, None)[4:5], exact_product(rows[4:5], weight, None))
    True
    """
    terms = [slice(start, start + _MOST_TERMS) for start in range(0, len(weight), _MOST_TERMS)]
    blocks = [(some, *_rounded_weights(weight[some])) for some in terms]
    outputs = torch.empty(len(rows), weight.shape[1])
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[start : start + _ROWS_AT_ONCE]
        total = torch.zeros(len(part), weight.shape[1], dtype=torch.float64)
        if bias is not None:
            total += bias
        for some, bits, rounded in blocks:
            unit = _unit(part[:, some], 1, bits)
            total += torch.mm(_whole(part[:, some], unit), rounded).mul_(unit)
        outputs[start : start + len(part)] = total
    return outputs


def _rounded_weights(weight: Tensor) -> tuple[int, Tensor]:
    """How many bits each factor may have, and the weights in as many."""
    bits = (53 - (len(weight) - 1).bit_length()) // 2
    unit = _unit(weight, 0, bits)
    return bits, _whole(weight, unit).mul_(unit)


def _unit(values: Tensor, dimension: int, bits: int) -> Tensor:
    """A power of two for each row or column, of which its values are at most 2^bits times as large."""
    largest = values.abs().amax(dimension, keepdim=True)  # ten times as fast as a norm
    exponent = torch.frexp(largest).exponent
    return torch.ldexp(torch.ones(exponent.shape, dtype=torch.float64), exponent - bits)


def _whole(values: Tensor, unit: Tensor) -> Tensor:
    return values.to(torch.float64).mul_(unit.reciprocal()).round_()
