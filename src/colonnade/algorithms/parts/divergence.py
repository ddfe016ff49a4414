"""Whether a training goes the wrong way: the loss of its epochs against that of one prediction for all rows.

A loss that is not finite is too late a sign: a model whose log loss is 3e32 is no model either. One above the constant
prediction's is none: training begins there, and noise may keep it there. An epoch far above it, and no better than what
was before, is. A training that can be healed is looked at more closely: a quarter of an epoch far above both that and
its own first loss, and rising, or a whole epoch at twice as much, is no descent. With steps much longer than usual, nor
is an epoch that ends where one prediction for all rows is. One that descends all the way and ends far above that
prediction is no model either.
"""

from math import log
from typing import Any

import torch

from colonnade.algorithms.parts.losses import check_task
from colonnade.errors import TrainingError
from colonnade.state import Remembering, State, custom

FAR_ABOVE = 10.0
"""Times the constant prediction's loss."""
ABOVE = 2.0
"""The same for a whole epoch, where the training can be healed."""
WINDOWS = 8
"""In an epoch: so often is looked, but not sooner than after `LEAST_BATCHES`, since small batches are noisy."""
LEAST_BATCHES = 8
IN_THE_END = 1.2
"""The same for the last epoch of a training of `LONG` epochs or more; a shorter one may just not be there yet."""
LONG = 10.0
ABSURD = 1e6
"""The same for a single batch: no outlier is so far away, and nothing need be waited for."""
CUTS = (1 / 2, 1 / 8, 1 / 64, 1 / 1024)
"""How long steps are after the first, second, … time that a training did not descend. Slightly too long a step costs
little; one a hundred times too long is found by the third."""


def worst_scores(task: str, targets: torch.Tensor, deviation: float = 1.0) -> dict[str, float]:
    """What a model that has not diverged scores at worst, in the metrics that are losses.

    >>> worst_scores("regression", torch.tensor([1.0, 3.0]), deviation=2.0)  # 2 √10
    {'rmse': 6.324555320336759}
    """
    most = FAR_ABOVE * constant_loss(task, targets)
    if not most > 0:
        return {}
    return {"rmse": most**0.5 * deviation} if task == "regression" else {"log_loss": most}


class DivergedError(TrainingError):
    """The training does not descend. Whoever has a good model to go back to, and shorter steps left, may heal it."""


class Healing(Remembering):
    """How often the step was cut, and when.

    >>> healing = Healing(heals=True)
    >>> healing.cut(0.25, DivergedError("The loss rises.")), healing.cut(0.5, DivergedError("The loss rises."))
    (0.5, 0.125)
    """

    def __init__(self, heals: bool) -> None:
        self.heals = heals
        self._epochs: list[float] = []

    def cut(self, epoch: float, error: DivergedError, ending: bool = False) -> float:
        """How long steps are from now on; the error, if this cannot be healed, or not any more."""
        if not self.heals or ending:
            raise error
        if len(self._epochs) == len(CUTS):
            raise TrainingError(
                f"{error} It was begun again {len(CUTS)} times, with steps down to 1/{1 / CUTS[-1]:.0f} of their "
                "length, and never descended: the rate is not to blame. Look for columns and, in a regression, a "
                "label that are not standardised, or try another algorithm: `colonnade algorithms` lists them."
            ) from None
        self._epochs.append(epoch)
        return CUTS[len(self._epochs) - 1]

    @property
    def scale(self) -> float:
        """How long steps are, of what the settings say."""
        return CUTS[len(self._epochs) - 1] if self._epochs else 1.0

    def words(self) -> str:
        share = f"1/{1 / self.scale:.0f}"
        return f"the training did not descend: it goes on from a good model, with steps of {share} of their length"

    def counts(self) -> dict[str, Any]:
        """For the run's summary; nothing, if nothing was cut."""
        return {"step_cuts": list(self._epochs)} if self._epochs else {}

    def _save(self, state: State) -> None:
        if self._epochs:
            state.values["epochs"] = list(self._epochs)

    def _load(self, state: State) -> None:
        self._epochs = list(state.values.get("epochs", []))

    MEMORY = (custom("_epochs", save=_save, load=_load),)


def constant_loss(task: str, targets: torch.Tensor, weights: torch.Tensor | None = None) -> float:
    """The mean loss of the best constant: the entropy of the classes, or the variance; weighted, if rows are.

    >>> constant_loss("regression", torch.tensor([1.0, 3.0]))
    1.0
    >>> round(constant_loss("binary", torch.tensor([0, 1])), 4)  # ln 2
    0.6931
    """
    check_task(task)
    if weights is not None:
        return _weighted_constant_loss(task, targets, weights)
    if task == "regression":
        return float(targets.double().var(correction=0))
    shares = torch.bincount(targets.long()).double() / len(targets)
    shares = shares[shares > 0]
    return float(-(shares * shares.log()).sum())


def _weighted_constant_loss(task: str, targets: torch.Tensor, weights: torch.Tensor) -> float:
    mean = weights.mean()
    if task == "regression":
        values = targets.double()
        centre = (weights * values).mean() / mean
        return float((weights * (values - centre).square()).mean())
    shares = torch.bincount(targets.long(), weights) / len(targets)
    shares = shares[shares > 0]
    return float(-(shares * (shares / mean).log()).sum())


def _mean_weight(weights: torch.Tensor | None) -> float:
    return 1.0 if weights is None else float(weights.mean())


class DivergenceWatch(Remembering):
    """Adds up the losses of batches, half an epoch at a time, and refuses to go on with a training that diverges."""

    def __init__(
        self,
        task: str,
        targets: torch.Tensor,
        looks: bool = True,  # or lets everything pass
        constant: float | None = None,  # the constant prediction's loss; None: that of the task's own loss
        weights: torch.Tensor | None = None,
        closely: bool = False,  # the training can be healed
    ) -> None:
        self._looks = looks
        self._closely = closely
        self.is_bold = False  # steps are much longer than usual: to stay where one prediction for all is, is no descent
        self._first: float | None = None  # the loss of the first batch
        self._window = 0.0  # the epoch at which the one being added up began
        self._window_sum = 0.0
        self._window_count = 0
        self._windows: list[float] = []  # mean losses of those of the last epoch
        if constant is None:
            # Where one class has nearly all the weight, a constant has hardly any loss, and training begins far above.
            constant = max(constant_loss(task, targets), constant_loss(task, targets, weights))
        self._bound = FAR_ABOVE * constant
        # A classifier begins where all classes are alike, and a short training of rare ones has not left that yet.
        classes = 1 if task == "regression" else max(2, int(targets.max()) + 1) if len(targets) else 2
        self._knows_nothing = max(constant, log(classes) * _mean_weight(weights))
        self._half = 0  # number of the one that is being added up
        self._sum = 0.0
        self._count = 0
        self._halves: list[float] = []  # mean losses of the last three halves

    def add(self, loss: float, epoch: float) -> None:
        """The mean loss of a batch, as of that many epochs."""
        if not self._looks:
            return
        if self._closely:
            self._look_closely(loss, epoch)
        if int(2 * epoch) > self._half and self._count:
            self._close(epoch)
        self._half = int(2 * epoch)
        self._sum += loss
        self._count += 1

    def _close(self, epoch: float) -> None:
        self._halves = [*self._halves, self._sum / self._count][-3:]
        self._sum, self._count = 0.0, 0
        if len(self._halves) == 3:
            before, earlier, later = self._halves
            if min(earlier, later) > self._bound > 0 and later >= before and earlier >= before:
                raise DivergedError(self._words(later, epoch))

    def _look_closely(self, loss: float, epoch: float) -> None:
        if self._first is None:
            self._first, self._window = loss, epoch
        known = max(self._bound / FAR_ABOVE, self._first)
        if loss > ABSURD * known > 0:
            raise DivergedError(self._words(loss, epoch))
        self._window_sum += loss
        self._window_count += 1
        if epoch - self._window < 1 / WINDOWS or self._window_count < LEAST_BATCHES:
            return
        self._windows = [*self._windows, self._window_sum / self._window_count][-WINDOWS:]
        self._window, self._window_sum, self._window_count = epoch, 0.0, 0
        half = WINDOWS // 2
        far = len(self._windows) > 1 and min(self._windows[-2:]) > FAR_ABOVE * known > 0
        above = len(self._windows) == WINDOWS and min(self._windows) > ABOVE * known > 0
        if far and self._windows[-1] >= self._windows[-2]:
            raise DivergedError(self._words(self._windows[-1], epoch))
        early, late = sum(self._windows[:half]), sum(self._windows[half:])
        if above and late >= early:
            raise DivergedError(self._words(self._windows[-1], epoch))
        stays = len(self._windows) == WINDOWS and early + late > 0.97 * WINDOWS * self._bound / FAR_ABOVE > 0
        if self.is_bold and stays and late > 0.9 * early:  # units that one long step has switched off learn nothing
            raise DivergedError(self._words(late / half, epoch))

    def judge_the_end(self, loss: float | None, epoch: float) -> None:
        """The mean loss of the last epoch: a training that descended, but ends far above one prediction for all rows,
        has failed. A short one is not judged."""
        most = IN_THE_END * self._knows_nothing
        if self._looks and loss is not None and epoch >= LONG and loss > most > 0:
            raise DivergedError(
                f"The training has learnt nothing: after {epoch:.3g} epochs its loss is {loss:.3g}, while the same "
                f"prediction for every row would have {self._bound / FAR_ABOVE:.3g}. Scale columns and, in a "
                "regression, the label (data.standardise does); leave training.learning_rate out; or train longer."
            )

    def restart(self) -> None:
        """The training goes on from a good model: what was added up is of another one."""
        self._first = None
        self._window_sum, self._window_count, self._windows = 0.0, 0, []
        self._sum, self._count, self._halves = 0.0, 0, []

    def _words(self, loss: float, epoch: float) -> str:
        return (
            f"The training has diverged: after {epoch:.2g} epochs its loss is {loss:.3g} and does not fall, while the "
            f"same prediction for every row would have {self._bound / FAR_ABOVE:.3g}. Leave "
            "training.learning_rate out, or lower it; scale columns and, in a regression, the label."
        )

    def _save(self, state: State) -> None:
        state.values.update(half=self._half, sum=self._sum, count=self._count, halves=list(self._halves))
        if self._closely:
            added_up = [self._first, self._window, self._window_sum, self._window_count]
            state.values.update(added_up=added_up, windows=list(self._windows))

    def _load(self, state: State) -> None:
        """Of a run of an earlier version nothing is known: it is watched from here on."""
        self._half = state.values.get("half", 0)
        self._sum, self._count = state.values.get("sum", 0.0), state.values.get("count", 0)
        self._halves = list(state.values.get("halves", []))
        if self._closely:
            added_up = state.values.get("added_up", [None, 0.0, 0.0, 0])
            self._first, self._window, self._window_sum, self._window_count = added_up
            self._windows = list(state.values.get("windows", []))

    DERIVED = ("is_bold",)  # from the settings, and from how often the step was cut
    MEMORY = (
        custom(
            *("_half", "_sum", "_count", "_halves", "_first", "_window", "_window_sum", "_window_count", "_windows"),
            save=_save,
            load=_load,
        ),
    )
