"""Figures of privacy as rows for people: one line for adversaries with the same ε, conditions by number.

The figures are those of summary.json, in which a `sound` of null is ε = ∞.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.reports.amounts import number, significant

HEADS = ("what is protected", "against whom", "claimed ε", "sound ε", "conditions")
OBSERVED = "observed ε ≥"
_MOST_NAMED = 3
ANYBODY = "every other party, alone or together, and anybody on the wire"


def epsilon(value: Any) -> str:
    """
    >>> epsilon(7.99999), epsilon(None)
    ('8', '∞')
    """
    found = number(value)
    return "∞" if found is None else significant(found)


def claimed_epsilon(figure: Mapping[str, Any]) -> str:
    """By the paper's formula; by both readings of it, where there are two.

    >>> claimed_epsilon({"claimed": 1.0}), claimed_epsilon({"claimed": 1.0, "claimed_otherwise": 11.26})
    ('1', '1 or 11.26')
    """
    readings = [number(figure.get("claimed")), number(figure.get("claimed_otherwise"))]
    if readings[1] is None:
        return significant(readings[0])
    return " or ".join(significant(one) for one in readings)


def heads(figures: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Of the columns of `figure_rows`: what an audit observed is one of them only where there was an audit."""
    return (*HEADS[:-1], OBSERVED, HEADS[-1]) if _audited(figures) else HEADS


def figure_rows(figures: Sequence[Mapping[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """A row for each direction and each different figure in it; and the conditions, numbered from 1 in the rows."""
    audited = _audited(figures)
    conditions = list(dict.fromkeys(words for figure in figures for words in _words(figure)))
    same: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for figure in figures:
        sound, conditional = epsilon(figure.get("sound")), number(figure.get("conditional"))
        observed = number(figure.get("observed"))
        key = (
            str(figure.get("direction")),
            claimed_epsilon(figure),
            sound if conditional is None else f"{sound} (conditional: {significant(conditional)})",
            *(["not audited" if observed is None else significant(observed)] if audited else []),
        )
        same.setdefault(key, []).append(figure)
    directions = [key[0] for key in same]
    rows = []
    for (direction, *epsilons), members in same.items():
        everybody = directions.count(direction) == 1 and len(members) > 1
        against = ANYBODY if everybody else "; ".join(str(one.get("adversary")) for one in members)
        numbers = sorted({1 + conditions.index(words) for one in members for words in _words(one)})
        rows.append([direction, against, *epsilons, ", ".join(map(str, numbers))])
    return rows, conditions


def _audited(figures: Sequence[Mapping[str, Any]]) -> bool:
    return any(figure.get("observed") is not None for figure in figures)


def _words(figure: Mapping[str, Any]) -> list[str]:
    words = figure.get("conditions")
    return [str(one) for one in words] if isinstance(words, list) else []


def in_one_line(privacy: Mapping[str, Any]) -> str:
    """The `privacy` of summary.json in one line: the worst direction in which anything was noised, and those without.

    >>> in_one_line({"events": [], "figures": []})
    'no value noised: ε = ∞'
    """
    if not privacy.get("events"):
        return "no value noised: ε = ∞"
    if not privacy.get("figures"):
        return "values noised; what that costs was not computed"
    conditional = number(privacy.get("conditional"))
    words = [f"ε = {epsilon(privacy.get('sound'))} for {privacy.get('direction')}"]
    words += [] if conditional is None else [f"conditionally {significant(conditional)}"]
    words += [] if number(privacy.get("claimed")) is None else [f"claimed {claimed_epsilon(privacy)}"]
    words += [] if (delta := number(privacy.get("delta"))) is None else [f"δ = {delta:g}"]
    words += ["by the paper's formula"] if privacy.get("formula") == "paper" else []
    words += _without_protection(privacy)
    return "; ".join(words)


def _without_protection(privacy: Mapping[str, Any]) -> list[str]:
    """
    >>> _without_protection({"unprotected": ["labels of bank", "columns of a", "columns of b", "columns of c"]})
    ['not protected (ε = ∞): labels of bank, columns of a, columns of b and 1 more']
    """
    found = privacy.get("unprotected")
    named = privacy.get("direction")  # it stands in front already
    names = [str(one) for one in found if one != named] if isinstance(found, list) else []
    if not names:
        return []
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return [f"not protected (ε = ∞): {', '.join(names[:_MOST_NAMED])}{more}"]
