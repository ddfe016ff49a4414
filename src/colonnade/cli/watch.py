"""`colonnade watch`: a page about runs that go on or have ended; and the same beside `run` and `join`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import console, interrupted, tell


def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…", help="Runs' directories; several are drawn over one another.", show_default=False
        ),
    ],
    party: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Show what this party sees of the run, and nothing else.", show_default=False
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the page is served; port 0: one that is free.")
    ] = "127.0.0.1:0",
) -> None:
    """Show runs on a live page: parties, curves, messages, budgets, log; pause, resume and stop them there."""
    from colonnade.runtimes.interrupt import stop_on_interrupt
    from colonnade.watching.program import serve_page
    from colonnade.watching.runs import check_runs

    check_runs(runs)
    _warn_if_open(address)
    with interrupted("The page is no longer served."), stop_on_interrupt(quiet=True) as stop:
        serve_page(runs, party, address, _begun, stop)


@contextmanager
def page_for(directory: Path, watched: bool, address: str) -> Iterator[None]:
    """With `--watch`: the page about this run, while it goes on."""
    if not watched:
        yield
        return
    from colonnade.watching.program import page_beside

    _warn_if_open(address)
    with page_beside(directory, address) as shown:
        tell(f"Watch it at {shown}")
        yield


def _begun(shown: str) -> None:
    console.print(shown, markup=False, highlight=False, soft_wrap=True)
    tell("Whoever has this address sees the runs and can stop them. Ctrl-C ends the page, not the runs.")


def _warn_if_open(address: str) -> None:
    from colonnade.watching.program import is_loopback

    if not is_loopback(address):
        tell(
            f"The page is served on {address}, beyond this machine and without encryption: who can read the traffic "
            "can read its address, and with it see and stop the runs. An SSH tunnel to 127.0.0.1 is safer."
        )
