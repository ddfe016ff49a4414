"""What `colonnade attack` measured, as a table, as JSON and as a page."""

import math
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import RunError

if TYPE_CHECKING:
    from rich.table import Table

    from colonnade.data import FederatedData
    from colonnade.trials.attack import Measurement, Trials
    from colonnade.trials.attacked import Federated


def as_values(
    name: str,
    data: "FederatedData",
    trials: "Trials",
    lines: "list[Measurement]",
    seconds: float,
    attacked: "Sequence[Federated]",
) -> dict[str, Any]:
    from colonnade.reports.summary import versions

    return {
        "name": name,
        "data": data.name,
        "rows": [line.as_values() for line in lines],
        "training_rows": data.rows,
        "trials": trials.count,
        "seed": trials.seed,
        "seconds": round(seconds, 1),
        "settings": alike(attacked),
        "versions": versions(),
    }


def alike(attacked: "Sequence[Federated]") -> dict[str, Any]:
    """The settings that all of them have; in what they differ, the lines of the table say."""
    from colonnade.reports.amounts import flat_settings

    told = [
        flat_settings(
            {
                part: {"name": one.name, **asdict(settings)} if part == "algorithm" else asdict(settings)
                for part in ("algorithm", "training", "bottom", "top", "privacy")
                if is_dataclass(settings := getattr(one, part)) and not isinstance(settings, type)
            }
        )
        for one in attacked
    ]
    return {key: value for key, value in told[0].items() if all(one.get(key) == value for one in told)}


def draw(folder: Path, result: dict[str, Any]) -> None:
    from colonnade.reports.attack_page import attack_plots
    from colonnade.reports.page_parts import write_figures

    write_figures(folder, attack_plots(result))


def write(out: Path, result: dict[str, Any]) -> Path:
    from colonnade.files import SHARED, json_text, make_folder, write_atomically
    from colonnade.reports.attack_page import attack_page

    page = out / "report.html"
    try:
        make_folder(out, exist_ok=False)
        write_atomically(out / "attack.json", json_text(result))
        write_atomically(page, attack_page(result).encode(), SHARED)
    except OSError as error:
        raise RunError(
            f"The directory {out} could not be written: {error.strerror}. Free some space, or choose another one with "
            "--out."
        ) from None
    return page


def table_of(name: str, data: "FederatedData", lines: "list[Measurement]", trials: int) -> "Table":
    from rich.table import Table

    several = f"{trials} trials" if trials > 1 else "1 trial"
    every = list(dict.fromkeys(key for line in lines for key in line.conditions))
    # What is the same in all lines stands below the table, which would grow wider than a terminal otherwise.
    conditions = [
        key for key in every if any(line.conditions.get(key) != lines[0].conditions.get(key) for line in lines)
    ]
    same = ", ".join(f"{key} {_condition(lines[0].conditions[key])}" for key in every if key not in conditions)
    table = Table(title=f"{name} on {data.name}: {data.rows:,} training rows, {several}", caption=same or None)
    for heading in ("algorithm", "adversary"):
        table.add_column(heading, overflow="fold")
    beside = list(dict.fromkeys(key for line in lines for key in line.beside))
    for heading in (*conditions, lines[0].measure, *beside):
        table.add_column(heading, justify="right", no_wrap=heading == lines[0].measure)
    for line in lines:
        share = line.measure == "success"
        table.add_row(
            line.algorithm,
            line.adversary,
            *(_condition(line.conditions[key]) if key in line.conditions else "–" for key in conditions),
            f"{_number(line.mean, share)} ± {_number(line.deviation, share)}",
            *(_number(line.beside[key], share or key == "joint model") for key in beside),
        )
    return table


def _condition(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _number(value: float, share: bool) -> str:
    if math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if share else f"{value:.3f}"
