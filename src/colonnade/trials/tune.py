"""Better settings than the file's, by successive halving: many trials for a few epochs, the best third for more.

Every trial is a simulated run on the training rows, scored on a part of them that it does not train on: with the file's
links, and with the compute times that the file declares or that are measured here. The file as it is stays among the
trials to the end, so that what the search gained is known. The best alone is scored on the test rows.
"""

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade.algorithms.row import Family
from colonnade.algorithms.training import AUTO
from colonnade.data import load
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError
from colonnade.federation.file import Federation, federation_values, read_federation
from colonnade.files import json_text, read_whole, toml_of, write_atomically
from colonnade.reports.rundir import SMALLER_IS_BETTER
from colonnade.trials.compute_times import MeasuredTimes
from colonnade.trials.sweep import (
    VALIDATION,
    Cell,
    CellFinished,
    CellOptions,
    as_toml,
    cell_of,
    on_test_rows,
    open_directory,
    run_cells,
)

TRIALS = 12
RUNGS = 3
KEPT = 3  # of so many trials one goes on, for so many times the epochs
TUNED = "tuned.toml"
TIMES = "compute.json"


def tune(
    federation: str | Path,
    *,
    out: str | Path,
    trials: int = TRIALS,
    seed: int = 0,
    workers: int | None = None,
    resume: bool = False,
    validation: float = VALIDATION,
    finished: CellFinished | None = None,
) -> dict[str, Any]:
    """Search for better settings, write `tuned.toml` and return what tune.json holds.

    A script that calls this must not do so while it is imported: put the call under `if __name__ == "__main__":`.
    """
    file, directory = Path(federation), Path(out)
    if trials < 2:
        raise SettingsError(f"{trials} trials leave nothing to choose from: give at least 2.")
    if not 0 < validation < 1:
        raise SettingsError(f"The validation part is {validation} of the training rows; give a share between 0 and 1.")
    settings = read_federation(file)
    _check_budget(settings)
    base = file.resolve().parent
    data = load(settings.data, settings.party_data(), settings.label_party, base)
    space = search_space(settings, data)
    open_directory(directory, resume)
    how = CellOptions(str(base), validation, workers)
    declared = toml_of(read_whole(file)).get("simulate", {})
    times = MeasuredTimes(directory / TIMES, data.held_out(validation), declared)

    def trial(changes: dict[str, str], epochs: float) -> Cell:
        cell = cell_of(file, changes, settings.seed, directory / f"epochs-{epochs:g}", [f"training.epochs={epochs:g}"])
        return replace(cell, values=times.given_to(changes, cell.values))

    plain = {name: values[0] for name, values in space.items()}  # the file as it is
    left = candidates(space, trials, random.Random(seed))
    rungs: list[dict[str, Any]] = []
    for epochs in epochs_of_rungs(settings.training.epochs):
        cells = [trial(one, epochs) for one in left]
        told = run_cells(cells, directory, how, finished)
        rungs.append({"epochs": epochs, "trials": told})
        places = ranked(told)
        kept = [told[place]["changes"] for place in places[: math.ceil(len(left) / KEPT)]]
        left = [plain, *(one for one in kept if one != plain)]  # of equals the first is the better: no change
    if not places:
        raise SettingsError(why_none_is_the_best(told))
    best = told[places[0]]
    changed = {name: value for name, value in best["changes"].items() if value != plain[name]}
    tested = on_test_rows(cells[places[0]], directory, how.base)
    unchanged = next(one for one in told if one["changes"] == plain)
    result = {
        "metric_name": best["metric_name"],
        "before": unchanged["metric"],
        "after": best["metric"],
        "virtual_seconds": [unchanged["virtual_seconds"], best["virtual_seconds"]],
        "test": tested["metric"],
        "changes": changed,
        "compute_seconds": times.of(best["changes"], cells[places[0]].values),
        "rungs": rungs,
    }
    write_atomically(directory / "tune.json", json_text(result))
    write_atomically(directory / TUNED, with_changes(read_whole(file).decode(), changed).encode())
    return result


def why_none_is_the_best(trials: Sequence[Mapping[str, Any]]) -> str:
    """Of trials that all failed, or could not be scored."""
    if all(one["why"] for one in trials):
        return f"No trial came to its end. The first said: {trials[0]['why']}"
    metric = next(one["metric_name"] for one in trials if not one["why"])
    return (
        f"Of the rows that were held out {metric} cannot be told, since none of them is of some class. Hold out more "
        "(--validation), or choose another training.metric."
    )


def _check_budget(settings: Federation) -> None:
    if (settings.privacy.labels_epsilon or settings.privacy.columns_epsilon) and not settings.data.set:
        raise SettingsError(
            "This federation has a privacy target, and every trial would release its rows anew. Tune it on a public or "
            "generated data set of the same shape (data.set), and keep the settings."
        )


def search_space(settings: Federation, data: FederatedData) -> dict[str, list[str]]:
    """What is tried of which settings, as `--set` takes it; first what the file says, or leaves to the algorithm."""
    plan = settings.plan(data)
    given = federation_values(settings)
    decided, found = plan.training, {}

    def tried(name: str, values: Sequence[Any]) -> None:
        section, _, setting = name.partition(".")
        own = as_toml(given.get(section, {}).get(setting, AUTO))
        found[name] = list(dict.fromkeys([own, *(as_toml(value) for value in values)]))

    sizes = {max(1, min(data.rows, round(decided.batch_size * factor))) for factor in (0.25, 0.5, 2, 4)}
    tried("training.batch_size", sorted(sizes))
    if plan.chosen.family is Family.LINEAR:
        tried("training.l2", [float(f"{factor / data.rows:.2g}") for factor in (0.1, 0.3, 3, 10)])
        return found
    if decided.optimiser == "scale-free":
        tried("training.optimiser", ["scale-free"])
    tried("training.learning_rate", [float(f"{decided.learning_rate * factor:.2g}") for factor in (0.1, 0.3, 3, 10)])
    tried("bottom.embedding", [8, 16, 32])
    tried("bottom.hidden", [(32,), (64,), (128,)])
    if hasattr(settings.algorithm, "in_flight"):
        tried("algorithm.in_flight", [1, 2, 4])
    return found


def candidates(space: Mapping[str, Sequence[str]], trials: int, chance: random.Random) -> list[dict[str, str]]:
    """The first of everything, then others drawn at random, none twice; fewer if there are no more."""
    chosen = [{name: values[0] for name, values in space.items()}]
    possible = math.prod(len(values) for values in space.values())
    while len(chosen) < min(trials, possible):
        one = {name: chance.choice(values) for name, values in space.items()}
        if one not in chosen:
            chosen.append(one)
    return chosen


def epochs_of_rungs(epochs: float) -> list[float]:
    """
    >>> epochs_of_rungs(20), epochs_of_rungs(2)
    ([2.2, 6.7, 20], [2])
    """
    shorter = [float(f"{epochs / KEPT**turn:.2g}") for turn in range(RUNGS - 1, 0, -1)]
    return [*(one for one in shorter if one >= 1), epochs]


def ranked(trials: Sequence[Mapping[str, Any]]) -> list[int]:
    """The places of those that finished, the best first; of equals the quicker, and of these the first.

    Equal are metrics with the same four digits, as pages show them, and times within about a tenth.
    """
    known = [place for place, one in enumerate(trials) if one["metric"] is not None]
    smaller = bool(known) and trials[known[0]]["metric_name"] in SMALLER_IS_BETTER

    def rank(place: int) -> tuple[float, float]:
        metric, seconds = float(f"{trials[place]['metric']:.4g}"), trials[place]["virtual_seconds"]
        return metric if smaller else -metric, round(math.log(seconds, 1.1)) if seconds else 0.0

    return sorted(known, key=rank)


def with_changes(text: str, changes: Mapping[str, str]) -> str:
    """A federation.toml with these settings changed or added, and every other line as it is.

    >>> print(with_changes("[training]\\nepochs = 3  # few\\n", {"training.epochs": "5", "bottom.hidden": "[8]"}))
    [training]
    epochs = 5
    <BLANKLINE>
    [bottom]
    hidden = [8]
    <BLANKLINE>
    """
    lines = text.splitlines()
    for name, value in changes.items():
        section, _, setting = name.partition(".")
        shown = value if re.fullmatch(r"[-+0-9.e]+|\[.*\]|true|false", value) else json.dumps(value)
        line = f"{setting} = {shown}"
        heads = [place for place, one in enumerate(lines) if one.split("#")[0].strip() == f"[{section}]"]
        if not heads:
            lines += ["", f"[{section}]", line]
            continue
        later = [place for place in range(heads[0] + 1, len(lines)) if lines[place].lstrip().startswith("[")]
        end = later[0] if later else len(lines)
        own = [place for place in range(heads[0] + 1, end) if re.match(rf"\s*{setting}\s*=", lines[place])]
        if own:
            lines[own[0]] = line
        else:
            lines.insert(heads[0] + 1, line)
    return "\n".join(lines) + "\n"
