"""When a pair of trees hides what is summed: Definition 1 of AFSGD-VP, and what no single party can subtract, exactly.

Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty Collaborative
Learning", Algorithm 2. `different_pair` makes trees that meet both for any number of parties.
"""

from collections.abc import Sequence

from colonnade.algorithms.linear_models.parts.trees import Tree


def significantly_different(one: Tree, other: Tree) -> bool:
    """Definition 1: no subtree of more than one party, yet not of all, has the same members in both trees.

    The paper's workers are leaves; here a node is a party, and a subtree's members take the leaves' place. One set is
    let through: everybody but the root. Only the root ever sees its sum, which is the total that the root asked for
    less its own number, and without that exception no three parties had a pair of trees.

    Single parties do not count, which is why this alone is too weak: see `hides`.
    """
    assert one.root == other.root and set(one.parties) == set(other.parties)
    return not _proper_subtrees(one) & _proper_subtrees(other)


def hides(one: Tree, other: Tree) -> bool:
    """Whether no party, alone, learns anything of the products but the root the total over all others.

    Let party v see Σ_S(product + mask) for its children's member sets S in the first tree, and Σ_R mask for its
    children's R in the second. The masks are uniform, so what v learns of the products is Σ_ℓ x_ℓ product_ℓ for exactly
    those x that are combinations both of the S and of the R. The S are disjoint, and so are the R: x is constant on
    each of them, and zero outside the S and outside the R. Sets that meet therefore share one constant, and the
    x are spanned by those unions of S that are at the same time unions of R, which holds in Z_2^64 as over the
    rationals. A party other than the root must have none; the root one, everybody else. (v's own numbers are in none
    of these sums, so knowing them does not help.)

    Colluding parties are another matter: two that see the same set in different trees can subtract. Where that is
    feared, use pairwise masks.
    """
    assert one.root == other.root and set(one.parties) == set(other.parties)
    for name in one.parties:
        learns = _shared_unions(
            [one.members(c) for c in one.children(name)], [other.members(c) for c in other.children(name)]
        )
        entitled = [frozenset(one.parties) - {name}] if name == one.root else []
        if any(union not in entitled for union in learns):
            return False
    return True


def _shared_unions(seen: Sequence[frozenset[str]], subtracted: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """The smallest non-empty sets that are unions of both; each argument's sets are disjoint."""
    found = []
    left = list(seen)
    while left:
        union = left.pop()
        covered: frozenset[str] = frozenset()
        while union != covered:  # add whatever meets the union, from both sides, until nothing does
            covered = union
            union = union.union(*(part for part in (*seen, *subtracted) if part & union))
        left = [part for part in left if not part & union]
        if all(sum(map(len, _within(parts, union))) == len(union) for parts in (seen, subtracted)):
            found.append(union)
    return found


def _within(parts: Sequence[frozenset[str]], union: frozenset[str]) -> list[frozenset[str]]:
    return [part for part in parts if part <= union]


def _proper_subtrees(tree: Tree) -> set[frozenset[str]]:
    subtrees = {tree.members(name) for name in tree.parent}
    return {members for members in subtrees if 1 < len(members) < len(tree.parties) - 1}
