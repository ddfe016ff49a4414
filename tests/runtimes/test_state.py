"""What is declared as remembered comes back as it was, whatever it is, also through a checkpoint's files."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array
from numpy.typing import NDArray

from colonnade.algorithms.parts.kept_messages import messages
from colonnade.errors import RunError
from colonnade.messages import EmbeddingUpload
from colonnade.state import (
    Remembering,
    State,
    array,
    array_or_none,
    arrays,
    custom,
    derived_of,
    generator,
    group,
    included,
    memory_of,
    packed,
    part,
    parts,
    plain,
    tensors_by_number,
    value,
    weights,
)

UNSIGNED = st.sampled_from([np.uint32, np.uint64])
ANY_KIND = st.sampled_from([np.uint32, np.uint64, np.int32, np.int64, np.float32, np.float64, np.bool_])
NAMES = st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES, inside, max_size=3),
    max_leaves=8,
)


def some_array(kind: Any, dimensions: int = 2) -> st.SearchStrategy[NDArray[Any]]:
    return any_array(kind, st.tuples(*[st.integers(0, 3)] * dimensions))


def saved(owner: Remembering) -> State:
    """Its state, as a checkpoint's JSON gives it back."""
    state = owner.state()
    return State(state.tensors, json.loads(json.dumps(state.values)))


class Counter(Remembering):
    MEMORY = (value("count"),)

    def __init__(self, count: int = 0) -> None:
        self.count = count


class Weighing:
    """As a network or an optimiser: its state is tensors by name."""

    def __init__(self, *numbers: float) -> None:
        self.tensor = torch.tensor(numbers)

    def state(self) -> dict[str, torch.Tensor]:
        return {"layer.weight": self.tensor.clone()}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        self.tensor.copy_(state["layer.weight"])


def one(memory: Any, **attributes: Any) -> Any:
    """Something that remembers just this."""
    owner = type("Owner", (Remembering,), {"MEMORY": (memory,)})()
    for name, held in attributes.items():
        setattr(owner, name, held)
    return owner


@given(JSON)
def test_a_value_comes_back(given: Any) -> None:
    before, after = one(value("_it"), _it=given), one(value("_it"), _it=None)
    assert before.state().values == {"it": given}
    after.restore(saved(before))
    assert after._it == given


@given(st.sets(NAMES), st.tuples(st.booleans(), st.integers()), st.dictionaries(NAMES, st.integers()))
def test_sets_and_tuples_become_what_they_were(names: set[str], pair: tuple[bool, int], counts: dict[str, int]) -> None:
    class Owner(Remembering):
        MEMORY = (value("names", restored=set), value("_pair", restored=tuple), value("counts", key="n"))

        def __init__(self) -> None:
            self.names, self._pair, self.counts = names, pair, counts

    before, after = Owner(), Owner()
    after.names, after._pair, after.counts = set(), (False, 0), {}
    assert before.state().values == {"names": sorted(names), "pair": list(pair), "n": counts}
    after.restore(saved(before))
    assert (after.names, after._pair, after.counts) == (names, pair, counts)


@given(st.data(), ANY_KIND, st.booleans())
def test_an_array_comes_back(data: st.DataObject, kind: Any, in_place: bool) -> None:
    given = data.draw(some_array(kind))
    before = one(array("_it", in_place=in_place), _it=given)
    after = one(array("_it", in_place=in_place), _it=np.zeros(given.shape if in_place else 0, kind))
    there = after._it
    after.restore(saved(before))
    assert after._it.dtype == kind
    np.testing.assert_array_equal(after._it, given)
    assert (after._it is there) == in_place


@given(st.data(), UNSIGNED, st.booleans(), st.sampled_from(["", "it", "has"]))
def test_an_array_or_none_comes_back(data: st.DataObject, kind: Any, present: bool, flag: str) -> None:
    given = data.draw(some_array(kind)) if present else None
    memory = array_or_none("_it", dtype=kind, flag=flag)
    before, after = one(memory, _it=given), one(memory, _it=np.ones(2, kind) if data.draw(st.booleans()) else None)
    assert before.state().values == ({flag: present} if flag else {})
    after.restore(saved(before))
    assert (after._it is None) == (given is None)
    if given is not None:
        np.testing.assert_array_equal(after._it, given)


@given(st.data(), UNSIGNED)
def test_many_arrays_come_back_in_their_order(data: st.DataObject, kind: Any) -> None:
    given = data.draw(st.lists(some_array(kind, 1), max_size=12))  # beyond ten: places are numbers, not words
    before, after = one(arrays("_it", dtype=kind), _it=given), one(arrays("_it", dtype=kind), _it=[])
    after.restore(saved(before))
    assert [held.dtype for held in after._it] == [kind] * len(given)
    assert [held.tolist() for held in after._it] == [held.tolist() for held in given]


@given(st.dictionaries(st.integers(0, 99), st.lists(st.floats(-1, 1, width=32), max_size=3), max_size=4))
def test_tensors_by_number_come_back_in_their_order(numbers: dict[int, list[float]]) -> None:
    given = {number: torch.tensor(one) for number, one in numbers.items()}
    before, after = one(tensors_by_number("_it"), _it=given), one(tensors_by_number("_it"), _it={})
    after.restore(saved(before))
    assert list(after._it) == list(given) and all(torch.equal(after._it[key], given[key]) for key in given)


@given(st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_a_generator_goes_on_where_it_was(seed: int, drawn: int) -> None:
    before = one(generator("_it"), _it=torch.Generator().manual_seed(seed))
    torch.rand(drawn, generator=before._it)
    after = one(generator("_it"), _it=torch.Generator())
    after.restore(saved(before))
    assert torch.equal(torch.rand(3, generator=after._it), torch.rand(3, generator=before._it))


@given(st.integers(), st.integers(), st.booleans())
def test_parts_come_back_each_under_its_name(first: int, second: int, there: bool) -> None:
    memory = (part("_a"), part("_absent"), parts("_of", "bottom of {}"), included("_b"), group("g", part("_c", "x")))

    def owner(first: int, second: int) -> Any:
        made: Any = type("Owner", (Remembering,), {"MEMORY": memory})()
        made._a, made._b, made._c = Counter(first), Counter(second), Counter(first)
        made._absent = Counter(second) if there else None
        made._of = {"ann": Counter(first), "bob": Counter(second)}
        return made

    before, after = owner(first, second), owner(0, 0)
    assert before.state().values == {
        "a": {"count": first},
        "absent": {"count": second} if there else None,
        "bottom of ann": {"count": first},
        "bottom of bob": {"count": second},
        "count": second,
        "g": {"x": {"count": first}},
    }
    after.restore(saved(before))
    assert after.state() == before.state()


def test_weights_go_into_the_tensors_that_are_there() -> None:
    before, after = (
        one(weights("_it", "model"), _it=Weighing(1.0, 2.0)),
        one(weights("_it", "model"), _it=Weighing(0, 0)),
    )
    there = after._it.tensor
    after.restore(saved(before))
    assert list(before.state().tensors) == ["model.layer.weight"]
    assert after._it.tensor is there and there.tolist() == [1.0, 2.0]
    nothing = one(weights("_it", "model"), _it=None)
    nothing.restore(saved(nothing))
    assert nothing.state() == State()


def test_messages_come_back_by_place_and_by_sender() -> None:
    rows, embedding = np.array([2**32 - 1, 0], np.uint32), np.ones((2, 3), np.float32)
    upload = EmbeddingUpload(7, rows, embedding)
    for memory, held, nothing in (
        (messages("_it"), [("ann", upload), ("ann", upload)], []),
        (messages("_it", restored=dict), {"ann": upload, "bob": upload}, {}),
    ):
        before, after = one(memory, _it=held), one(memory, _it=nothing)
        after.restore(saved(before))
        assert type(after._it) is type(held) and len(after._it) == 2
        again = dict(after._it)["ann"]
        assert again.exchange == 7 and again.rows.dtype == np.uint32 and again.rows.tolist() == rows.tolist()


def test_what_fits_nothing_else_has_functions_of_its_own() -> None:
    turned = packed("_it", lambda it: State(values={"twice": it * 2}), lambda state: state.values["twice"] // 2)
    apart = custom(
        "_it",
        save=lambda owner, state: state.values.update(minus=-owner._it),
        load=lambda owner, state: setattr(owner, "_it", -state.values["minus"]),
    )
    for memory, values in ((turned, {"it": {"twice": 6}}), (apart, {"minus": -3})):
        before, after = one(memory, _it=3), one(memory, _it=0)
        assert before.state().values == values
        after.restore(saved(before))
        assert after._it == 3


def test_a_state_is_a_copy_and_so_is_what_is_restored() -> None:
    class Owner(Remembering):
        MEMORY = (value("names", "counts"), array("rows"), tensors_by_number("looked"))

        def __init__(self) -> None:
            self.names, self.counts = [["ann"]], {"bob": [1]}
            self.rows, self.looked = np.arange(3, dtype=np.uint32), {1: torch.zeros(2)}

        def change(self) -> None:
            self.names[0][0], self.counts["bob"][0], self.rows[0] = "eve", 2, 9
            self.looked[1] += 1

    owner, untouched = Owner(), Owner().state()
    state = owner.state()
    owner.change()
    assert plain(state.values) == untouched.values and state.tensors["rows"].tolist() == [0, 1, 2]
    owner.restore(state)
    owner.change()
    assert state.values == untouched.values and state.tensors["rows"].tolist() == [0, 1, 2]
    assert state.tensors["looked.1"].tolist() == [0.0, 0.0]


def test_a_class_remembers_what_it_inherits_first() -> None:
    class Twice(Counter):
        MEMORY = (value("_double", underscored=True),)
        DERIVED = ("_told",)

        def __init__(self) -> None:
            super().__init__(1)
            self._double, self._told = 2, 0

        def restored(self) -> None:
            self._told = self.count + self._double

    before, after = Twice(), Twice()
    before.count, before._double = 5, 10
    assert [memory.attributes for memory in memory_of(Twice)] == [("count",), ("_double",)]
    assert derived_of(Twice) == {"_told"} and derived_of(Counter) == frozenset()
    assert before.state() == State(values={"count": 5, "_double": 10})
    after.restore(saved(before))
    assert after._told == 15


def test_an_array_of_another_run_is_refused() -> None:
    state = State()
    state.put("it", np.zeros(3, np.uint32))
    with pytest.raises(RunError, match="as int32 where this run needs uint64"):
        one(array("_it"), _it=np.zeros(3, np.uint64)).restore(state)
    with pytest.raises(RunError, match=r"of shape \(3,\) where this run needs \(4,\)"):
        one(array("_it", in_place=True), _it=np.zeros(4, np.uint32)).restore(state)
