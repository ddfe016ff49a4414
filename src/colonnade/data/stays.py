"""Stays in intensive care as series: what was measured in each of the first 48 hours (PhysioNet Challenge 2012).

A stay is a file of lines `hh:mm,parameter,value`. Of each quantity there are two columns: its last value, which stays
until the next one, and whether it was measured in this hour, which tells by itself: sick people are measured more
often. Before a first value there is a gap. What is known at admission is the same in every hour.
"""

import tarfile
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

HOURS = 48
QUANTITIES = {
    "monitor": ("HR", "SysABP", "DiasABP", "MAP", "NISysABP", "NIDiasABP", "NIMAP", "RespRate", "Temp"),
    "ward": ("GCS", "Urine", "Weight", "MechVent", "FiO2"),
    "gases": ("pH", "PaO2", "PaCO2", "SaO2", "Lactate", "HCO3", "K", "Na", "Glucose"),
    "laboratory": (
        *("Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol", "Creatinine"),
        *("HCT", "Mg", "Platelets", "TroponinI", "TroponinT", "WBC"),
    ),
}
"""What is measured, by who measures it in a hospital."""
ADMISSION = ("Age", "Gender", "Height")
UNITS = 4
"""Kinds of intensive care; one column each."""


def columns_of(measured_by: str) -> tuple[str, ...]:
    """The columns of one of QUANTITIES; the ward also knows what was asked at admission.

    >>> columns_of("ward")[:4]
    ('GCS', 'GCS_measured', 'Urine', 'Urine_measured')
    """
    own = tuple(name for quantity in QUANTITIES[measured_by] for name in (quantity, f"{quantity}_measured"))
    return own + (_AT_ADMISSION if measured_by == "ward" else ())


_AT_ADMISSION = (*ADMISSION, *(f"unit{1 + unit}" for unit in range(UNITS)))
COLUMNS = tuple(name for who in QUANTITIES for name in columns_of(who))
_PLACE = {name: place for place, name in enumerate(COLUMNS)}


class Stays(NamedTuple):
    """Series [stays, columns, hours] with NaN for gaps, and who died in hospital."""

    series: NDArray[np.float32]
    died: NDArray[np.int64]


def read_stays(whole: IO[bytes]) -> dict[str, Stays]:
    """The parts "a" and "b" of a tar of set-a/, set-b/, Outcomes-a.txt and Outcomes-b.txt; stays by their ids."""
    series: dict[str, dict[int, NDArray[np.float32]]] = {"a": {}, "b": {}}
    died: dict[str, dict[int, int]] = {}
    with tarfile.open(fileobj=whole, mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is None:  # a folder
                continue
            text = content.read().decode()
            if member.name.startswith("Outcomes-"):
                died[member.name.removeprefix("Outcomes-").removesuffix(".txt")] = _outcomes(text)
            else:
                part, file = member.name.removeprefix("set-").split("/")
                series[part][int(file.removesuffix(".txt"))] = _series(text)
    parts = {}
    for part, own in series.items():
        if not own or own.keys() != died[part].keys():
            raise ValueError(f"set-{part} and its outcomes are not of the same stays")
        order = sorted(own)
        parts[part] = Stays(np.stack([own[id] for id in order]), np.array([died[part][id] for id in order]))
    return parts


def _outcomes(text: str) -> dict[int, int]:
    """Whether the person died in hospital, by the id of the stay: the first column and the last."""
    lines = text.splitlines()[1:]
    return {int(cells[0]): int(cells[-1]) for cells in (line.split(",") for line in lines)}


def _series(text: str) -> NDArray[np.float32]:
    found = np.full((len(COLUMNS), HOURS), np.nan, np.float32)
    for hour, name, value in _measured(text):
        if name == "ICUType":
            units = _PLACE["unit1"]
            found[units : units + UNITS] = 0.0
            found[units + int(value) - 1] = 1.0
        elif name in ADMISSION:
            found[_PLACE[name]] = value
        elif name in _PLACE:
            found[_PLACE[name], hour] = value
    for own in QUANTITIES.values():
        for name in own:
            place = _PLACE[name]
            found[place + 1] = ~np.isnan(found[place])
            found[place] = _kept(found[place])
    return found


def _measured(text: str) -> Iterator[tuple[int, str, float]]:
    """Hour, name and value of each line but the first; −1 says that a thing is not known."""
    for line in text.splitlines()[1:]:
        time, name, written = line.split(",")
        hour, value = int(time[: time.index(":")]), float(written)
        if name and value != -1 and hour < HOURS:
            yield hour, name, value


def _kept(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each gap filled with the last value before it."""
    last = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(len(values))))
    filled: NDArray[np.float32] = values[last]
    return filled
