"""What each party of a recorded linear run did, in its order: answered, stepped, offered a point of a search, took one.

Read from the traces alone: who asked for which rows, after how many of its own steps a party answered, whose sum became
whose step. linear_federation.py computes the numbers anew.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from recorded_runs import Item

from colonnade.messages import (
    Introduction,
    LastCall,
    ProductRequest,
    ResidualReply,
    ResidualRequest,
    SearchRequest,
    SearchStep,
    SharedRequest,
    SharedResiduals,
    SharedStep,
)
from colonnade.testing import TinyFederation

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """It gave its products for a sum."""

    sum: tuple[str, int]
    rows: NDArray[np.uint32]


@dataclass(frozen=True)
class Step:
    """It stepped on a sum. `wire`: what it was told of it, if it was told anything."""

    sum: tuple[str, int]
    wire: Floats | None
    in_pass: bool | None = None  # of a sum that taught everybody


@dataclass(frozen=True)
class Offer:
    """It offered a point to a joint search."""

    sum: tuple[str, int]


@dataclass(frozen=True)
class Take:
    """It took up what the search found."""

    sum: tuple[str, int]
    wire: SearchStep


def search_entry(label: str, item: Item, line: list[Any]) -> bool:
    """Whether an item is of a joint search; the label party sends the same to several."""
    message: Any = item.message
    if item.type not in ("Received", "Send") or not isinstance(message, SearchRequest | SearchStep):
        return False
    is_offer, key = isinstance(message, SearchRequest), (label, message.number)
    if not any(isinstance(one, Offer if is_offer else Take) and one.sum == key for one in line):
        line.append(Offer(key) if is_offer else Take(key, message))
    return True


def shared_timeline(plan: TinyFederation, name: str, items: list[Item]) -> list[Any]:
    """The same where one sum teaches everybody: at most `in_flight` lessons wait, and the oldest goes first."""
    line: list[Any] = []
    passes: dict[int, bool] = {}
    waiting: deque[Step] = deque()
    told = 0
    label = plan.data.label_party
    for item in items:
        message: Any = item.message
        if search_entry(label, item, line):
            if isinstance(message, SearchStep):
                waiting.clear()
            continue
        match item.type, message:
            case (("Received" | "Send"), SharedRequest()) if message.number not in passes:
                passes[message.number] = bool(message.full_pass)
                line.append(Answer((label, message.number), message.rows))
            case (("Received" | "Send"), SharedResiduals()) if message.lesson > told:
                told = message.lesson
                if name != label and not len(message.values):
                    continue  # it was away
                waiting.append(Step((label, message.number), message.values, passes[message.number]))
                if len(waiting) > plan.algorithm.sums_in_flight and not all(one.in_pass for one in waiting):
                    waiting.remove(next(one for one in waiting if not one.in_pass))
            case "TimerFired", _ if item.fields[1] == "step" and waiting:
                line.append(waiting.popleft())
            case (("Received" | "Send"), LastCall()):
                waiting.clear()
    return line


def timeline(
    plan: TinyFederation, name: str, items: list[Item], sum_of: dict[tuple[str, int], tuple[str, int]]
) -> list[Any]:
    """A party's answers and steps; `sum_of` tells which sum a request for residuals became."""
    label = plan.data.label_party
    line: list[Any] = []
    begun: set[tuple[str, int]] = set()
    own: tuple[str, int] | None = None  # the sum that the worker waits for
    exchange, closed = 0, False
    for item in items:
        message: Any = item.message
        received = item.type == "Received" and isinstance(message, SearchRequest)
        if received and own is not None and len(message.values):
            line.append(Step(own, message.values))  # a synchronous schedule tells it before the search
        if search_entry(label, item, line):
            own, exchange = None, 0  # what was asked for is given up
            continue
        match item.type, message:
            case "Received", ProductRequest():
                line.append(Answer((message.root, message.number), message.rows))
            case "Send", ProductRequest() if message.root == name and (name, message.number) not in begun:
                begun.add((name, message.number))
                line.append(Answer((name, message.number), message.rows))
                if (name, message.number) not in sum_of.values():
                    own = (name, message.number)
            case "Send", ResidualRequest():
                exchange = message.exchange
            case "Received", ResidualReply() if not closed and message.exchange == exchange:
                line.append(Step(sum_of[name, exchange], message.residuals))
            case "TimerFired", _ if item.fields[1] == "step" and not closed and own is not None:
                line.append(Step(own, None))
            case ("Received", LastCall()) | ("Send", LastCall()):
                closed = True
            case "Received", SharedStep():
                if own is not None:
                    line.append(Step(own, message.values))
                own = (label, message.number)
                if message.next_rows.size:
                    line.append(Answer(own, message.next_rows))
            case "Send", SharedStep() if (name, message.number) not in begun:
                begun.add((name, message.number))
                own = (name, message.number)
                if message.next_rows.size:
                    line.append(Answer(own, message.next_rows))
    return line


def sums_for_others(plan: TinyFederation, items: list[Item]) -> dict[tuple[str, int], tuple[str, int]]:
    """(party, its exchange) → the sum that the label party began for it.

    Requests that came before everybody was introduced are taken up then, after the label party's own first one.
    """
    label = plan.data.label_party
    found: dict[tuple[str, int], tuple[str, int]] = {}
    seen: set[int] = set()
    early: list[tuple[str, int] | None] = [None] if label in plan.data.columns else []
    due: list[tuple[str, int] | None] = []
    strangers = len(plan.names) - 1
    for item in items:
        message: Any = item.message
        if item.type == "Received" and isinstance(message, ResidualRequest):
            due = []
            (early if strangers else due).append((item.peer, message.exchange))
        elif item.type == "Received" and isinstance(message, Introduction):
            strangers -= 1
            due = [] if strangers else early
        elif item.type in ("Received", "TimerFired"):
            due = []
        elif item.type == "Send" and isinstance(message, ProductRequest) and message.number not in seen:
            seen.add(message.number)
            asked = due.pop(0) if due else None
            if asked is not None:
                found[asked] = (label, message.number)
    return found
