"""Trees along which parties add their numbers up to the party that asked, and what a party in them can work out.

Every party is a node: it adds its own number to the sums of its children and passes the result to its parent. Under
`two-tree` masks the first tree carries Σ(product + mask), the second Σ mask. A parent sees its children's sums in both,
so a pair of trees is only as good as what no single party can subtract (tests/algorithms/tree_secrecy.py).

Reference: B. Gu, A. Xu, Z. Huo, C. Deng, H. Huang, "Privacy-preserving asynchronous vertical federated learning
algorithms for multiparty collaborative learning", 2021, Definition 1 and Lemma 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from colonnade.errors import SettingsError, unknown_name


@dataclass(frozen=True)
class Tree:
    """Who passes sums to whom; the root is the party that asked.

    >>> chain = Tree("r", {"a": "r", "b": "a"})
    >>> chain.children("a"), sorted(chain.members("a"))
    (('b',), ['a', 'b'])
    """

    root: str
    parent: Mapping[str, str] = field(hash=False)  # of every party but the root
    _children: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _members: dict[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parent = dict(self.parent)
        children: dict[str, list[str]] = {name: [] for name in (self.root, *parent)}
        for name, above in parent.items():
            if above not in children:
                raise unknown_name("party in the tree", above, children)
            children[above].append(name)
        downwards = [self.root]
        if self.root not in parent:  # or the walk would go around for ever
            for name in downwards:  # grows while it is read: parents before their children
                downwards.extend(children[name])
        if len(downwards) != len(children):
            raise SettingsError(
                f"These parents make no tree under {self.root!r}: some party is above itself. Give every party "
                "but the root one parent, so that each path upwards ends at the root."
            )
        members: dict[str, frozenset[str]] = {}
        for name in reversed(downwards):
            members[name] = frozenset((name,)).union(*(members[child] for child in children[name]))
        object.__setattr__(self, "parent", MappingProxyType(parent))
        object.__setattr__(self, "_children", {name: tuple(below) for name, below in children.items()})
        object.__setattr__(self, "_members", members)

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody, the root first."""
        return tuple(self._children)

    @property
    def depth(self) -> int:
        """How many messages follow one another from the lowest party to the root."""
        depths = {self.root: 0}
        downwards = [self.root]
        for name in downwards:
            depths.update((child, depths[name] + 1) for child in self._children[name])
            downwards.extend(self._children[name])
        return max(depths.values())

    def children(self, name: str) -> tuple[str, ...]:
        """Whose sums this party waits for."""
        return self._children[name]

    def members(self, name: str) -> frozenset[str]:
        """Whose numbers are in the sum that this party passes on: its own and those of everybody below it."""
        return self._members[name]


def balanced(parties: Sequence[str], root: str, arity: int) -> Tree:
    """A tree in which every party has up to `arity` children; with arity ≥ q − 1 it is a star.

    The parties stand in their given order, turned so that it begins with the root: another root loads other parties.

    >>> balanced(["a", "b", "c", "d"], "b", 2).parent
    mappingproxy({'c': 'b', 'd': 'b', 'a': 'c'})
    """
    if arity < 1:
        raise SettingsError(f"A tree of arity {arity} cannot be built; give every party at least 1 child.")
    return _balanced(tuple(parties), root, arity)


@lru_cache(maxsize=1024)
def _balanced(parties: tuple[str, ...], root: str, arity: int) -> Tree:
    """Parties in one place make the same trees, each for itself."""
    return Tree(root, _heap(_from_root(parties, root), arity))


def different_pair(parties: Sequence[str], root: str) -> tuple[Tree, Tree]:
    """Two trees for `two-tree` masks that are significantly different and hide, both of depth 1 + ⌊log2(q − 1)⌋.

    Below the root stands a binary heap of the m = q − 1 others: in order in the first tree, in reverse in the second.

    They hide: a heap of m has children at its first ⌊m/2⌋ places only, so nobody but the root has children in both
    trees, and whoever has none in one tree sees nothing there to subtract. The root has one child in each: it sees the
    total over all others, and nothing else.

    They are significantly different: number the others 0, …, m − 1. A subtree of more than one party that is not the
    whole heap has, in the second tree, a largest number at least 2 above its second largest (place k ≥ 1 has its first
    child at 2k + 1). In the first tree the numbers of a subtree's lowest level follow one another, so its two largest
    do, unless that level is cut off after one party; then this party is m − 1, which in the second tree is the top of
    the heap, in no smaller subtree.

    >>> one, other = different_pair(["r", "a", "b"], "r")
    >>> dict(one.parent), dict(other.parent)
    ({'a': 'r', 'b': 'a'}, {'b': 'r', 'a': 'b'})
    """
    order = _from_root(parties, root)
    if len(order) < 3:
        raise SettingsError(
            f"Two different trees need at least 3 parties; there are {len(order)}. Of two, each learns the other's "
            "number from the sum itself, so no mask can help: train without masks, or find a third party."
        )
    others = order[1:]
    return _below(root, others), _below(root, others[::-1])


def _from_root(parties: Sequence[str], root: str) -> list[str]:
    if len(set(parties)) != len(parties):
        raise SettingsError("A party is named twice among those of a tree. Name each once.")
    if root not in parties:
        raise unknown_name("party in the tree", root, parties)
    first = parties.index(root)
    return [*parties[first:], *parties[:first]]


def _heap(order: Sequence[str], arity: int) -> dict[str, str]:
    """Parents in the layout of a heap: place k is above the places k·arity + 1, …, k·arity + arity."""
    return {name: order[(place - 1) // arity] for place, name in enumerate(order) if place}


def _below(root: str, order: Sequence[str]) -> Tree:
    return Tree(root, {order[0]: root, **_heap(order, 2)})
