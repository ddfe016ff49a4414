"""`colonnade tune`: better settings for a federation, chosen on held-out training rows."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import Workers, json_option
from colonnade.cli.output import console, interrupted
from colonnade.exit_codes import ExitCode


def tune(
    federation: Annotated[
        Path, typer.Argument(metavar="FEDERATION.toml", help="The file to begin with.", show_default=False)
    ],
    trials: Annotated[int, typer.Option(help="How many combinations of settings to begin with.")] = 12,
    seed: Annotated[int, typer.Option(help="Of the choice of trials.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The search's directory. Default: tunes/FEDERATION.", show_default=False)
    ] = None,
    workers: Workers = None,
    validation: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the training rows on which trials are compared.")
    ] = 0.2,
    resume: Annotated[bool, typer.Option("--resume", help="Keep trials that have finished, run the others.")] = False,
    as_json: Annotated[bool, json_option("Print what tune.json holds, and nothing else.")] = False,
) -> None:
    """Search for better settings: rate, batch, width, uploads in flight; of linear models, batch and penalty."""
    from colonnade.cli.progress import SweepProgress
    from colonnade.reports.tune_page import verdict, write_tune
    from colonnade.trials.tune import TUNED
    from colonnade.trials.tune import tune as run_tune

    directory = out or Path("tunes") / federation.stem
    with (
        interrupted("Trials that had finished are kept: give the same command again with --resume.", ExitCode.STOPPED),
        SweepProgress(quiet=as_json) as progress,
    ):
        result = run_tune(
            federation,
            out=directory,
            trials=trials,
            seed=seed,
            workers=workers,
            resume=resume,
            validation=validation,
            finished=progress.finished,
        )
        page = write_tune(directory, result)
    if as_json:
        print(json.dumps(result))
        return
    console.print(verdict(result), markup=False, soft_wrap=True)
    console.print(f"Settings: {directory / TUNED}", markup=False, soft_wrap=True)
    console.print(f"Report:   {page}", markup=False, soft_wrap=True)
