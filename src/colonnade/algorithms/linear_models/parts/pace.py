"""Whether a party's first-order steps will be near the optimum in the planned time: judged by its own gradient.

Once per epoch a party forms the whole gradient of its block from the residuals that it knows, without a message. From
how its square fell since the last look follows how far it will have fallen at the end. Where that is too little,
curvature pays: a metric of the rows' own (models/known_curvature.py), or pairs of steps and gradients
(curved_block.py). Where it is enough, first-order steps are the best there are: they stay within the space that
everybody's rows span.

It goes on looking then: where the gradient grows instead, steps in such a metric are made half as long, for good.
"""

from colonnade.state import Remembering, value

NEAR = 1e-8
"""What is left of the gradient's square where the objective is near its optimum: 1e-4 of it, in directions with a
thousandth of the most curvature or more, are about so much."""

_FIRST_LOOK = 0.1
"""Of the planned epochs: before, it is the steep directions alone that a gradient tells of."""

_RISEN = 4.0
"""How many times the least square so far is a rise; a mean of residuals of different moments is not exact."""


class Pace(Remembering):
    """Looks every `every` steps at the gradient's square in the variables of the steps.

    >>> pace = Pace(planned_steps=100, every=10)
    >>> pace.look(1.0, 1), pace.look(0.1, 11), pace.slow  # a tenth every ten steps: 1e-10 at the end
    (False, False, False)
    >>> pace.look(0.09, 21), pace.slow
    (False, True)
    >>> pace.look(0.08, 31), pace.look(0.5, 41), pace.caution
    (False, True, 2.0)
    """

    MEMORY = (value("slow", "caution", "_first", "_last", "_least", "_looked_at", "fall_backs"),)

    def __init__(self, planned_steps: float, every: int) -> None:
        self._planned, self._every = planned_steps, every
        self.slow = False
        self.caution = 1.0  # by what steps in a metric of the rows' curvature are shorter
        self._first = 0.0  # the square at the first look
        self._last = 0.0  # at the last one
        self._least = 0.0  # and the least since steps were found to be slow, or since the metric changed
        self._looked_at = 0  # steps at the last look; 0: never
        self.fall_backs = 0  # how often the gradient grew

    def is_due(self, steps: int) -> bool:
        """Just after each multiple: a snapshot that is taken then is known one step later."""
        return steps > self._looked_at and (steps - 1) % self._every == 0

    def look(self, square: float, steps: int) -> bool:
        """True if curvature is used and the gradient has grown since: more caution from now on."""
        risen = False
        if square > 0 and self.slow:
            risen = 0 < _RISEN * self._least < square
            self._least = min(square, self._least or square)
            self.caution *= 2.0 if risen else 1.0
            self.fall_backs += risen
        elif square > 0:
            if self._last > 0 and steps > _FIRST_LOOK * self._planned:
                looks = (self._planned - steps) / (steps - self._looked_at)
                fallen = min(square / self._last, 1.0)
                self.slow = bool(square / self._first * fallen ** max(looks, 0.0) > NEAR)
            self._first = self._first or square
        self._last, self._looked_at = square, steps
        return risen

    def begin_anew(self) -> None:
        """The variables are others, and the square with them."""
        self._least = 0.0
