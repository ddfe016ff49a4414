"""`colonnade replay`: a recorded run played again, to the same models."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import json_option
from colonnade.cli.output import console, interrupted


def replay(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The directory of a run made with --trace.", show_default=False)
    ],
    party: Annotated[
        Path | None,
        typer.Option(
            "--party",
            metavar="PARTY.toml",
            help="Of a network run: the file of the party whose directory it is.",
            show_default=False,
        ),
    ] = None,
    party_timeout: Annotated[
        float | None,
        typer.Option(
            help="Of a network run: the --party-timeout of its label party, if any.", min=0, show_default=False
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="PyTorch threads, as of the run.", min=1)] = 1,
    as_json: Annotated[bool, json_option("Print one object, {run, parties}.")] = False,
) -> None:
    """Give fresh parties every event of a run's traces: each effect must be the recorded one, each model the saved one.

    Nothing is written. Exit code 1 says that something differs, and at which event.
    """
    found = {}
    with interrupted("Nothing was written."):
        from colonnade.federation.party_file import read_party_file
        from colonnade.launch.replay import replay_run

        for one in replay_run(run, None if party is None else read_party_file(party), party_timeout, threads):
            found[one.party] = {"events": one.events, "model": "the same" if one.is_compared else "not compared"}
            if not as_json:
                model = "the same model" if one.is_compared else "no checkpoint of the trace's end to compare with"
                console.print(
                    f"{one.party}: {one.events:,} events, the same effects, {model}", markup=False, soft_wrap=True
                )
    if as_json:
        print(json.dumps({"run": str(run), "parties": found}))
