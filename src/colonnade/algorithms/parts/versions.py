"""Copies of a party's own model that it may be asked to go back to: one that is kept, and those not judged yet.

A version is the number of the evaluation that a copy was scored in; 0 are the weights that the training began with.
"""

from collections.abc import Mapping

import torch

from colonnade.errors import ProtocolError
from colonnade.messages import Keep
from colonnade.state import Remembering, State, custom

Tensors = dict[str, torch.Tensor]
NO_COPY = (1 << 63) - 1
"""The version of who has no copy: numbers on the wire are counts, and no evaluation has the largest."""
MOST_UNJUDGED = 2
"""Honest label parties make one evaluation at a time; a verdict may be overtaken by the next request."""


class Versions(Remembering):
    """At most three copies: the kept one and two that await a verdict.

    >>> versions = Versions()
    >>> for number in (1, 2):
    ...     versions.offer(number, {"w": torch.tensor(float(number))})
    >>> versions.judge("label", Keep(1, 2))  # of the evaluations up to the second, the first was the best
    >>> versions.take(1), versions.take(2)
    ({'w': tensor(1.)}, None)
    """

    def __init__(self) -> None:
        self._held: dict[int, Tensors] = {}

    def offer(self, version: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """A copy that was just scored. One that is older than another here was overtaken, and is of no use."""
        if self._held and version <= max(self._held):
            return
        self._held[version] = dict(tensors)
        if len(self._held) > 1 + MOST_UNJUDGED:
            del self._held[sorted(self._held)[1]]  # the first may be the kept one

    def judge(self, sender: str, keep: Keep) -> None:
        """Drop what is judged but for the best."""
        if not 0 <= keep.best <= keep.judged:
            raise ProtocolError(
                f"{sender} found the evaluation {keep.best} the best of {keep.judged}, which is impossible."
            )
        self._held = {
            version: held for version, held in self._held.items() if version == keep.best or version > keep.judged
        }

    @property
    def newest(self) -> int:
        return max(self._held, default=-1)

    def take(self, version: int) -> Tensors | None:
        """The copy of that version, if this party has it: who was away when it was scored has none."""
        return self._held.get(version)

    def _save(self, state: State) -> None:
        state.values["versions"] = sorted(self._held)
        for version, held in self._held.items():
            state.tensors.update({f"{version}.{name}": tensor.clone() for name, tensor in held.items()})

    def _load(self, state: State) -> None:
        versions: list[int] = state.values["versions"]
        self._held = {
            version: {name: tensor.clone() for name, tensor in state.part(str(version)).tensors.items()}
            for version in versions
        }

    MEMORY = (custom("_held", save=_save, load=_load),)
