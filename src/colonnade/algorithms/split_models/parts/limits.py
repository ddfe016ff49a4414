"""What a message with rows and embeddings may hold, whoever sends it: each row once, and no number beyond a bound.

A row that is named in every place of a batch makes the batch's mean its own; embeddings of 2^40 and more pack the
labels of a whole batch into one loss. Neither is anything that an honest party sends. (What a party can still read out
of losses within these limits is measured: docs/attacks.md.)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.budget import check_each_once
from colonnade.errors import ProtocolError

_LONGEST_NOISE = 9.0
"""Deviations: what privacy/secret_gaussian.py draws is at most 8.57 long."""
_EMBEDDINGS = ("embedding", "perturbed", "plus", "minus")


class EmbeddingLimits:
    """The limits of one federation, at its label party. A bound of 0 is none."""

    def __init__(self, seat: LabelSeat) -> None:
        bound = seat.training.embedding_bound
        self._agreed = bound
        # Noise that was agreed on is no party's doing.
        self._bound = bound + _LONGEST_NOISE * seat.privacy.noise if bound > 0 else np.inf

    def check(self, sender: str, message: Any) -> None:
        """ProtocolError if a row is there twice, or a number is too large; which number is the party's own matter."""
        check_each_once(message.rows, sender)
        for name in _EMBEDDINGS:
            values: NDArray[np.float32] | None = getattr(message, name, None)
            if values is not None and values.size and not max(values.max(), -values.min()) <= self._bound:
                raise ProtocolError(
                    f"{sender} sent an embedding with a number beyond ±{self._agreed:g} (training.embedding_bound). "
                    "Its training has diverged, or it tries to read labels out of the answers. Lower "
                    "training.learning_rate, scale its columns, or agree on a larger bound."
                )
