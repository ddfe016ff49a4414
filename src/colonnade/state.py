"""What a party must remember, by declaration: tensors by name, and values that JSON can hold.

A class that remembers says so once, in `MEMORY`; saving and restoring follow from that. Whatever else changes while an
event is handled it names in `DERIVED`: what follows from the rest, or what later events do not depend on. A contract
test holds every party to it. Keys are what checkpoints hold: to change one is to leave old runs behind.

    class Batches(Remembering):
        MEMORY = (array("_order"), generator("_generator"), value("_place"))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from colonnade.errors import RunError

# safetensors and torch know these unsigned types only in part; their bits travel as signed ones.
_AS_SIGNED = {"uint32": np.int32, "uint64": np.int64}


@dataclass(frozen=True)
class RowFile:
    """A file that has rows of some large arrays."""

    checksum: str
    rows: int
    used: int  # of these, rows that are not in a newer file


class ChangedRows:
    """Which rows of some large arrays have changed since the last checkpoint, and which file has each of the others.

    The owner of the arrays notes what changes. Whoever writes checkpoints asks, and says when they are written.
    """

    def __init__(self, rows: int, row_bytes: int) -> None:
        self.row_bytes = row_bytes
        self.flags: NDArray[np.bool_] = np.zeros(rows, np.bool_)
        self.file: NDArray[np.int32] = np.zeros(rows, np.int32)  # its number; 0: none, the row is all zeros
        self.files: dict[int, RowFile] = {}
        self.folder = ""  # where those files are, and what their names begin with; "": there are none yet
        self._at_most = 0  # so many have changed, if none has twice
        self._counted = 0

    @property
    def is_new(self) -> bool:
        """Whether nothing has ever been written into the arrays."""
        return not self.files and not self._at_most

    def note(self, rows: NDArray[np.uint32]) -> None:
        self.flags[rows] = True
        self._at_most += rows.size

    def note_all(self) -> None:
        """Every row that is not as it was at first."""
        np.logical_or(self.flags, self.file > 0, out=self.flags)
        self._at_most = self.flags.size

    def size_bytes(self) -> int:
        """Of the rows that have changed; counted afresh when there may be an eighth more than were counted last."""
        if self._at_most > self._counted + max(4096, self._counted // 8):
            self._at_most = self._counted = int(np.count_nonzero(self.flags))
        return self._at_most * self.row_bytes

    def files_without(self, rows: NDArray[np.int64]) -> dict[int, RowFile]:
        """The files that are still used when these rows are in another one."""
        moved = dict(zip(*(one.tolist() for one in np.unique(self.file[rows], return_counts=True)), strict=True))
        left = {number: replace(one, used=one.used - moved.get(number, 0)) for number, one in self.files.items()}
        return {number: one for number, one in left.items() if one.used}

    def are_taken(self) -> None:
        """What has changed was copied for a checkpoint that will be written: what changes now is for the next one."""
        self.flags[:] = False
        self._at_most = self._counted = 0

    def are_not_written(self, rows: NDArray[np.int64]) -> None:
        """That checkpoint does not stand: these rows have changed all the same."""
        self.flags[rows] = True
        self._at_most += rows.size

    def are_written(self, rows: NDArray[np.int64], number: int, files: dict[int, RowFile], folder: str) -> None:
        """It stands: these rows are in the file of that number, and it rests on these files."""
        self.file[rows] = number
        self.files, self.folder = files, folder

    def take_up(self, file: NDArray[np.int32], files: dict[int, RowFile], folder: str) -> None:
        """The arrays are as these files have them."""
        self.file[...] = file
        self.are_taken()
        self.are_written(np.zeros(0, np.int64), 0, files, folder)

    def move(self) -> None:
        """The files are not where the next one will be."""
        self.note_all()
        self.file[:] = 0
        self.files = {}


class LargeArrays(Protocol):
    """Arrays of the same rows in a state, by name: too large to be copied, and written a few rows at a time."""

    @property
    def changed(self) -> ChangedRows | None:
        """Of arrays that their owner has; None of those that were read."""

    def copy_into(self, arrays: Mapping[str, NDArray[Any]], changed: ChangedRows | None) -> None:
        """Write what was saved into arrays that are there, of zeros or not."""


@dataclass
class HeldArrays:
    """Such arrays as their owner has them, not copied: a checkpoint is written before the owner's next event."""

    arrays: Mapping[str, NDArray[Any]]
    changed: ChangedRows | None

    def copy_into(self, arrays: Mapping[str, NDArray[Any]], changed: ChangedRows | None) -> None:
        for name, array in arrays.items():
            array[...] = self.arrays[name]
        if changed is not None:
            changed.flags[:] = True
            changed.move()


@dataclass
class State:
    """Everything a party must remember: tensors by name, and values that JSON can hold."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    large: dict[str, LargeArrays] = field(default_factory=dict)

    def add(self, name: str, part: "State") -> None:
        """Put a part's state under a name of its own."""
        self.tensors.update({f"{name}.{key}": tensor for key, tensor in part.tensors.items()})
        self.large.update({f"{name}.{key}": arrays for key, arrays in part.large.items()})
        self.values[name] = part.values

    def part(self, name: str) -> "State":
        """What `add` put under that name."""
        start = f"{name}."
        tensors = {key[len(start) :]: value for key, value in self.tensors.items() if key.startswith(start)}
        large = {key[len(start) :]: value for key, value in self.large.items() if key.startswith(start)}
        return State(tensors, self.values.get(name, {}), large)

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Keep a copy of an array."""
        signed = array.view(_AS_SIGNED.get(array.dtype.name, array.dtype))
        self.tensors[name] = torch.from_numpy(signed.copy())

    def take(self, name: str, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """A copy of what `put` was given; an unsigned type must be named."""
        kept: NDArray[Any] = self.tensors[name].numpy()
        wanted = kept.dtype if dtype is None else np.dtype(dtype)
        if kept.dtype != _AS_SIGNED.get(wanted.name, wanted):
            raise RunError(
                f"The saved state has {name!r} as {kept.dtype} where this run needs {wanted}. Resume with the data and "
                "the settings that the run was started with."
            )
        return kept.view(wanted).copy()


class Remembers(Protocol):
    """Whatever can be a part of a party's memory."""

    def state(self) -> State:
        """A copy of all that must be remembered; later events leave it unchanged."""

    def restore(self, state: State) -> None:
        """Become the one that returned this state."""


@dataclass(frozen=True)
class Memory:
    """Some attributes that are remembered, and how. The two functions are given the object that has them."""

    attributes: tuple[str, ...]
    save: Callable[[Any, State], None]
    load: Callable[[Any, State], None]


class Remembering:
    """Saves and restores what its class, and those it inherits from, declare."""

    MEMORY: ClassVar[tuple[Memory, ...]] = ()
    DERIVED: ClassVar[tuple[str, ...]] = ()

    def state(self) -> State:
        """A copy of all that must be remembered; later events leave it unchanged."""
        state = State()
        for memory in memory_of(type(self)):
            memory.save(self, state)
        return state

    def restore(self, state: State) -> None:
        """Become the one that returned this state."""
        for memory in memory_of(type(self)):
            memory.load(self, state)
        self.restored()

    def restored(self) -> None:
        """Work out anew what follows from what has just been restored."""


def memory_of(kind: type) -> tuple[Memory, ...]:
    """All that a class declares as remembered, what it inherits first: the order of saving and restoring."""
    return tuple(chain.from_iterable(one.__dict__.get("MEMORY", ()) for one in reversed(kind.__mro__)))


def derived_of(kind: type) -> frozenset[str]:
    """The attributes that a class, or one that it inherits from, declares as derived."""
    return frozenset(chain.from_iterable(one.__dict__.get("DERIVED", ()) for one in reversed(kind.__mro__)))


# --- kinds of memory --------------------------------------------------------------------------------------------
#
# The key is the attribute's name without its underscore, where no other is given. What is restored is a copy, and
# replaces what the attribute held: rows of it that were handed out stay as they were.


def plain(value: Any) -> Any:
    """A copy of a value as JSON has it: sets become sorted lists, tuples become lists."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def value(
    *attributes: str,
    key: str = "",
    underscored: bool = False,
    saved: Callable[[Any], Any] = plain,
    restored: Callable[[Any], Any] = plain,
) -> Memory:
    """Values that JSON can hold. `restored` makes a set, a tuple or anything else of the plain value again.

    With `underscored`, the keys are the attributes' names as they stand.
    """
    keys = {name: name if underscored else _key(name, key) for name in attributes}

    def save(owner: Any, state: State) -> None:
        for name, under in keys.items():
            state.values[under] = saved(getattr(owner, name))

    def load(owner: Any, state: State) -> None:
        for name, under in keys.items():
            setattr(owner, name, restored(state.values[under]))

    return Memory(attributes, save, load)


def array(
    attribute: str,
    key: str = "",
    in_place: bool = False,
    saved: Callable[[Any], NDArray[Any]] = lambda array: array,
    restored: Callable[[NDArray[Any]], Any] | None = None,
) -> Memory:
    """An array, of the type that the attribute has when its owner is built.

    With `in_place` it is written into the array that is there, which others may hold too. `saved` and `restored` make
    an array of something else, and that of the array again.
    """
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        state.put(under, saved(getattr(owner, attribute)))

    def load(owner: Any, state: State) -> None:
        if restored is not None:
            setattr(owner, attribute, restored(state.take(under)))
            return
        there: NDArray[Any] = getattr(owner, attribute)
        kept = state.take(under, there.dtype)
        if not in_place:
            setattr(owner, attribute, kept)
            return
        check_shape(under, kept.shape, there.shape)
        there[...] = kept

    return Memory((attribute,), save, load)


def large_arrays(key: str, *attributes: str, changes: str) -> Memory:
    """Arrays of the same rows, written into those that are there, as `array` does with `in_place`.

    `changes` names an attribute: a `ChangedRows` where the arrays are so large that a checkpoint has only what has
    changed since the one before it; None where they are saved whole.
    """
    keys = {name: _key(name, "") for name in attributes}

    def save(owner: Any, state: State) -> None:
        held = {under: getattr(owner, name) for name, under in keys.items()}
        changed: ChangedRows | None = getattr(owner, changes)
        if changed is not None:
            state.large[key] = HeldArrays(held, changed)
            return
        for under, array in held.items():
            state.put(under, array)

    def load(owner: Any, state: State) -> None:
        there = {under: getattr(owner, name) for name, under in keys.items()}
        changed: ChangedRows | None = getattr(owner, changes)
        if key in state.large:
            state.large[key].copy_into(there, changed)
            return
        for under, array in there.items():
            kept = state.take(under, array.dtype)
            check_shape(under, kept.shape, array.shape)
            array[...] = kept
        if changed is not None:
            changed.flags[:] = True
            changed.move()

    return Memory((*attributes, changes), save, load)


def check_shape(name: str, kept: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse an array of another run."""
    if kept != wanted:
        raise RunError(
            f"The saved state has {name!r} of shape {kept} where this run needs {wanted}. Resume with the data and the "
            "settings that the run was started with."
        )


def array_or_none(attribute: str, key: str = "", dtype: DTypeLike | None = None, flag: str = "") -> Memory:
    """An array that is absent while the attribute is None. With `flag`, a value of that name says which."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        held: NDArray[Any] | None = getattr(owner, attribute)
        if flag:
            state.values[flag] = held is not None
        if held is not None:
            state.put(under, held)

    def load(owner: Any, state: State) -> None:
        there = state.values[flag] if flag else under in state.tensors
        setattr(owner, attribute, state.take(under, dtype) if there else None)

    return Memory((attribute,), save, load)


def arrays(attribute: str, key: str = "", dtype: DTypeLike | None = None) -> Memory:
    """A list of arrays, each under its place."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        for place, held in enumerate(getattr(owner, attribute)):
            state.put(f"{under}.{place}", held)

    def load(owner: Any, state: State) -> None:
        part = state.part(under)
        setattr(owner, attribute, [part.take(str(place), dtype) for place in range(len(part.tensors))])

    return Memory((attribute,), save, load)


def tensors_by_number(attribute: str, key: str = "") -> Memory:
    """Tensors in a dictionary by number, as that of an exchange; a value holds the numbers in their order. What was
    saved before there were any has none."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        held: dict[int, torch.Tensor] = getattr(owner, attribute)
        state.values[under] = list(held)
        state.tensors.update({f"{under}.{number}": tensor.clone() for number, tensor in held.items()})

    def load(owner: Any, state: State) -> None:
        numbers: list[int] = state.values.get(under, [])
        setattr(owner, attribute, {number: state.tensors[f"{under}.{number}"].clone() for number in numbers})

    return Memory((attribute,), save, load)


def rows_by_number(attribute: str, key: str = "") -> Memory:
    """Positions of rows in a dictionary by number; what was saved before there were any has none."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        for number, rows in getattr(owner, attribute).items():
            state.put(f"{under}.{number}", rows)

    def load(owner: Any, state: State) -> None:
        held = state.part(under)
        setattr(owner, attribute, {int(number): held.take(number, np.uint32) for number in held.tensors})

    return Memory((attribute,), save, load)


def generator(attribute: str, key: str = "") -> Memory:
    """A source of randomness, with torch's `get_state` and `set_state`."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        state.tensors[under] = getattr(owner, attribute).get_state()

    def load(owner: Any, state: State) -> None:
        getattr(owner, attribute).set_state(state.tensors[under])

    return Memory((attribute,), save, load)


def weights(attribute: str, key: str = "") -> Memory:
    """A network or an optimiser, whose `state` is tensors by name and which takes them back by `load`; or None."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        held = getattr(owner, attribute)
        if held is not None:
            state.tensors.update({f"{under}.{name}": tensor for name, tensor in held.state().items()})

    def load(owner: Any, state: State) -> None:
        held = getattr(owner, attribute)
        if held is not None:
            held.load(state.part(under).tensors)

    return Memory((attribute,), save, load)


def part(attribute: str, key: str = "") -> Memory:
    """Another object that remembers, under a name of its own. None is remembered as None, and stays so."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        held: Remembers | None = getattr(owner, attribute)
        if held is None:
            state.values[under] = None
        else:
            state.add(under, held.state())

    def load(owner: Any, state: State) -> None:
        held: Remembers | None = getattr(owner, attribute)
        if (held is None) != (state.values.get(under, {}) is None):
            raise RunError(
                f"The saved state {'has' if held is None else 'lacks'} {under!r}, and this run does not. Resume with "
                "the settings that the run was started with."
            )
        if held is not None:
            held.restore(state.part(under))

    return Memory((attribute,), save, load)


def optional_part(attribute: str, key: str = "") -> Memory:
    """Another object that remembers, or None: then nothing is written, as earlier versions wrote nothing."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        held: Remembers | None = getattr(owner, attribute)
        if held is not None:
            state.add(under, held.state())

    def load(owner: Any, state: State) -> None:
        held: Remembers | None = getattr(owner, attribute)
        if held is not None and under in state.values:
            held.restore(state.part(under))

    return Memory((attribute,), save, load)


def parts(attribute: str, key: str = "{}") -> Memory:
    """Objects that remember, in a dictionary by name; `{}` in the key stands for the name."""

    def save(owner: Any, state: State) -> None:
        for name, held in getattr(owner, attribute).items():
            state.add(key.format(name), held.state())

    def load(owner: Any, state: State) -> None:
        for name, held in getattr(owner, attribute).items():
            held.restore(state.part(key.format(name)))

    return Memory((attribute,), save, load)


def included(attribute: str) -> Memory:
    """Another object that remembers, among the keys of its owner."""

    def save(owner: Any, state: State) -> None:
        held: State = getattr(owner, attribute).state()
        state.tensors.update(held.tensors)
        state.large.update(held.large)
        state.values.update(held.values)

    def load(owner: Any, state: State) -> None:
        getattr(owner, attribute).restore(state)

    return Memory((attribute,), save, load)


def packed(attribute: str, pack: Callable[[Any], State], unpack: Callable[[State], Any], key: str = "") -> Memory:
    """Anything that one function makes a state of, and another makes again of the state."""
    under = _key(attribute, key)

    def save(owner: Any, state: State) -> None:
        state.add(under, pack(getattr(owner, attribute)))

    def load(owner: Any, state: State) -> None:
        setattr(owner, attribute, unpack(state.part(under)))

    return Memory((attribute,), save, load)


def group(key: str, *members: Memory) -> Memory:
    """Some of the owner's attributes under one name."""

    def save(owner: Any, state: State) -> None:
        inside = State()
        for member in members:
            member.save(owner, inside)
        state.add(key, inside)

    def load(owner: Any, state: State) -> None:
        inside = state.part(key)
        for member in members:
            member.load(owner, inside)

    return Memory(tuple(chain.from_iterable(member.attributes for member in members)), save, load)


def custom(*attributes: str, save: Callable[[Any, State], None], load: Callable[[Any, State], None]) -> Memory:
    """The few that fit nothing else: two functions, given the owner and its whole state."""
    return Memory(attributes, save, load)


def _key(attribute: str, key: str) -> str:
    return key or attribute.removeprefix("_")
