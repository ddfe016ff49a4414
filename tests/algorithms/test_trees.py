"""Trees of sums: their shape, and what a party in two of them can work out, against plain linear algebra."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_secrecy import hides, significantly_different

from colonnade.algorithms.linear_models.parts.trees import Tree, balanced, different_pair
from colonnade.errors import SettingsError

NAMES = [f"p{place:02}" for place in range(40)]


@st.composite
def any_tree(draw: st.DrawFn, parties: int) -> Tree:
    """Any tree at all under p00."""
    order = ["p00", *draw(st.permutations(NAMES[1:parties]))]
    return Tree("p00", {name: order[draw(st.integers(0, k))] for k, name in enumerate(order[1:])})


@st.composite
def any_two_trees(draw: st.DrawFn) -> tuple[Tree, Tree]:
    parties = draw(st.integers(2, 7))
    return draw(any_tree(parties)), draw(any_tree(parties))


def freedom_of_what_is_learnt(one: Tree, other: Tree, name: str) -> int:
    """dim(span S ∩ span R) = rank S + rank R − rank (S over R), rows being the member sets that a party sees."""

    def seen(tree: Tree) -> np.ndarray:
        rows = [[float(p in tree.members(c)) for p in sorted(tree.parties)] for c in tree.children(name)]
        return np.array(rows).reshape(len(rows), len(tree.parties))

    first, second = seen(one), seen(other)
    ranks = [np.linalg.matrix_rank(m) if len(m) else 0 for m in (first, second, np.vstack([first, second]))]
    return int(ranks[0] + ranks[1] - ranks[2])


# --- shape ------------------------------------------------------------------------------------------------------


def test_a_balanced_tree_begins_after_its_root() -> None:
    tree = balanced(["a", "b", "c", "d", "e"], "d", 2)  # d, e, a, b, c
    assert dict(tree.parent) == {"e": "d", "a": "d", "b": "e", "c": "e"}
    assert tree.children("d") == ("e", "a") and tree.children("a") == ()
    assert tree.members("e") == {"e", "b", "c"} and tree.members("d") == set("abcde")
    assert tree.parties[0] == "d" and tree.depth == 2


def test_arity_one_is_a_chain_and_a_large_arity_a_star() -> None:
    assert dict(balanced(["r", "a", "b", "c"], "r", 1).parent) == {"a": "r", "b": "a", "c": "b"}
    assert set(balanced(["r", "a", "b", "c"], "r", 3).parent.values()) == {"r"}
    assert balanced(["r"], "r", 3).parties == ("r",)


@given(st.integers(1, 40), st.integers(1, 5), st.data())
def test_a_balanced_tree_reaches_everybody_in_logarithmic_depth(parties: int, arity: int, data: st.DataObject) -> None:
    names = NAMES[:parties]
    root = data.draw(st.sampled_from(names))
    tree = balanced(names, root, arity)
    assert tree.members(root) == set(names) == set(tree.parties)
    assert max(len(tree.children(name)) for name in names) <= arity
    assert sum(len(tree.members(child)) for child in tree.children(root)) == parties - 1
    if arity > 1:
        assert tree.depth <= math.log(parties, arity) + 1


def test_the_same_parents_make_the_same_tree_and_cannot_be_changed() -> None:
    parents = {"a": "r", "b": "a"}
    tree = Tree("r", parents)
    assert tree == Tree("r", {"a": "r", "b": "a"}) and hash(tree) == hash(Tree("r", dict(parents)))
    assert tree != Tree("r", {"a": "r", "b": "r"})
    parents["b"] = "r"
    assert tree.parent["b"] == "a"


@pytest.mark.parametrize("parents", [{"a": "b", "b": "a"}, {"a": "a"}, {"r": "a", "a": "r"}])
def test_a_circle_is_no_tree(parents: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="no tree under 'r'"):
        Tree("r", parents)


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"no party in the tree 'bank_a'\. Did you mean 'bank-a'\?"):
        balanced(["bank-a", "shop"], "bank_a", 2)
    with pytest.raises(SettingsError, match="no party in the tree 'x'"):
        Tree("r", {"a": "x"})
    with pytest.raises(SettingsError, match="arity 0"):
        balanced(["a", "b"], "a", 0)
    with pytest.raises(SettingsError, match="named twice"):
        balanced(["a", "b", "a"], "b", 2)


# --- what can be worked out -------------------------------------------------------------------------------------


def test_definition_1_looks_at_subtrees_of_more_than_one_party() -> None:
    one = Tree("r", {"a": "r", "b": "a", "c": "r"})  # {a, b} below the root
    assert not significantly_different(one, Tree("r", {"b": "r", "a": "b", "c": "r"}))
    assert significantly_different(one, Tree("r", {"b": "r", "c": "b", "a": "r"}))
    # everybody but the root, seen by the root alone, is no leak
    assert significantly_different(Tree("r", {"a": "r", "b": "a"}), Tree("r", {"b": "r", "a": "b"}))


def test_definition_1_alone_hides_nothing_in_two_stars() -> None:
    """The smallest case: three parties, the same star twice. The root sees a's product + mask, and a's mask."""
    star = balanced(["r", "a", "b"], "r", 2)
    assert significantly_different(star, star)
    assert not hides(star, star)


def test_a_parent_may_subtract_sums_of_several_children() -> None:
    """No set is seen twice, yet v sees {a, b} and {c, d} masked, and the masks of {a, c} and {b, d}."""
    one = Tree("r", {"v": "r", "a": "v", "b": "a", "c": "v", "d": "c", "e": "v"})
    other = Tree("r", {"v": "r", "a": "v", "c": "a", "b": "v", "d": "b", "e": "r"})
    assert significantly_different(one, other)
    assert not hides(one, other)
    without_d = Tree("r", {"v": "r", "a": "v", "c": "a", "b": "v", "d": "r", "e": "r"})
    assert hides(one, without_d)  # what v sees of the masks no longer covers d


def test_hiding_from_single_parties_is_not_definition_1_either() -> None:
    """a sees {b, c} in one tree, r in the other: only together could they subtract."""
    one, other = Tree("r", {"a": "r", "b": "a", "c": "b"}), Tree("r", {"a": "r", "c": "r", "b": "c"})
    assert hides(one, other)
    assert not significantly_different(one, other)


@given(any_two_trees())
def test_hiding_is_what_linear_algebra_says(trees: tuple[Tree, Tree]) -> None:
    one, other = trees
    learnt = {name: freedom_of_what_is_learnt(one, other, name) for name in one.parties}
    # the root always learns the total over all others: one number
    assert hides(one, other) == (learnt.pop("p00") == 1 and not any(learnt.values()))


@given(any_two_trees())
def test_where_trees_hide_nobody_sees_a_set_in_both(trees: tuple[Tree, Tree]) -> None:
    """The conclusion of Lemma 1 for every single party, and for single members too."""
    one, other = trees
    if not hides(one, other):
        return
    for name in one.parties:
        seen_twice = {one.members(c) for c in one.children(name)} & {other.members(c) for c in other.children(name)}
        assert seen_twice <= ({frozenset(one.parties) - {name}} if name == one.root else set())


# --- a pair that holds ------------------------------------------------------------------------------------------


@given(st.integers(3, 40), st.data())
def test_a_different_pair_is_different_and_hides(parties: int, data: st.DataObject) -> None:
    names = data.draw(st.permutations(NAMES[:parties]))
    root = data.draw(st.sampled_from(names))
    one, other = different_pair(names, root)
    assert significantly_different(one, other) and hides(one, other)
    assert set(one.parties) == set(other.parties) == set(names)
    assert one.depth == other.depth == 1 + int(math.log2(parties - 1))


@pytest.mark.parametrize("parties", range(3, 65))
def test_every_size_has_a_different_pair(parties: int) -> None:
    one, other = different_pair([str(place) for place in range(parties)], "0")
    assert significantly_different(one, other) and hides(one, other)


def test_three_parties_stand_in_two_chains() -> None:
    one, other = different_pair(["a", "r", "b"], "r")
    assert dict(one.parent) == {"b": "r", "a": "b"} and dict(other.parent) == {"a": "r", "b": "a"}


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_fewer_than_three_parties_have_no_pair(names: list[str]) -> None:
    with pytest.raises(SettingsError, match="at least 3 parties"):
        different_pair(names, "a")
