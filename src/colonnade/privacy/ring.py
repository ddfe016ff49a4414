"""Fixed-point numbers in the ring Z_2^64, where masks hide perfectly and sums are exact in any order.

A value v becomes the integer nearest to v·2^f, in two's complement modulo 2^64. Ring elements are added as NumPy's
uint64, which wraps around; what wrapped on the way unwraps again, as long as the final sum fits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import RunError, SettingsError

FRACTION_BITS = range(8, 53)
# Up to here an integer next to the limit 2^63 / q is at least 2^53, where every float64 is an integer: rounding
# cannot carry a value over the limit. (Far fewer parties are ever summed.)
MOST_PARTIES = 1024


@dataclass(frozen=True)
class FixedPoint:
    """How values are written in the ring, so that a sum over `parties` values of any sign fits.

    The sum of q integers stays in [−2^63, 2^63) whatever their signs if each has |v·2^f| < 2^63 / q, and no larger
    bound will do; hence |v| < 2^(63 − f) / q. Rounding errs by at most 2^−(f+1) for a value, q·2^−(f+1) for the
    sum. A float64 carries 53 bits: a sum of magnitude up to 2^(53 − f) is decoded exactly, a larger one is rounded to
    53 bits, as every float64 is.

    >>> point = FixedPoint(fraction_bits=32, parties=3)
    >>> total = point.encode(np.array([1.5])) + point.encode(np.array([-4.0])) + point.encode(np.array([0.25]))
    >>> point.decode(total)
    array([-2.25])
    """

    fraction_bits: int  # f
    parties: int  # q: how many values are added

    def __post_init__(self) -> None:
        if self.fraction_bits not in FRACTION_BITS:
            raise SettingsError(
                f"fraction_bits is {self.fraction_bits}; it must lie between {FRACTION_BITS[0]} and "
                f"{FRACTION_BITS[-1]}: fewer round too coarsely, more exceed what a float64 holds."
            )
        if not 1 <= self.parties <= MOST_PARTIES:
            raise SettingsError(f"Masked sums over {self.parties} parties; there must be 1 to {MOST_PARTIES}.")

    @property
    def limit(self) -> float:
        """Every value must be smaller than this in magnitude.

        As a float64 it may lie above the true quotient, but then the next smaller float64 lies below it.
        """
        return 2.0 ** (63 - self.fraction_bits) / self.parties

    @property
    def resolution(self) -> float:
        """The distance between neighbouring numbers."""
        return 2.0**-self.fraction_bits

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.uint64]:
        """The ring elements nearest to the values; ties go to the even integer."""
        values = np.asarray(values, np.float64)
        limit = self.limit
        # written so that NaN is refused too: it is neither below nor above anything
        if values.size and not (values.max() < limit and values.min() > -limit):
            raise RunError(
                f"A number to be added under masks is not finite or not below {limit:.6g} in magnitude, the most that "
                f"a sum over {self.parties} parties with {self.fraction_bits} fraction bits can hold. This party's "
                "products have grown too large: scale its columns, take a smaller step, or lower fraction_bits."
            )
        scaled = values * 2.0**self.fraction_bits  # exact: only the exponent changes
        return np.rint(scaled, out=scaled).astype(np.int64).view(np.uint64)

    def decode(self, elements: NDArray[np.uint64]) -> NDArray[np.float64]:
        """The value of a ring element, or of a sum of them after all masks are gone."""
        values = elements.astype(np.uint64, copy=False).view(np.int64).astype(np.float64)
        values *= self.resolution
        return values
