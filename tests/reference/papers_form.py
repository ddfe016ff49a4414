"""Settings of a linear algorithm in the papers' form: a sum changes the block of the party that asked for it.

By default one sum teaches everybody. What is true of either form alone is tested with that form.
"""

from typing import Any

from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear


def papers_form(name: str, **own: Any) -> Any:
    kind = ALGORITHMS[name].settings
    return kind(**({"updates": "one"} if issubclass(kind, AsynchronousLinear) else {}) | own)
