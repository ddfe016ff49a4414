"""The settings that all linear federations share: who has the labels, how sums are made, how long a step is."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from colonnade.algorithms.training import AUTO, Auto, Defaults
from colonnade.errors import SettingsError, unknown_name
from colonnade.models.linear_loss import LossName, check_scale
from colonnade.privacy.ring import FixedPoint

IN_FLIGHT, MOST_IN_FLIGHT = 2, 8
"""Sums under way where one teaches everybody, unless told: at first, and at most. With more, steps are so short for the
age of what they are made on that hardly anything is gained for the bytes."""


REMEMBERED = 16
"""Points over which a joint search looks, the new one among them (joint_search.py)."""

SEARCH_EVERY_EPOCHS, LEAST_EPOCHS, MOST_SEARCHED = 0.15, 10.0, 1 << 22
"""Of a joint search by default: how often, in trainings of how many epochs or more (one costs an epoch, and several are
needed), and of how many numbers a party's part of it is at most."""

NOT_CONVEX = ("sigmoid", "robust")


def check_choices(declared: type[Any], settings: Any) -> None:
    """Refuse a word that is none of a setting's choices: those of a file are checked when it is read, Python's here."""
    for name, kind in get_type_hints(declared).items():
        if get_origin(kind) is Literal and getattr(settings, name) not in get_args(kind):
            raise unknown_name(f"value of algorithm.{name}", str(getattr(settings, name)), get_args(kind))


@dataclass(frozen=True)
class Linear:
    """The settings of every linear algorithm.

    An algorithm's settings extend these, so that a name is the same in `[algorithm]`, on the command line and in
    Python, whichever algorithm it belongs to. λ is `training.l2`.
    """

    labels: Literal["one", "everywhere"] = "one"
    """who has them: `one`, the label party alone; or `everywhere`. With `one`, what a feature party is sent tells it
    the labels of its rows"""
    sums: Literal["plain", "two-tree", "pairwise"] = "plain"
    """how products are hidden while they are added up: `plain` (not), `two-tree` or `pairwise`"""
    arity: int | Auto = AUTO
    """(parties) children of a party in the tree along which sums run; `auto`: 2, with `updates = "everybody"` a star;
    not used by `two-tree`"""
    fraction_bits: int = 32
    """(bits) of masked products in fixed point, 8 to 52"""
    allow_two_parties: bool = False
    """allow `pairwise` sums of two parties, which hide nothing"""
    intercept: bool = True
    """a constant without penalty, the label party's or the first feature party's"""
    step: Literal["auto", "fixed", "search"] = "auto"
    """step size: `auto` (from numbers that parties tell), `search` (from the curvature met) or `fixed`
    (`training.learning_rate`)"""
    precondition: Literal["auto", "none", "columns", "block", "curvature"] = "auto"
    """how a party scales its own steps, from its own columns: as their number suggests (`auto`), `none`, by `columns`,
    by its whole `block` (up to 2,048 columns), or by that and the `curvature` that rows are known to have (SVRG and
    SAGA)"""
    loss: LossName = "auto"
    """what is minimised over the rows: logistic, softmax or squared, as the task is (`auto`); for two classes
    `smoothed-hinge` or `sigmoid`; in a regression `huber` or `robust`"""
    loss_scale: float = 1.0
    """(of the label) of `huber` and `robust`: errors beyond it count less. In units of the label as it is trained on,
    its standard deviations if `data.standardise` is true"""
    tolerance: float = 0.0
    """(norm) ends the training once the whole gradient's norm is below it; 0: after the planned epochs"""
    max_product_age_epochs: float = 2.0
    """(epochs) how old a lost party's last known products may be; 0: none are kept. With `plain` only"""

    keeps_residuals: ClassVar[bool] = True  # of every row, from which the curvature of all follows

    def __post_init__(self) -> None:
        check_choices(Linear, self)
        if self.precondition == "curvature" and not self.keeps_residuals:
            raise SettingsError(
                'algorithm.precondition = "curvature" needs the residuals of all rows, which the plain SGD algorithms '
                'do not keep. Use "block", or an SVRG or SAGA algorithm.'
            )
        check_scale(self.loss, self.loss_scale)
        if self.arity != AUTO and self.arity < 1:
            raise SettingsError(f"algorithm.arity is {self.arity}; a party of the tree has at least 1 child.")
        for name in ("tolerance", "max_product_age_epochs"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise SettingsError(f"algorithm.{name} is {value}; it must be finite and not negative.")
        FixedPoint(self.fraction_bits, parties=2)  # refuses what cannot be represented

    @property
    def is_derived(self) -> bool:
        """Whether steps are left open, of a convex loss: whoever chooses them has an algorithm of a paper in mind."""
        return self.step == "auto" and self.precondition == "auto" and self.loss not in NOT_CONVEX

    def decided(self, l1: float) -> "Linear":
        """The same with nothing left open that all parties must agree on."""
        return self

    def check_l1(self, name: str) -> None:
        """Refuse an L1 penalty where a step could not be followed by its proximal step."""
        if self.precondition in ("block", "curvature"):
            raise SettingsError(
                f"training.l1 needs steps that go one column at a time, and algorithm.precondition = "
                f'"{self.precondition}" of {name} mixes columns. Use "columns", or leave it out.'
            )

    def children_of_a_party(self, parties: int) -> int:
        """How many it may have in the tree along which sums of so many parties run."""
        return 2 if self.arity == AUTO else self.arity

    def searches_every(self, rows: int, outputs: int, l1: float, epochs: float) -> float:
        """Epochs of mini-batches between two joint searches; 0: there are none."""
        return 0.0

    @property
    def masked(self) -> bool:
        return self.sums != "plain"


@dataclass(frozen=True)
class BlockLinear(Linear):
    """Every block steps for itself, on mini-batches; now and then all look for the best weights together."""

    search_every_epochs: float | Auto = AUTO
    """(epochs) mini-batches between two [joint searches](linear-federations.md#joint-searches); 0: none, as in the
    papers. `auto`: 0.15 where `step` and `precondition` are `auto`, too, in trainings of 10 epochs or more;
    asynchronous algorithms let more pass where a search takes longer than an epoch of them. Not in `fcg`"""

    def __post_init__(self) -> None:
        super().__post_init__()
        every = self.search_every_epochs
        if every != AUTO and not (isfinite(every) and every >= 0):
            raise SettingsError(f"algorithm.search_every_epochs is {every}; it must be finite and not negative.")
        if every not in (AUTO, 0) and self.loss in NOT_CONVEX:
            raise SettingsError(
                f"algorithm.search_every_epochs is {every}, and algorithm.loss = {self.loss!r} is not convex: a joint "
                "search needs a loss that is. Leave search_every_epochs out, or choose another loss."
            )

    def check_l1(self, name: str) -> None:
        super().check_l1(name)
        if self.search_every_epochs not in (AUTO, 0):
            raise SettingsError(
                f"algorithm.search_every_epochs is {self.search_every_epochs}, and a joint search of {name} needs a "
                "smooth objective, which one with training.l1 is not. Leave one of them out."
            )

    def searches_every(self, rows: int, outputs: int, l1: float, epochs: float) -> float:
        """By default where steps are derived, too."""
        if epochs < 2 or l1:
            return 0.0
        if self.search_every_epochs != AUTO:
            return self.search_every_epochs
        pays = epochs >= LEAST_EPOCHS and rows * outputs <= MOST_SEARCHED
        return SEARCH_EVERY_EPOCHS if self.is_derived and pays else 0.0


@dataclass(frozen=True)
class AsynchronousLinear(BlockLinear):
    """Nobody waits for the slowest: every party asks for the sums it needs, or all learn from the label party's."""

    updates: Literal["everybody", "one"] | Auto = AUTO
    """who learns from a sum: `everybody` ([explained](linear-federations.md#one-sum-teaches-everybody)); or `one`, the
    party that asked for it, as in the papers. `auto`: `one` where `step`, `precondition` or an L1 penalty are given, or
    the loss is not convex, and no `in_flight`; else `everybody`"""
    in_flight: int | Auto = AUTO
    """(sums) with `everybody`, the sums under way at a time; `auto`: as many as keep the parties at work, 1 to 8"""
    batches_per_request: int = 1
    """(mini-batches) asked for together; the others' products are that much older"""
    request_timeout_seconds: float = 30.0
    """(seconds) how long a request waits for a party that does not answer; 0: for ever"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(AsynchronousLinear, self)
        if self.batches_per_request < 1:
            raise SettingsError(f"algorithm.batches_per_request is {self.batches_per_request}; at least 1.")
        if self.in_flight != AUTO and self.in_flight < 1:
            raise SettingsError(f"algorithm.in_flight is {self.in_flight}; at least 1 sum must be under way.")
        if self.in_flight not in (AUTO, 1) and self.updates == "one":
            raise SettingsError(
                f'algorithm.in_flight is {self.in_flight}, and with algorithm.updates = "one" a party has one request '
                'under way at a time. Set updates = "everybody", or leave one of them out.'
            )
        if not (isfinite(self.request_timeout_seconds) and self.request_timeout_seconds >= 0):
            raise SettingsError(
                f"algorithm.request_timeout_seconds is {self.request_timeout_seconds}; it must be finite and not "
                "negative, and 0 waits for ever."
            )

    def decided(self, l1: float) -> "AsynchronousLinear":
        """Where steps are derived one sum teaches everybody: joint searches make up for lessons that are left out."""
        if self.updates != AUTO:
            return self
        several = self.in_flight not in (AUTO, 1)
        return replace(self, updates="everybody" if several or (self.is_derived and not l1) else "one")

    def children_of_a_party(self, parties: int) -> int:
        """Where all tell the label party what they have learnt, and are told by it: a star, the shortest way."""
        is_star = self.arity == AUTO and self.updates == "everybody"
        return max(1, parties - 1) if is_star else super().children_of_a_party(parties)

    @property
    def sums_in_flight(self) -> int:
        """How many sums are under way at first, and how many of them may wait at a party to be learnt from."""
        return IN_FLIGHT if self.in_flight == AUTO else self.in_flight


@dataclass(frozen=True)
class SynchronousLinear(BlockLinear):
    """One shared batch after the other; everybody waits for everybody."""

    party_timeout_seconds: float = 0.0
    """(seconds) then a lost party's last known products stand in; 0: wait. With `plain` only"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isfinite(self.party_timeout_seconds) and self.party_timeout_seconds >= 0):
            raise SettingsError(
                f"algorithm.party_timeout_seconds is {self.party_timeout_seconds}; it must be finite and not negative."
            )


LARGE_BATCHES = Defaults(least_batch=32, most_batch=2048, batches_per_epoch=32)
"""Of the quasi-Newton algorithms: curvature makes noise longer along flat directions, and fewer, better steps pay."""


@dataclass(frozen=True)
class QuasiNewton(Linear):
    """How the local curvature is learnt: settings of the algorithms with a damped L-BFGS direction.

    They go before a first-order algorithm's: `class AsysqnSaga(QuasiNewton, Afsaga)`.
    """

    memory: int = 10
    """(pairs) of step and change of the gradient that are kept"""
    curvature_rows: Literal["all", "same", "fresh"] = "all"
    """the change from all rows as last known (`all`), from one batch (`same`), or between two batches' gradients
    (`fresh`)"""
    least_curvature: float = 1e-4
    """δ: the curvature assumed where none is known is at least this"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(QuasiNewton, self)
        if self.memory < 1:
            raise SettingsError(f"algorithm.memory is {self.memory}; at least one pair must be kept.")
        if getattr(self, "batches_per_request", 1) != 1:
            raise SettingsError(
                "A quasi-Newton algorithm asks for one mini-batch at a time: several steps on the others' old products "
                "would each go as far as one may. Leave algorithm.batches_per_request at 1."
            )
        if not (isfinite(self.least_curvature) and self.least_curvature > 0):
            raise SettingsError(f"algorithm.least_curvature is {self.least_curvature}; it must be above 0.")

    def check_l1(self, name: str) -> None:
        raise SettingsError(
            f"{name} takes no training.l1: a quasi-Newton direction mixes columns, and the proximal step of an L1 "
            "penalty goes one column at a time. Leave it out, or choose a first-order algorithm, such as afsaga."
        )
