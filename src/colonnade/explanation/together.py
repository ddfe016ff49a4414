"""What explaining parties have found, as an explanation: of all of them, or what one of them knows."""

from collections.abc import Mapping

from colonnade.explanation.conversation import ExplainingLabelParty, ExplainingParty
from colonnade.explanation.results import Explanation, ExplanationDisclosure, learnt_by_explaining


def explanation_of(
    parties: Mapping[str, ExplainingParty], epsilon: Mapping[str, float | None] | None = None
) -> Explanation | None:
    """By these parties at their end; None: they were told nothing, since labels are protected.

    `epsilon`: what one row's columns have cost each feature party by now.
    """
    first = next(iter(parties.values()))
    totals, seat = first.totals, first.seat
    if totals is None:
        return None
    label = parties.get(seat.label_party)
    if isinstance(label, ExplainingLabelParty):  # it knows how often it was asked, and by whom
        shuffled = {name: label.shuffled_by(name) for name in seat.feature_parties}
    else:
        shuffled = {name: len(one.columns()) for name, one in parties.items()}
    told = tuple(dict.fromkeys([*seat.order, seat.label_party])) if first.tells else (seat.label_party,)
    return Explanation(
        label_party=seat.label_party,
        task=seat.model.description.task,
        part=seat.asked.part,
        rows=len(seat.places),
        totals=totals,
        columns={name: parties[name].columns() for name in seat.order if name in parties},
        left_out={name: parties[name].left_out for name in seat.order if name in parties},
        evaluations=label.evaluations if isinstance(label, ExplainingLabelParty) else 0,
        learnt={name: learnt_by_explaining(name, count, taken_by(first)) for name, count in shuffled.items()},
        epsilon=dict(epsilon or {}),
        told=tuple(name for name in told if name in parties),
        tells=first.tells,
    )


def taken_by(party: ExplainingParty) -> ExplanationDisclosure:
    """What it took, as a party at its end knows it."""
    seat = party.seat
    return ExplanationDisclosure(
        seat.label_party,
        seat.asked,
        len(seat.places),
        parties=len(seat.order),
        walked=party.walked,
        noised=seat.privacy.noise > 0,
        products=not seat.model.description.widths,
        tells=party.tells,
    )
