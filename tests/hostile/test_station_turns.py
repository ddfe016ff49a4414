"""Peers are served in turn: who floods a party takes its own share, and the order of each peer's frames is kept."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from peer import besieged, seen

from colonnade.messages import Message
from colonnade.testing import FakeCarrier, letter, question, says
from colonnade.wire.codec import encode


def order_of(town: FakeCarrier, start: str) -> list[int]:
    return [int(what.split()[1]) for what in seen(town, "bank") if what.startswith(start)]


@pytest.mark.parametrize("flood", [letter, question])
def test_who_comes_after_a_flood_is_served_within_a_few_turns(tmp_path: Path, flood: Callable[[int], Message]) -> None:
    town, mole = besieged(tmp_path, {"bank": lambda: says({}), "shop": lambda: says({})})
    with closing(town):
        bank, shop = town.stations["bank"], town.stations["shop"]
        for number in range(100):
            mole.send(flood(number))
        for number in range(100, 110):
            shop.transmit("bank", encode(letter(number)), type(letter(1)))
        town.write("shop")
        town.carry("shop", "bank")
        turns = 0
        while "letter 109" not in seen(town, "bank"):
            bank.turn()
            turns += 1
        assert turns <= 20  # every other piece of work is the shop's
        assert len(seen(town, "bank")) < 45  # and of the flood one question a turn besides
        while bank.queue_depth():
            bank.turn()
        assert [n for n in order_of(town, "letter") if n >= 100] == [*range(100, 110)]
        name = "letter" if flood is letter else "question"
        assert [n for n in order_of(town, name) if n < 100] == [*range(100)]


def test_a_peer_is_not_read_beyond_its_share_while_others_wait(tmp_path: Path) -> None:
    town, mole = besieged(tmp_path, {"bank": lambda: says({}), "shop": lambda: says({})})
    with closing(town):
        bank, shop = town.stations["bank"], town.stations["shop"]
        for number in range(40):
            assert bank.wants_more("mole")  # alone, it may have more
            mole.send(letter(number))
        shop.transmit("bank", encode(letter(100)), type(letter(1)))
        town.write("shop")
        town.carry("shop", "bank")
        assert not bank.wants_more("mole")
        assert bank.wants_more("shop")
        while "letter 100" not in seen(town, "bank"):
            bank.turn()
        assert bank.wants_more("mole")


def test_order_within_a_peer_is_kept_whatever_it_mixes(tmp_path: Path) -> None:
    town, mole = besieged(tmp_path, {"bank": lambda: says({}), "shop": lambda: says({})})
    with closing(town):
        for number, one in enumerate([letter, question, question, letter, question, letter, letter, question]):
            mole.send(one(number))
        town.settle()
        handled = [int(what.split()[1]) for what in seen(town, "bank")[1:]]
        assert handled == [*range(8)]
