"""No value of a column and no label appears in what a run prints or in what one would show to others.

Every value is the marker with another digit behind it, so that any of them is recognised. Checkpoints and traces are
their owners' own, and are left out.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import ROWS, colonnade, tables, write_tables

COLUMN, LABEL = "12345.678", "98765.4321"


def secret_tables(classes: bool = False) -> dict[str, pd.DataFrame]:
    """The three parties; the shop's values and the bank's labels are marked: numbers, or names of classes."""
    held = tables()
    held["shop"]["orders"] = [float(f"{COLUMN}{row % 10}") for row in range(ROWS)]
    marked = [f"{LABEL}{row % 2}" for row in range(ROWS)]
    # Every other number is small, or the root mean square error would be the marker.
    numbers = [float(label) if row % 2 else 0.5 for row, label in enumerate(marked)]
    held["bank"]["default"] = np.array(marked if classes else numbers)
    return held


def assert_unmarked(text: str, where: str) -> None:
    for marker in (COLUMN, LABEL):
        for form in (marker, marker.split(".")[0], f"{float(marker):.3e}", f"{float(marker):.4g}"):
            assert form not in text, f"{where} shows {form}"


@pytest.mark.parametrize("classes", [False, True])
def test_a_run_shows_no_value(classes: bool, capfd: pytest.CaptureFixture[str]) -> None:
    federation = write_tables(**secret_tables(classes))
    for algorithm in ("vafl", "split", "centralised"):
        chosen = ("--set", f"algorithm.name={algorithm}", "--set", "training.learning_rate=1e-8")
        answer = colonnade("run", federation, "--out", algorithm, *chosen)
        assert answer.code == 0, answer.err
        assert_unmarked(answer.out + answer.err, algorithm)
    compared = colonnade("compare", "vafl", "split", "--json")
    assert compared.code == 0
    assert_unmarked(compared.out + compared.err + "".join(capfd.readouterr()), "compare")
    written = [path for run in ("vafl", "split", "centralised") for path in Path(run).rglob("*")]
    written.append(Path("comparison.html"))
    shown = [path for path in written if path.suffix in (".html", ".json", ".jsonl", ".toml")]
    # A model has what its party learnt from its own columns, and names of classes: its owner's alone, as checkpoints.
    shown = [path for path in shown if path.parent.name != "checkpoints" and path.parent.parent.name != "model"]
    assert {"summary.json", "metrics.jsonl", "federation.toml", "report.html"} <= {path.name for path in shown}
    for path in shown:
        assert_unmarked(path.read_text(), str(path))


def mistakes() -> dict[str, dict[str, pd.DataFrame]]:
    held = secret_tables()
    shop, bank, clinic = held["shop"], held["bank"], held["clinic"]
    text = shop["orders"].astype(str)
    return {
        "text": {"shop": shop.assign(orders=text.where(shop["id"] != 3, text + "x"))},
        "missing": {"shop": shop.assign(orders=shop["orders"].where(shop["id"] > 3))},
        "infinite": {"shop": shop.assign(orders=shop["orders"].where(shop["id"] > 3, np.inf))},
        "repeated ids": {"shop": shop.assign(id=shop["orders"].round(3))},
        "other ids": {"shop": shop.assign(id=shop["orders"] + shop["id"])},
        "one class": {"bank": bank.assign(default=int(LABEL.split(".")[0]))},
        "missing labels": {"bank": bank.assign(default=bank["default"].where(bank["id"] > 3))},
        "infinite labels": {"bank": bank.assign(default=bank["default"].where(bank["id"] > 3, np.inf))},
        "two owners": {"clinic": clinic.rename(columns={"age": "orders"})},
    }


@pytest.mark.parametrize("mistake", mistakes())
def test_an_error_shows_no_value(mistake: str) -> None:
    held = {**secret_tables(), **mistakes()[mistake]}
    answer = colonnade("run", write_tables(**held), "--set", "data.missing=refuse", "--out", "mine")
    assert answer.code == 2, answer.err
    assert_unmarked(answer.out + answer.err, mistake)


@pytest.mark.parametrize("line", [f"{COLUMN},{COLUMN}", f'"{COLUMN}', f"1,{COLUMN},{COLUMN},{COLUMN},{COLUMN}"])
def test_a_file_that_cannot_be_read_shows_no_value(line: str) -> None:
    federation = write_tables(**secret_tables())
    with Path("shop.csv").open("a") as file:
        file.write(line + "\n")
    answer = colonnade("run", federation, "--out", "mine")
    assert answer.code == 2
    assert_unmarked(answer.out + answer.err, line)


def test_a_task_that_does_not_fit_shows_no_label() -> None:
    held = secret_tables()
    held["bank"]["default"] = [float(f"{LABEL}{row % 3}") for row in range(ROWS)]
    answer = colonnade("run", write_tables(**held), "--set", "data.task=binary", "--out", "mine")
    assert answer.code == 2
    assert_unmarked(answer.err, "task")
