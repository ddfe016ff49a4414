"""What a party forgets: attributes that change while it handles an event, and that no declaration names (state.py).

Every object that remembers is looked at, attribute by attribute. One in neither declaration must look the same before
and after each event, and the same in a fresh party that was given the state. What it shares with remembered ones, such
as a network that two parts hold, is theirs to remember.
"""

import functools
import hashlib
import json
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch

from colonnade.state import Remembering, State, derived_of, memory_of

FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


def changed_without_a_word(party: Any, events: Sequence[Any]) -> set[str]:
    """The attributes that changed during an event, though no declaration names them."""
    changed: set[str] = set()
    before = Remembered(party).undeclared()
    for event in events:
        party.handle(event)
        after = Remembered(party).undeclared()
        # A part may be new, as masks that have just been agreed on.
        changed |= {name for name in before.keys() & after.keys() if before[name] != after[name]}
        before = after
    return changed


def lost_by_a_restart(party: Any, fresh: Any) -> set[str]:
    """The attributes in which a fresh party differs that was given the state, though no declaration names them."""
    state = party.state()
    fresh.restore(State(state.tensors, json.loads(json.dumps(state.values))))
    one, other = Remembered(party).undeclared(False), Remembered(fresh).undeclared(False)
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def attributes_of(thing: object) -> dict[str, Any]:
    """By name; of slots and of messages as well."""
    names = [*vars(thing)] if hasattr(thing, "__dict__") else []
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else [*slots]
    names += getattr(thing, "__struct_fields__", ())
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def inside(thing: object) -> Iterator[Any]:
    """What a container or an object holds."""
    if isinstance(thing, Mapping):
        yield from thing.values()
    elif isinstance(thing, (list, tuple, deque)):
        yield from thing
    if not isinstance(thing, (torch.Tensor, np.ndarray)):
        yield from attributes_of(thing).values()


def is_mutable(thing: object) -> bool:
    """Whether it can be recognised by being the same object: a number or a name cannot."""
    constant = (str, bytes, bool, int, float, complex, tuple, frozenset, Enum, type, types.ModuleType, np.generic)
    return thing is not None and not isinstance(thing, constant)


class Remembered:
    """Everything that a party's declarations reach: the objects that remember, and whatever they remember wholly."""

    def __init__(self, party: object) -> None:
        self.owners: dict[int, tuple[str, Remembering]] = {}
        self._kept: dict[int, object] = {}  # held, so that no number is used again meanwhile
        self._reach(party, type(party).__name__)

    def __contains__(self, thing: object) -> bool:
        return id(thing) in self._kept

    def _reach(self, thing: object, name: str) -> None:
        if isinstance(thing, FUNCTIONS) or thing in self or not (is_mutable(thing) or isinstance(thing, tuple)):
            return
        if is_mutable(thing):
            self._kept[id(thing)] = thing
        if not isinstance(thing, Remembering):
            for part in inside(thing):
                self._reach(part, name)
            return
        self.owners[id(thing)] = (name, thing)
        for attribute in remembered_by(thing):
            self._reach(getattr(thing, attribute), f"{name}.{attribute}")

    def undeclared(self, skip_remembered: bool = True) -> dict[str, str]:
        """A digest of every attribute that no declaration names, by the way to it."""
        return {
            f"{name}.{attribute} ({type(owner).__name__})": Digest(self, skip_remembered).of(held)
            for name, owner in self.owners.values()
            for attribute, held in attributes_of(owner).items()
            if attribute not in remembered_by(owner) | derived_of(type(owner))
        }


def remembered_by(owner: Remembering) -> set[str]:
    return {attribute for memory in memory_of(type(owner)) for attribute in memory.attributes}


class Digest:
    """One number for a value and all that it holds, down to bytes of arrays and to what functions close over."""

    def __init__(self, remembered: Remembered, skip_remembered: bool) -> None:
        self._remembered = remembered
        self._skips = skip_remembered
        self._hash = hashlib.sha256()
        self._seen: dict[int, tuple[int, object]] = {}

    def of(self, thing: object) -> str:
        self._add(thing)
        return self._hash.hexdigest()

    def _add(self, thing: Any) -> None:
        if thing in self._remembered and (self._skips or isinstance(thing, Remembering)):
            self._write("remembered")
        elif id(thing) in self._seen:
            self._write("seen", self._seen[id(thing)][0])
        else:
            if is_mutable(thing):
                self._seen[id(thing)] = (len(self._seen), thing)
            self._look_into(thing)

    def _look_into(self, thing: Any) -> None:
        self._write(type(thing).__qualname__)
        match thing:
            case None | str() | bytes() | bool() | int() | float() | complex() | type() | types.ModuleType() | Enum():
                self._write(repr(thing))
            case np.ndarray() | np.generic():
                self._write(thing.dtype.str, thing.shape, thing.tobytes())
            case torch.Tensor(is_meta=True):
                self._write(thing.dtype, tuple(thing.shape))
            case torch.Tensor():
                self._write(thing.dtype, tuple(thing.shape), thing.detach().contiguous().numpy().tobytes())
            case torch.Generator():
                self._write(thing.get_state().numpy().tobytes())
            case set() | frozenset():
                self._write(sorted(map(repr, thing)))
            case types.MethodType():
                self._all(thing.__self__, thing.__func__)
            case functools.partial():
                self._all(thing.func, thing.args, thing.keywords)
            case types.FunctionType():
                self._all(
                    thing.__qualname__, thing.__defaults__, *(one.cell_contents for one in thing.__closure__ or ())
                )
            case object(state=_, load=_) if not self._skips:
                self._add(thing.state())  # a network or an optimiser may keep more, for a pass that is under way
            case _:
                if isinstance(thing, Mapping):
                    self._all(*(repr(key) for key in thing))
                self._all(*inside(thing))

    def _all(self, *things: object) -> None:
        self._write(len(things))
        for thing in things:
            self._add(thing)

    def _write(self, *words: object) -> None:
        self._hash.update("|".join(map(repr, words)).encode())
