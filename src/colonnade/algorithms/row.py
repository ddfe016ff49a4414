"""A row of the table: everything that others need to know of an algorithm, declared in the algorithm's own file.

Accounting, forecasts of traffic, attacks, audits, reports, the command line and the documents ask the row. None of them
knows an algorithm by its name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from torch import nn

from colonnade.algorithms.seats import FeatureSeat, LabelSeat, LinearSeat
from colonnade.algorithms.training import Auto, Defaults
from colonnade.messages import Message
from colonnade.party import Party
from colonnade.privacy.accounting import ClaimedPrivacy


class Family(Enum):
    """What its parties are."""

    SPLIT = "split"  # a bottom model per feature party, a top model at the label party
    LINEAR = "linear"  # a block of one linear model per party
    ALONE = "alone"  # one party holds everything


class Passes(Enum):
    """When a party of a linear federation asks for every row at once, between its mini-batches."""

    FOR_STOPPING = "for the stopping rule alone, each epoch"
    SNAPSHOTS = "every snapshot_every_epochs"
    ONCE = "once; with a stopping rule, every other epoch"
    ALWAYS = "at every step"


@dataclass(frozen=True)
class Claim:
    """A paper's own formula for the noise that makes a training μ-GDP, and its inverse (privacy/claims.py).

    Of embeddings: `noise(mu, clip, queries, batch_size, rows)`; of answers: `noise(mu, clip, exchanges, rows)`. `mu`
    takes the noise in place of μ. Where the paper's words allow another reading than its proof, `mu_otherwise` is μ by
    that, and `readings` says what the two are.
    """

    noise: Callable[..., float]
    mu: Callable[..., float]
    mu_otherwise: Callable[..., float] | None = None
    readings: str = ""

    def of(self, *arguments: float) -> ClaimedPrivacy:
        """What it says of a noise: the arguments of `mu`."""
        otherwise = None if self.mu_otherwise is None else self.mu_otherwise(*arguments)
        return ClaimedPrivacy(self.mu(*arguments), otherwise, self.readings)


class NoisedAnswers(Protocol):
    """The settings that an algorithm with `noised_answers` must have. Answers hide labels."""

    @property
    def clip(self) -> float | Auto: ...  # bound of what one row adds to an answer
    @property
    def clip_bound(self) -> float: ...  # the same in the units of the noise
    @property
    def noise(self) -> float: ...  # deviation of the noise on an answer; 0: it is exact
    @property
    def server_update(self) -> str: ...  # how the label party's own model is updated
    @property
    def private_update(self) -> bool: ...  # whether that update is a noised release, too
    @property
    def server_clip_bound(self) -> float: ...
    @property
    def server_noise(self) -> float: ...


def _one(settings: Any) -> int:
    return 1


def _nowhere(settings: Any) -> float:
    return 0.0


@dataclass(frozen=True)
class Conversation:
    """What an exchange is: which messages, what they carry, which of it is exact, and what models that needs.

    `points`, `radius` and `answered` are functions of the algorithm's settings.
    """

    upload: type[Message]  # embeddings of a batch; in a linear federation, a sum of products
    reply: type[Message]
    answers: str  # what a reply holds, in words, such as "gradients"
    asynchronous: bool = True  # a feature party chooses its rows, and waits for nobody
    # --- split models ---
    bottom_needs_gradients: bool = True  # a bottom model must be differentiable, and learns from raw columns
    top_needs_gradients: bool = True
    points: Callable[[Any], int] = _one  # embeddings of each row in one upload
    radius: Callable[[Any], float] = _nowhere  # how far they are from one another
    derived_points: bool = False  # all but the first are computed from the first: they release nothing more
    noised_answers: bool = False  # replies may be noised: the settings are NoisedAnswers
    answered: Callable[[Any], int] = _one  # noised numbers in one reply, each of a row clipped to `clip`
    embeddings_claim: Claim | None = None  # of its paper, for noise on embeddings
    answers_claim: Claim | None = None  # of its paper, for noise on answers
    # --- linear models ---
    masked_upload: type[Message] | None = None  # in place of the upload where sums are masked
    passes: Passes | None = None
    tells_columns: bool = (
        True  # parties tell figures of their columns beforehand; else they speak to agree on masks alone
    )


@dataclass(frozen=True)
class Paper:
    """Where an algorithm comes from: the paper that proposes it, or that compares with it."""

    authors: str
    title: str
    year: int
    venue: str = ""
    arxiv: str = ""

    def __post_init__(self) -> None:
        if not (self.venue or self.arxiv):
            raise ValueError(f"Where was {self.title!r} published? Give its venue or its arXiv number.")

    @property
    def where(self) -> str:
        """
        >>> Paper("A. Author", "A Title", 2020, arxiv="2007.06081").where
        'arXiv:2007.06081'
        """
        return f"arXiv:{self.arxiv}" if self.arxiv else self.venue


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What an algorithm is, and how its parties are built.

    SPLIT has a `label_party` and a `feature_party`, LINEAR a `linear_party`, ALONE an `alone`. `bottom` and `top`: an
    algorithm that defines its models itself.
    """

    name: str
    summary: str
    family: Family
    settings: type[Any]
    paper: Paper | None  # None: ours
    defaults: Defaults = field(default_factory=Defaults)  # what `[training]` leaves open
    conversation: Conversation | None = None  # None: nothing is sent
    label_party: Callable[[LabelSeat], Party] | None = None
    feature_party: Callable[[FeatureSeat], Party] | None = None
    linear_party: Callable[[LinearSeat], Party] | None = None
    alone: Callable[[LabelSeat, Sequence[FeatureSeat]], Party] | None = None
    bottom: Callable[[tuple[int, ...], float, str, int], nn.Module] | None = None  # (shape, d_m/d, task, outputs)
    top: Callable[[int, str, int], nn.Module] | None = None  # (parties, task, outputs)
    to_begin_with: bool = False  # what is suggested to somebody who wants one of this family

    def __post_init__(self) -> None:
        roles = ("label_party", "feature_party", "linear_party", "alone")
        needed = {Family.SPLIT: roles[:2], Family.LINEAR: roles[2:3], Family.ALONE: roles[3:]}[self.family]
        given = tuple(role for role in roles if getattr(self, role) is not None)
        if given != needed:
            raise ValueError(f"{self.name} is {self.family.name}: give {' and '.join(needed)}, and no other role.")
        if (self.conversation is None) != (self.family is Family.ALONE):
            raise ValueError(f"{self.name} is {self.family.name}: its conversation is missing, or one too many.")

    @property
    def brings_models(self) -> bool:
        """Whether it defines its bottom and top models itself, so that no others can be asked for."""
        return self.family is Family.LINEAR or self.bottom is not None

    @property
    def noises_answers(self) -> bool:
        return self.conversation is not None and self.conversation.noised_answers

    @property
    def claims_embeddings(self) -> bool:
        """Whether its paper claims something of noise on embeddings."""
        return self.conversation is not None and self.conversation.embeddings_claim is not None
