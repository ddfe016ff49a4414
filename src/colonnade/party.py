"""The one contract: a party is a pure state machine, event in, effects out.

Inside `handle` there is no I/O, no clock, no thread and no global randomness; time comes with the event, randomness
from a generator seeded per party. So the same algorithm runs unchanged under every runtime, is replayed from a trace
to the same models, and resumes from a checkpoint to the same bits.

Effects are performed in the order in which they are returned. A `Spend` that the ledger refuses cancels everything
after it: what is not accounted for is not sent.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import torch

from colonnade.messages import Message
from colonnade.privacy.events import PrivacyEvent
from colonnade.state import Remembers

# --- events: what happened --------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The run begins. Given once; a party that resumes from a checkpoint is not started again."""

    now: float


class Extended(msgspec.Struct, frozen=True):
    """The plan has more epochs than it had when this party finished. Of the time before, nothing is under way any more:
    what was sent and not handled by then is gone, and so are timers. Everybody is told before anybody hears of anybody.
    """

    now: float


class Received(msgspec.Struct, frozen=True):
    """A message arrived, decoded and checked against its declaration. The sender is the link's, not the message's."""

    now: float
    sender: str
    message: Message


class TimerFired(msgspec.Struct, frozen=True):
    """The timer of that name, set by the party itself, ran out."""

    now: float
    name: str


class PeerLost(msgspec.Struct, frozen=True):
    """A peer cannot be reached. Messages to it are kept and delivered if it returns."""

    now: float
    peer: str


class PeerReturned(msgspec.Struct, frozen=True):
    """A peer that was lost is back, with the state it had."""

    now: float
    peer: str


Event = Started | Extended | Received | TimerFired | PeerLost | PeerReturned


# --- effects: what to do ----------------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True):
    """Deliver a message to a peer, exactly once, though perhaps late."""

    to: str
    message: Message


class Spend(msgspec.Struct, frozen=True):
    """Account for a noised value before it leaves. Goes before the `Send` that carries the value."""

    event: PrivacyEvent


class Observe(msgspec.Struct, frozen=True):
    """Something worth recording: goes to metrics.jsonl and to the progress display.

    `loss` is the mean training loss since this party's last observation; `metric` holds test metrics when an
    evaluation has just been made, `validation` those of validation rows.
    """

    exchange: int
    step: int
    epoch: float
    loss: float | None = None
    metric: dict[str, float] | None = None
    note: str = ""
    validation: dict[str, float] | None = None


class SetTimer(msgspec.Struct, frozen=True):
    """Fire a timer after so many seconds; setting a name again replaces the earlier timer."""

    name: str
    seconds: float


class Checkpoint(msgspec.Struct, frozen=True):
    """Now is a good moment to save the state."""


class Finish(msgspec.Struct, frozen=True):
    """This party is done; it will not be given another event, unless the plan is extended."""


Effect = Send | Spend | Observe | SetTimer | Checkpoint | Finish


# --- the party ---------------------------------------------------------------------------------------------------


class Party(Remembers, Protocol):
    """What an algorithm writes, twice: once for the label party, once for the feature parties."""

    def handle(self, event: Event) -> Sequence[Effect]:
        """React to one event; the runtime performs the returned effects in order."""
        ...

    def model(self) -> dict[str, torch.nn.Module]:
        """The trained models this party owns, by name: copies, for prediction and export."""
        ...

    def counts(self) -> dict[str, Any]:
        """Counters for the run's summary, such as exchanges, steps, staleness."""
        ...
