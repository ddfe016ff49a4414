"""How long one party waits for the parties below it, and who of them has been silent for longer.

The root of a sum waits for `timeout_seconds`; who passes a request on waits for less, so that whoever is next to a
party that does not answer is the first to go on without it.
"""

from math import inf

from colonnade.algorithms.linear_models.parts.open_sums import OpenSum, OpenSums
from colonnade.algorithms.linear_models.parts.trees import Tree
from colonnade.party import Effect, SetTimer
from colonnade.state import Remembering, value

TIMER = "request"
"""The name of the timer after which sums may be overdue."""
_MOMENT_SECONDS = 1e-6  # a timer may run out so much too soon, by rounding


class Patience(Remembering):
    """When each open sum is due, and one timer for all of them.

    A schedule with a time limit sets `timeout_seconds` and keeps `now`.
    """

    MEMORY = (value("silent", restored=set), value("_looks_at", "_leniency"))
    DERIVED = ("now", "_shares")

    def __init__(self, name: str) -> None:
        self._name = name
        self.timeout_seconds = 0.0  # 0: waits for ever
        self.now = 0.0
        self.silent: set[str] = set()  # did not answer in time, and have not been heard of since
        self._shares: dict[str, float] = {}  # root → which part of the time limit this party waits for its children
        # Doubled whenever waiting was in vain: a limit shorter than answers take would never let one through.
        self._leniency = 1.0
        self._looks_at = inf  # when the timer runs out

    def hear(self, peer: str) -> None:
        """A peer has said something: it is there, and its answers are waited for again."""
        self.silent.discard(peer)

    def wait(self, root: str, trees: tuple[Tree, ...], open_: OpenSum) -> list[Effect]:
        """Note how long a sum may wait, and set the timer if it runs out too late for that."""
        share = self._shares.get(root)
        if share is None:
            heights = [(_height(tree, self._name), _height(tree, root)) for tree in trees]
            share = self._shares[root] = max(own / whole for own, whole in heights)
        open_.due = self.now + self.timeout_seconds * self._leniency * share
        return self._set_timer(open_.due)

    def begin_anew(self) -> None:
        """Nobody is waited for any more, and no timer is set."""
        self.silent.clear()
        self._looks_at = inf

    def is_over(self, open_: OpenSum) -> bool:
        return open_.due <= self.now + _MOMENT_SECONDS

    def look_again(self, open_sums: OpenSums, in_vain: bool) -> list[Effect]:
        """The timer has run out and overdue sums have been seen to; `in_vain`: some of them could not go on."""
        self._leniency *= 2 if in_vain else 1
        self._looks_at = inf
        return self._set_timer(open_sums.next_due())

    def _set_timer(self, due: float) -> list[Effect]:
        # One timer for all sums, which are many: it is set again when it has run out, not with every sum.
        if due >= self._looks_at:
            return []
        self._looks_at = due
        return [SetTimer(TIMER, max(0.0, due - self.now))]


def _height(tree: Tree, name: str) -> int:
    """How many messages follow one another from the lowest party below this one."""
    return max((1 + _height(tree, child) for child in tree.children(name)), default=0)
