"""What the label party takes of an upload, and from whom a feature party takes anything."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError


def not_from(sender: str) -> ProtocolError:
    """The error for a message to a feature party of anybody but the label party."""
    return ProtocolError(f"{sender} spoke to a feature party, which only the label party may.")


def entering(enters_table: Callable[[Any], NDArray[np.float32]], sender: str, upload: Any) -> NDArray[np.float32]:
    """What of an upload enters the table; if it holds more or less than was agreed, its sender is named."""
    try:
        return enters_table(upload)
    except ProtocolError as error:
        raise ProtocolError(f"{sender} uploaded what was not agreed. {error}") from None


def embeddings_of(upload: Any) -> list[NDArray[np.float32]]:
    """What an upload holds besides its `embedding`: others near it, or a pair."""
    held = (getattr(upload, name, None) for name in ("perturbed", "plus", "minus"))
    return [one for one in held if one is not None]
