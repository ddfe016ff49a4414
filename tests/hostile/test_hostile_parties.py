"""Whatever one peer sends, a party takes it or refuses it: with a ProtocolError that names the sender, and unchanged.

And whatever it sends in masses, a party remembers no more than a bound. `COLONNADE_HOSTILE_EXAMPLES` asks for more
examples of each algorithm than the few that are tried by default.
"""

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lying_peer import TRAINING, BesiegedFederation, besiege, bytes_of, counted_on
from papers_form import papers_form

from colonnade.algorithms import ALGORITHMS, Algorithm
from colonnade.errors import ProtocolError
from colonnade.messages import Message
from colonnade.party import Party, Received
from colonnade.testing import TinyFederation, tiny_data

EXAMPLES = int(os.environ.get("COLONNADE_HOSTILE_EXAMPLES", "4"))
SPEAKING = {name: row for name, row in ALGORITHMS.items() if row.conversation is not None}
LESSONS = {
    name: row
    for name, row in SPEAKING.items()
    if row.linear_party and row.conversation is not None and row.conversation.asynchronous
}
MOST_KEPT_BYTES = 20_000
"""In place of the 32 MiB that a party keeps for a peer, so that a flood in a test reaches it."""
MOST_GROWTH_BYTES = 4 * MOST_KEPT_BYTES

every_algorithm = pytest.mark.parametrize("row", SPEAKING.values(), ids=list(SPEAKING))


@every_algorithm
@given(number=st.integers(0, 2**32))
@example(number=13)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), print_blob=False)
def test_a_lie_is_taken_or_refused_and_nobody_else_pays(row: Algorithm, number: int) -> None:
    besiege(row, number)


@pytest.mark.parametrize("row", LESSONS.values(), ids=list(LESSONS))
@given(number=st.integers(0, 2**32))
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), print_blob=False)
def test_a_lie_where_one_sum_teaches_everybody(row: Algorithm, number: int) -> None:
    besiege(row, number, updates="everybody")


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        pytest.param(row, kept, id=f"{kept}-{name}")
        for name, row in SPEAKING.items()
        for kept in (("one", "everywhere") if row.linear_party else ("one",))
    ]
    + [pytest.param(LESSONS[name], "everybody", id=f"everybody-{name}") for name in ("afsaga", "asysqn-svrg")],
)
def test_a_flood_of_any_kind_leaves_no_more_behind_than_a_bound(
    row: Algorithm, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.algorithms.linear_models.parts.block_party.MOST_KEPT_BYTES", MOST_KEPT_BYTES)
    linear = {"sums": "plain" if kept == "everywhere" else "two-tree"} if row.linear_party else {}
    linear |= {"updates": kept} if kept == "everybody" else {"labels": kept} if row.linear_party else {}
    plan = TinyFederation(tiny_data(), papers_form(row.name, **linear), TRAINING)
    whole = BesiegedFederation(plan, "nobody", 0, lies=0.0)
    whole.run(2000)
    for turns in (5, 12, 60):  # while they meet, at the first messages, in the middle
        for pairs in with_each_victim_once([*whole.said]):
            federation = BesiegedFederation(plan, "nobody", 0, lies=0.0)
            federation.run(turns)
            for liar, victim in pairs:
                said, party = whole.said[liar, victim], federation.parties[victim]
                before = bytes_of(party.state())
                for kind in {type(message) for message in said}:
                    template = next(message for message in reversed(said) if type(message) is kind)
                    flood(party, federation.now, liar, template)
                grown = bytes_of(party.state()) - before
                assert grown < MOST_GROWTH_BYTES, f"{victim} remembers {grown} bytes more for {liar}"


def with_each_victim_once(pairs: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """The pairs of liar and victim in groups for one federation each: a flood changes nobody but its victim."""
    groups: list[list[tuple[str, str]]] = []
    for pair in pairs:
        for group in groups:
            if all(victim != pair[1] for _, victim in group):
                group.append(pair)
                break
        else:
            groups.append([pair])
    return groups


def flood(party: Party, now: float, liar: str, template: Message) -> None:
    """Such messages, counted on, until one is refused: then their sender is out."""
    for number in range(400):
        try:
            party.handle(Received(now, liar, counted_on(template, number)))
        except ProtocolError:
            return
