"""A verb as one party over the network: its file, its log, what ends it, and how it is asked to stop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.cli.output import interrupted
from colonnade.cli.party_log import last_words, set_up_logging

if TYPE_CHECKING:
    from colonnade.federation.party_file import PartyFile


@contextmanager
def one_party(party: Path, again: str) -> "Iterator[tuple[PartyFile, Callable[[], bool]]]":
    """The party's own file, and whether a stop was asked for. `again`: the command to go on with."""
    from colonnade.federation.party_file import read_party_file
    from colonnade.runtimes.interrupt import stop_on_interrupt

    own = read_party_file(party)
    set_up_logging(own.party.log, own.party.name)
    with (
        last_words(own.party.log),
        interrupted(f"Continue with: {again}"),
        stop_on_interrupt(quiet=own.party.log == "json") as stop,
    ):
        yield own, stop
