"""More epochs for a run that has finished: what may be asked for, and what it costs.

The run goes on with the models that it ended with, in the same directory: records and the ledger go on, and nothing is
reset. What its noise was chosen for cannot be stretched: noise that keeps a target over some epochs does not keep it
over more.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade.costs.noise import calibrated
from colonnade.errors import SettingsError
from colonnade.federation.plan import Facts, Plan
from colonnade.files import json_of, read_private, read_whole, toml_of, write_atomically

EPOCHS = "training.epochs"
"""The setting that may grow."""


def is_longer(before: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether these settings plan more epochs than those before."""
    epochs = [values.get("training", {}).get("epochs") for values in (before, settings)]
    return all(isinstance(one, int | float) for one in epochs) and epochs[1] > epochs[0]


def check_finished(directory: Path) -> None:
    """Refuse to extend a run that has not come to its end, or whose trace is of one plan."""
    try:
        summary = json_of(read_private(directory / "summary.json"))
        finished = isinstance(summary, dict) and summary.get("status") == "finished"
    except (OSError, ValueError):
        finished = False
    if not finished:
        raise SettingsError(
            f"The run in {directory} has not finished: resume it without {EPOCHS}, then ask for more epochs."
        )
    if (directory / "trace").exists():
        raise SettingsError(
            f"The run in {directory} was traced, and a trace is of one plan: start a new run from its model (--from)."
        )


def only_longer(before: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether these settings are those before with more epochs, and nothing else."""
    if not is_longer(before, settings):
        return False
    training = {**before["training"], "epochs": settings["training"]["epochs"]}
    return {**before, "training": training} == settings


def write_longer(directory: Path, digests: str, settings: bytes, digest: str) -> None:
    """Write down that the plan is longer now, so that it is done again if this is interrupted.

    `digests`: the file that says what the run is made of; `settings`: the federation.toml, whose digest is given.
    """
    kept = json_of(read_private(directory / digests))
    extension = int(kept.get("extension", 0)) + 1
    write_atomically(directory / digests, json.dumps({**kept, "longer": digest}).encode())
    write_atomically(directory / "federation.toml", settings)
    kept = {**kept, "settings": digest, "extension": extension}
    kept.pop("longer", None)
    write_atomically(directory / digests, json.dumps(kept).encode())


def check_noise(directory: Path, plan: Plan, agreed: Plan, facts: Facts) -> None:
    """Refuse more epochs with noise that was chosen for fewer. `plan`: as it was asked for; `agreed`: with noise."""
    try:
        epochs = toml_of(read_whole(directory / "federation.toml"))["training"]["epochs"]
        before = replace(plan, training=replace(plan.training, epochs=epochs))
    except (OSError, ValueError, KeyError, TypeError):
        return  # what is wrong with the directory is said when it is opened
    if epochs >= plan.training.epochs:
        return
    had = calibrated(before, facts)
    if (had.privacy, had.algorithm) == (agreed.privacy, agreed.algorithm):
        return
    targets = [name for name in ("labels_epsilon", "columns_epsilon") if getattr(plan.privacy, name) > 0]
    kept = " and ".join(f"privacy.{name} = {getattr(plan.privacy, name):g}" for name in targets)
    raise SettingsError(
        f"The noise of the run in {directory} was chosen so that {epochs:g} epochs keep {kept}; with it, "
        f"{plan.training.epochs:g} epochs would not. What was released cannot be taken back: start a new run, and "
        "count what this one's ledger says as spent."
    )
