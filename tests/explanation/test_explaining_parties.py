"""Parties that explain together, turned by hand and in runtimes: what one place finds, spent before it is sent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from command_line import colonnade as command
from command_line import draw_no_more, refused

import colonnade
from colonnade.data.federated import FederatedData
from colonnade.errors import ProtocolError, SettingsError
from colonnade.explanation.conversation import ExplainingLabelParty, ExplainingParty, build_explaining_party
from colonnade.explanation.explaining import explain_model
from colonnade.explanation.messages import (
    ColumnWorth,
    ExplainedRows,
    ExplanationStarted,
    ExplanationTotals,
    OutputGradient,
    PathEmbedding,
    ShuffledColumn,
)
from colonnade.explanation.seat import ExplanationSeat
from colonnade.explanation.settings import ExplainSettings
from colonnade.explanation.together import explanation_of
from colonnade.launch.explanation import seats_of
from colonnade.launch.outcome import Outcome
from colonnade.messages import Message, Stop
from colonnade.party import Received, Send, Spend, Started
from colonnade.runtimes.processes.fork_server import ForkServer
from colonnade.state import State
from colonnade.testing import HandTurnedParties

ASKED = ExplainSettings(repeats=2, steps=3, rows=20)


@pytest.fixture(scope="module")
def iris() -> FederatedData:
    return colonnade.dataset("iris", parties=2, label_party_columns=True)


@pytest.fixture(scope="module")
def trained(iris: FederatedData, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    clip = colonnade.PerturbationSettings(clip=2.0)
    out = tmp_path_factory.mktemp("trained") / "run"
    return colonnade.train(iris, "vafl", training=colonnade.Training(epochs=2, batch_size=16), privacy=clip, out=out)


def together(seats: dict[str, ExplanationSeat]) -> tuple[HandTurnedParties, dict[str, ExplainingParty]]:
    parties = {name: build_explaining_party(seat) for name, seat in seats.items()}
    turned = HandTurnedParties(parties)
    turned.start()
    return turned, parties


@pytest.mark.parametrize("algorithm", ["afsaga", "zoo"])
def test_every_family_comes_to_what_one_place_finds(algorithm: str, iris: FederatedData) -> None:
    outcome = colonnade.train(iris, algorithm, training=colonnade.Training(epochs=1, batch_size=16))
    alone = colonnade.explain(outcome, iris, ASKED)
    assert colonnade.explain(outcome, iris, ASKED, runtime="simulate") == alone


def test_a_party_that_is_restored_at_any_event_comes_to_the_same(iris: FederatedData, trained: Outcome) -> None:
    alone = explain_model(trained.model, iris, ASKED)
    seats = seats_of(trained.model, iris, ASKED)
    turned, parties = together(seats)
    pairs = [(one, other) for one in seats for other in seats if iris.label_party in (one, other) and one != other]
    while waiting := [pair for pair in pairs if turned.waiting(*pair)]:
        turned.deliver(*waiting[0])
        name = waiting[0][1]
        parties[name], before = build_explaining_party(seats[name]), parties[name]
        parties[name].restore(before.state())
        turned.parties[name] = parties[name]
    assert turned.finished == set(seats)
    assert explanation_of(parties, alone.epsilon) == alone
    # What one party knows is what one place would have shown it.
    for name, party in parties.items():
        found = explanation_of({name: party})
        assert found is not None and found.of(name) == alone.of(name)


def test_processes_come_to_the_same(trained: Outcome, iris: FederatedData, fork_server: ForkServer) -> None:
    from parties import SupervisedForkServer

    with mock.patch("colonnade.launch.processes.fork_server_for", lambda module: SupervisedForkServer(fork_server)):
        found = colonnade.explain(trained, iris, ASKED, runtime="processes")
    assert found == explain_model(trained.model, iris, ASKED)


NOISE = {"noise": 5.0, "clip": 1.0}


def noised(trained: Outcome, iris: FederatedData, **more: Any) -> dict[str, ExplanationSeat]:
    """As if the same model had been trained with noise."""
    import msgspec

    seats = seats_of(trained.model, iris, ASKED, **more)
    for name, seat in seats.items():
        description = msgspec.structs.replace(seat.model.description, privacy=NOISE, clip=1.0)
        model = type(seat.model)(description, seat.model.modules)
        seats[name] = ExplanationSeat(
            *(seat.name, seat.label_party, seat.parties, model, seat.asked, seat.secret, seat.seed, seat.places),
            *(seat.rows, seat.groups, seat.labels, seat.tells),
        )
    return seats


def test_noised_variants_are_spent_before_they_are_sent(trained: Outcome, iris: FederatedData) -> None:
    seats = noised(trained, iris)
    turned, parties = together(seats)
    turned.settle()
    effects = turned.effects["party1"]
    kinds = [
        type(one) if isinstance(one, Spend) else type(one.message) for one in effects if isinstance(one, Spend | Send)
    ]
    columns = len(iris.columns["party1"].names)
    assert kinds == [Spend, ExplainedRows, *([Spend, Spend, ShuffledColumn] * columns)]
    event = next(one.event for one in effects if isinstance(one, Spend))
    assert (event.noise, event.sensitivity, event.rows) == (5.0, 2.0, 20)
    assert event.protects == "columns of party1, test rows"
    assert not parties["party1"].walked, "a noised way has no gradient"
    sent = [one.message for one in effects if isinstance(one, Send)]
    again = build_explaining_party(noised(trained, iris)["party1"]).handle(Started(0.0))
    assert not np.array_equal(again[-1].message.embedding, sent[0].embedding), "noise is drawn anew"  # type: ignore[union-attr]


def test_where_labels_are_protected_nobody_else_is_told_a_loss(trained: Outcome, iris: FederatedData) -> None:
    turned, parties = together(seats_of(trained.model, iris, ASKED, tells=False))
    turned.settle()
    assert turned.finished == set(parties)
    told = [type(one.message) for one in turned.effects[iris.label_party] if isinstance(one, Send)]
    assert set(told) == {ExplanationStarted, Stop}
    assert explanation_of({"party1": parties["party1"]}) is None
    found = explanation_of({iris.label_party: parties[iris.label_party]})
    assert found is not None and found.told == (iris.label_party,) and found.columns[iris.label_party]
    assert "party1 is told nothing" in found.learnt["party1"]


# --- what is refused, and changes nothing -------------------------------------------------------------------------

FEW = np.zeros((20, 1))


def begun(seats: dict[str, ExplanationSeat], *heard: Message) -> ExplainingParty:
    party = build_explaining_party(seats["party1"])
    party.handle(Started(0.0))
    for message in heard:
        party.handle(Received(0.0, seats["party1"].label_party, message))
    return party


GO = ExplanationStarted(1, 1)
ALONE = ExplanationStarted(0, 1)


@pytest.mark.parametrize(
    ("heard", "message"),
    [
        ([], OutputGradient(0, FEW)),
        ([], ColumnWorth(0, 0.0, 0.0)),
        ([], ExplanationTotals(0.0, 0.0, 8, np.zeros((3, 4)))),
        ([GO], GO),
        ([GO], OutputGradient(1, FEW)),
        ([GO], OutputGradient(0, FEW)),
        ([GO], ColumnWorth(0, 0.0, 0.0)),
        ([ALONE], ColumnWorth(1, 0.0, 0.0)),
        ([ALONE], PathEmbedding(0, FEW)),
        ([ALONE, ColumnWorth(0, 0.0, 0.0), ColumnWorth(1, 0.0, 0.0)], ExplanationTotals(0.0, 0.0, 8, np.zeros((2, 4)))),
        ([], ExplanationStarted(1, 0)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else str(len(value)),
)
def test_a_feature_party_refuses(iris: FederatedData, trained: Outcome, heard: list[Message], message: Message) -> None:
    seats = seats_of(trained.model, iris, ASKED)
    party = begun(seats, *heard)
    unchanged(party, seats["party1"].label_party, message)
    unchanged(party, "party2", GO)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rows: ExplainedRows(rows.embedding[1:], rows.stand_in, rows.columns, 1),
        lambda rows: ExplainedRows(rows.embedding[:, 1:], rows.stand_in[:, 1:], rows.columns, 1),
        lambda rows: ExplainedRows(rows.embedding, rows.stand_in, 101, 1),
        lambda rows: ExplainedRows(rows.embedding, rows.stand_in, -1, 1),
        lambda rows: ExplainedRows(rows.embedding, rows.embedding[:2], rows.columns, 1),
        lambda rows: PathEmbedding(0, rows.embedding),
        lambda rows: ShuffledColumn(0, rows.embedding),
        lambda rows: GO,
    ],
)
def test_the_label_party_refuses(
    iris: FederatedData, trained: Outcome, wrong: Callable[[ExplainedRows], Message]
) -> None:
    seats = seats_of(trained.model, iris, ASKED)
    label = build_explaining_party(seats[iris.label_party])
    right = {name: build_explaining_party(seats[name]).handle(Started(0.0))[-1] for name in ("party1", "party2")}
    first = right["party1"].message  # type: ignore[union-attr]
    unchanged(label, "party1", wrong(first))
    unchanged(label, "stranger", first)
    label.handle(Received(0.0, "party1", first))
    unchanged(label, "party1", first)
    label.handle(Received(0.0, "party2", right["party2"].message))  # type: ignore[union-attr]
    assert isinstance(label, ExplainingLabelParty)
    path = PathEmbedding(0, first.embedding)
    unchanged(label, "party1", PathEmbedding(1, first.embedding))
    unchanged(label, "party1", ShuffledColumn(0, np.tile(first.embedding, (2, 1))))
    label.handle(Received(0.0, "party1", path))
    unchanged(label, "party1", path)


def unchanged(party: ExplainingParty, sender: str, message: Message) -> None:
    before = party.state()
    with pytest.raises(ProtocolError):
        party.handle(Received(0.0, sender, message))
    same(before, party.state())


def same(one: State, other: State) -> None:
    assert one.values == other.values
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def test_what_is_too_large_for_a_message_is_refused_before(trained: Outcome, iris: FederatedData) -> None:
    with pytest.raises(SettingsError, match=r"take \d+ MB in one message"):
        seats_of(trained.model, iris, ExplainSettings(repeats=1_000_000))


def test_wrong_calls_are_named(trained: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_no_more(monkeypatch)
    run = trained.directory
    assert run is not None
    assert "--model is for one party over the network" in refused("explain", run, "--model", "x")
    assert "--show-products is for one party" in refused("explain", run, "--show-products")
    party = tmp_path / "party.toml"
    assert "leave them out" in refused("explain", run, "--party", party, "--runtime", "simulate")
    assert "give 0 or more" in refused("explain", run, "--steps", "-1")
    with pytest.raises(SettingsError, match="There is no runtime 'carrier'"):
        colonnade.explain(trained, colonnade.dataset("iris", parties=2, label_party_columns=True), runtime="carrier")
    assert command("explain", "--help").code == 0
