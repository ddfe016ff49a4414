"""A peer that speaks the real protocol and lies at any point: hand-turned federations in which one party's messages are
changed, repeated, invented, sent too early or after the end.

What is invented has passed the codec, as on a real link: what bytes can do is the wire's matter, what declared messages
can do is tested here. Everything follows from one number, so that what was found can be made again.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade import PerturbationSettings, Training
from colonnade.algorithms import Algorithm
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear, QuasiNewton
from colonnade.array_fields import ArrayField
from colonnade.errors import ProtocolError, RunError
from colonnade.messages import KINDS, Message
from colonnade.party import (
    Effect,
    Event,
    Finish,
    Party,
    PeerLost,
    PeerReturned,
    Received,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from colonnade.state import State
from colonnade.testing import TinyFederation, tiny_data
from colonnade.wire.codec import decode, encode

HUGE = (0.0, 1.0, -1.0, 1e3, -1e6, 1e6, 1e12, 3e38, -3e38, 1e100, 1e300, -1e308, 5e-324)
NUMBERS = (0, 1, 2, 3, 7, 8, 23, 24, 25, 1000, 4095, 4096, 4097, 65_536, 2**31, 2**32, 2**40, 2**62, 2**63 - 1)
LENGTHS = (0, 1, 2, 3, 7, 8, 9, 16, 23, 24, 25, 64)


def digest_of(party: Party) -> str:
    """One word for all that a party remembers."""
    state = party.state()
    words = hashlib.blake2b(repr(_ordered(state.values)).encode())
    for name in sorted(state.tensors):
        tensor = state.tensors[name].detach().contiguous()
        words.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        words.update(tensor.numpy().tobytes())
    return words.hexdigest()


def bytes_of(state: State) -> int:
    """How much a party remembers: the bytes of its tensors, and the characters of its values."""
    return sum(tensor.nbytes for tensor in state.tensors.values()) + len(repr(state.values))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, _ordered(one)) for key, one in value.items())
    return [_ordered(one) for one in value] if isinstance(value, (list, tuple)) else value


def over_the_wire(message: Message) -> Message | None:
    """The message as its receiver would have it; None if the codec refuses it."""
    try:
        return decode(encode(message))
    except (ProtocolError, OverflowError):
        return None


def counted_on(message: Message, by: int) -> Message:
    """The same message with its numbers so much higher: of a later exchange, request or sum."""
    counts = {name for name, wanted in KINDS[type(message).__name__].scalars if wanted is int} - {"tree"}
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return type(message)(**{name: one + by if name in counts else one for name, one in fields.items()})


# --- lies -------------------------------------------------------------------------------------------------------


@dataclass
class Liar:
    """Makes messages that no honest party would send. `seen` are honest ones, to begin from."""

    chance: Random
    names: tuple[str, ...]
    seen: deque[Message] = field(default_factory=lambda: deque(maxlen=200))

    def message(self) -> Message | None:
        """Any message; None where the codec would not let it through."""
        if self.seen and self.chance.random() < 0.75:
            message = self.chance.choice(self.seen)
            for _ in range(self.chance.choice((0, 1, 1, 1, 2, 3))):
                message = self.changed(message)
            return over_the_wire(message)
        return over_the_wire(self.invented())

    def changed(self, message: Message) -> Message:
        """The same message but for one field."""
        kind = KINDS[type(message).__name__]
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        if not fields:
            return message
        name = self.chance.choice(sorted(fields))
        arrays = dict(kind.arrays)
        if name not in arrays:
            fields[name] = self._scalar(dict(kind.scalars)[name], fields[name])
            return kind.message(**fields)
        fields[name] = self._changed_array(fields[name], arrays[name])
        if self.chance.random() < 0.8:  # dimensions of one name agree, or the codec refuses it
            self._make_agree(fields, arrays, name)
        return kind.message(**fields)

    def invented(self, name: str = "") -> Message:
        kind = KINDS[name or self.chance.choice(sorted(KINDS))]
        fields: dict[str, Any] = {name: self._scalar(wanted, None) for name, wanted in kind.scalars}
        sizes: dict[str, int] = {}
        for name, declared in kind.arrays:
            shape = tuple(sizes.setdefault(one, self._length(one)) for one in declared.dimensions)
            fields[name] = self._array(shape, declared)
        return kind.message(**fields)

    def _length(self, dimension: str) -> int:
        if dimension == "width":
            return self.chance.choice((0, 1, 1, 2, 2, 3, 5))
        return 4 if dimension == "key" else self.chance.choice(LENGTHS)

    def _scalar(self, wanted: type, before: Any) -> Any:
        if wanted is str:
            return self.chance.choice((*self.names, "nobody", ""))
        if wanted is int:
            near = [] if before is None else [before + 1, max(0, before - 1), before + 2, before + 5000]
            return min(self.chance.choice((*NUMBERS, *near, *near)), 2**63 - 1)
        return self.chance.choice(HUGE)

    def _array(self, shape: tuple[int, ...], declared: ArrayField) -> NDArray[Any]:
        dtype = np.dtype(declared.dtype)
        if dtype.kind == "u":
            top = self.chance.choice((1, 23, 24, 2**32 - 1))
            drawn = [self.chance.randint(0, top) for _ in range(int(np.prod(shape)))]
            return np.array(drawn, dtype).reshape(shape)
        value = self.chance.choice(HUGE)
        scale = min(abs(value), 3e38) if dtype.itemsize == 4 else abs(value)
        spread = np.array([self.chance.uniform(-1, 1) for _ in range(int(np.prod(shape)))])
        return (spread.reshape(shape) * scale).astype(dtype)

    def _changed_array(self, array: NDArray[Any], declared: ArrayField) -> NDArray[Any]:
        how = self.chance.randrange(4)
        changed = np.array(array)
        if how == 0 or changed.size == 0:
            shape = list(changed.shape)
            place = self.chance.randrange(len(shape))
            shape[place] = self._length(declared.dimensions[place])
            return self._array(tuple(shape), declared)
        if how == 1:
            return self._array(changed.shape, declared)
        place = self.chance.randrange(changed.size)
        if changed.dtype.kind == "u":
            changed.flat[place] = self.chance.choice((0, 1, 23, 24, 2**32 - 1))
        else:
            most = 3e38 if changed.dtype.itemsize == 4 else 1e308
            changed.flat[place] = max(-most, min(most, self.chance.choice(HUGE)))
        return changed

    def _make_agree(self, fields: dict[str, Any], arrays: dict[str, ArrayField], leader: str) -> None:
        sizes = dict(zip(arrays[leader].dimensions, fields[leader].shape, strict=True))
        for name, declared in arrays.items():
            held = zip(declared.dimensions, fields[name].shape, strict=True)
            shape = tuple(sizes.get(one, size) for one, size in held)
            if shape != fields[name].shape:
                fields[name] = self._array(shape, declared)


# --- a federation with a liar in it -----------------------------------------------------------------------------


class BrokenPartyError(AssertionError):
    """A party did with a message what it must not."""


class BesiegedFederation:
    """A hand-turned federation in which `liar` says, besides its own messages or instead of them, whatever it likes."""

    def __init__(self, plan: TinyFederation, liar: str, number: int, lies: float = 0.15) -> None:
        self.parties = plan.parties()
        self.liar, self.leader = liar, plan.data.label_party
        # A label party can lead everybody astray, and a squared error has no bound: such trainings may diverge.
        self._may_diverge = liar == self.leader or plan.data.labels.task == "regression"
        self.chance = Random(number)
        self.lies = lies
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.timers: dict[str, set[str]] = {name: set() for name in self.parties}
        self.finished: set[str] = set()
        self.expelled_by: set[str] = set()  # parties that have refused the liar and take nothing of it any more
        self.said: dict[tuple[str, str], list[Message]] = {}  # by sender and receiver, all of it
        self.inventor = Liar(self.chance, tuple(self.parties))
        self.now = 0.0
        self.refused = self.taken = 0
        self.last_lie = ""

    def run(self, turns: int) -> None:
        unstarted = list(self.parties)
        for _ in range(turns):
            self.now += 0.01
            if unstarted and self.chance.random() < 0.6:
                self._give(unstarted.pop(0), Started(self.now))
            elif self.chance.random() < self.lies:
                self._lie([name for name in self.parties if name not in unstarted])
            elif not self._turn(unstarted) and not unstarted:
                break
        for _ in range(5 if self.lies else 0):
            self._lie(list(self.parties))  # after the end, or in the middle

    def _turn(self, unstarted: list[str]) -> bool:
        """Deliver something, or let a timer run out; False if there is nothing to do."""
        away = self.finished | {*unstarted}
        links = [pair for pair, link in self.links.items() if link and pair[1] not in away]
        timers = [(name, timer) for name, own in self.timers.items() for timer in sorted(own) if name not in away]
        if not links and not timers:
            return False
        if timers and (not links or self.chance.random() < 0.3):
            name, timer = self.chance.choice(timers)
            self.timers[name].discard(timer)
            self._give(name, TimerFired(self.now, timer))
            return True
        sender, receiver = self.chance.choice(links)
        message = self.links[sender, receiver].popleft()
        if sender == self.liar and receiver in self.expelled_by:
            return True
        self._give(receiver, Received(self.now, sender, message), honest=sender != self.liar)
        return True

    def _lie(self, started: list[str]) -> None:
        victims = [name for name in started if name not in {self.liar, *self.finished, *self.expelled_by}]
        message = self.inventor.message()
        if not victims or message is None:
            return
        victim = self.chance.choice(victims)
        self.last_lie = f"{self.liar} → {victim}: {message!r}"
        self._give(victim, Received(self.now, self.liar, message), honest=False)

    def _give(self, name: str, event: Event, honest: bool = True) -> None:
        if name in self.finished:
            return
        party = self.parties[name]
        if name == self.liar:  # what its own half makes of it is its own matter
            try:
                self._perform(name, party.handle(event))
            except Exception:
                self.finished.add(name)
            return
        before = "" if honest else digest_of(party)
        try:
            effects = party.handle(event)
        except ProtocolError as error:
            self._refuse(name, event, honest, before, error)
            return
        except Exception as error:
            # Numbers that might be honest can still spoil a model; then whose are the largest is told.
            told = "The largest numbers in what the parties sent last" in str(error) and self.liar in str(error)
            if isinstance(error, RunError) and (told or self._may_diverge):
                self.finished.add(name)
                return
            raise BrokenPartyError(
                f"{name} answered {_shown(event)} with {error!r}. The last lie: {self.last_lie}"
            ) from error
        self.taken += not honest
        self._perform(name, effects)

    def _perform(self, name: str, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self._post(name, to, message)
                case SetTimer(timer, _):
                    self.timers[name].add(timer)
                case Finish():
                    self.finished.add(name)
                case _:
                    pass

    def _refuse(self, name: str, event: Event, honest: bool, before: str, error: ProtocolError) -> None:
        if honest:
            raise BrokenPartyError(
                f"{name} blames an honest party for {_shown(event)}: {error}. The last lie: {self.last_lie}"
            )
        self.refused += 1
        if digest_of(self.parties[name]) != before:
            raise BrokenPartyError(f"{name} refused {_shown(event)} ({error}), but it is not what it was.") from error
        if self.liar not in str(error):
            raise BrokenPartyError(f"{name} refused {_shown(event)} without naming {self.liar}: {error}")
        self.expelled_by.add(name)
        self._give(name, PeerLost(self.now, self.liar))
        if self.chance.random() < 0.5:  # or nobody would lie long enough to this party
            self.expelled_by.discard(name)
            self._give(name, PeerReturned(self.now, self.liar))

    def _post(self, sender: str, to: str, message: Message) -> None:
        self.inventor.seen.append(message)
        self.said.setdefault((sender, to), []).append(message)
        if to == self.liar and to in self.finished:
            return
        # Whom the label party leads astray may end nowhere: that is the end of this label party's own training.
        if self.liar not in (sender, self.leader) and over_the_wire(message) is None:
            raise BrokenPartyError(f"{sender} sends {message!r}, which nobody takes. The last lie: {self.last_lie}")
        arrived = over_the_wire(message)
        if arrived is not None:
            self.links.setdefault((sender, to), deque()).append(arrived)


def _shown(event: Event) -> str:
    if isinstance(event, Received):
        return f"{event.message!r} of {event.sender}"
    return repr(event)


# --- plans ------------------------------------------------------------------------------------------------------

DATA = {task: tiny_data(task) for task in ("binary", "multiclass", "regression")}
OWN_COLUMNS = tiny_data(label_party_columns=True)
TRAINING = Training(
    2, 8, learning_rate=0.05, end_when_diverged=False, observe_every_epochs=0.2, evaluate_every_epochs=0.4
)
BUDGET = PerturbationSettings(
    bottom_update="dp-sgd", clip=1.0, noise=3.0, update_clip=0.1, update_noise=0.5, columns_epsilon=5.0
)
NOISED_ANSWERS = {"clip": 1.0, "noise": 0.5, "server_update": "dp-sgd", "server_noise": 0.5}


def some_plan(row: Algorithm, chance: Random, updates: str = "one") -> TinyFederation:
    """A tiny federation of this algorithm, with any task, masks, trees, delays and budgets."""
    choose = chance.choice
    how: dict[str, Any] = {}
    privacy = PerturbationSettings()
    assert row.conversation is not None
    if row.linear_party is not None:
        how |= {"sums": choose(["plain", "two-tree", "pairwise"]), "labels": choose(["one", "everywhere"])}
        how |= {"arity": choose([1, 2, 3])}
        if row.conversation.asynchronous and not issubclass(row.settings, QuasiNewton):
            how |= {"batches_per_request": choose([1, 2])}
    elif row.conversation.asynchronous:
        how |= {"in_flight": choose([1, 2]), "wait_for": choose([1, 2])}
        how |= {"max_delay": choose([0, 3]), "warm_up": choose([False, True])}
    if row.noises_answers and chance.random() < 0.5:
        how |= NOISED_ANSWERS
        if row.conversation.top_needs_gradients:
            how |= {"server_update": "dp-sgd"}
        privacy = PerturbationSettings(labels_epsilon=20.0)
    elif row.linear_party is None and row.conversation.bottom_needs_gradients and chance.random() < 0.4:
        privacy = BUDGET
    data, training = choose([*DATA.values(), OWN_COLUMNS]), TRAINING
    if updates == "everybody":
        how |= {"updates": updates, "in_flight": choose([1, 2, 3])}
        training = replace(TRAINING, end_when_diverged=choose([False, True]))  # True: parties may be asked to go back
    elif issubclass(row.settings, AsynchronousLinear):
        how |= {"updates": updates}
    return TinyFederation(data, row.settings(**how), training, privacy=privacy)


def besiege(row: Algorithm, number: int, turns: int = 200, updates: str = "one") -> BesiegedFederation:
    """A federation of this algorithm with a liar in it, both chosen by a number, after so many turns."""
    chance = Random(number)
    plan = some_plan(row, chance, updates)
    besieged = BesiegedFederation(plan, chance.choice(plan.names), number)
    besieged.run(turns)
    return besieged
