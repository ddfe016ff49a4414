"""The `colonnade` command as a test uses it: in this process where that will do, else as a process of its own.

Also small files of three parties, and what must be equal in two run directories that tell the same run.
"""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from colonnade import cli
from colonnade.runtimes.checkpoint import read_latest
from colonnade.state import State


class Answer(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """Standard output as the one JSON object that it must be."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


def colonnade(*arguments: str | Path) -> Answer:
    """Give a command in this process. A traceback of the command is a failure of the test."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    command = ["colonnade", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ending:
            code = int(ending.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())


def refused(*arguments: str | Path, code: int = 2) -> str:
    """The one line with which a command refuses; nothing else may be printed."""
    sentence = complaint(*arguments, code=code)
    assert "\n" not in sentence, sentence
    return sentence


def complaint(*arguments: str | Path, code: int = 2) -> str:
    """The same where several lines are meant: all that is wrong with a table."""
    answer = colonnade(*arguments)
    assert (answer.code, answer.out) == (code, ""), answer
    lines = answer.err.splitlines(keepends=True)
    said = "".join(line for line in lines if not re.fullmatch(r"\w+: .* rows held, .* matched, .* used\n", line))
    assert said.startswith("colonnade: ") and said.endswith(".\n"), answer.err
    return said.removeprefix("colonnade: ").strip()


def begin(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Start a command as a process of its own."""
    command = [sys.executable, "-m", "colonnade", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def draw_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on figures are made but not drawn, which takes a fifth of a second each."""
    monkeypatch.setattr("colonnade.reports.figures.png_bytes", lambda figure, dots_per_inch=0: b"\x89PNG")


def toml(path: str, text: str) -> Path:
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


IRIS = """
[data]
set = "iris"
parties = 2
[training]
epochs = 2
batch_size = 16
"""

THREE = """
[federation]
label_party = "bank"
[data]
label = "default"
[training]
epochs = 2
batch_size = 8
[parties.bank]
file = "bank.npz"
[parties.shop]
file = "shop.csv"
[parties.clinic]
file = "clinic.parquet"
"""

ROWS = 40


def tables() -> dict[str, pd.DataFrame]:
    """A shop, a clinic (its rows in another order) and a bank with the label: whether somebody orders much."""
    drawn = np.random.default_rng(5).normal(size=(4, ROWS))
    ids = np.arange(ROWS)
    return {
        "shop": pd.DataFrame({"id": ids, "orders": drawn[0], "returns": drawn[1]}),
        "clinic": pd.DataFrame({"id": ids[::-1], "age": drawn[2]}),
        "bank": pd.DataFrame({"id": ids, "income": drawn[3], "default": (drawn[0] > 0).astype(int)}),
    }


def write_tables(**changed: pd.DataFrame) -> Path:
    """Each party's own file, of three kinds, and their federation.toml."""
    held = {**tables(), **changed}
    held["shop"].to_csv("shop.csv", index=False)
    held["clinic"].to_parquet("clinic.parquet")
    bank = held["bank"]
    np.savez(
        "bank.npz",
        ids=bank["id"].to_numpy(),
        columns=bank[["income"]].to_numpy(),
        names=np.array(["income"]),
        labels=np.array(bank["default"].tolist()),
    )
    return toml("three.toml", THREE)


def last_states(run: Path, parties: list[str]) -> dict[str, State]:
    """Every party's newest checkpoint."""
    return read_latest(run / "checkpoints", parties)[1]


def assert_same_run(one: Path, other: Path) -> None:
    """The same models bit for bit, the same books, and the same metrics but for the wall clock."""
    summaries = [json.loads((run / "summary.json").read_text()) for run in (one, other)]
    for summary in summaries:
        del summary["wall_seconds"]
    assert summaries[0] == summaries[1]
    parties = list(summaries[0]["parties"])
    states = [last_states(run, parties) for run in (one, other)]
    for party in parties:
        tensors = [state[party].tensors for state in states]
        assert any("model" in name or "bottom" in name for name in tensors[0])
        assert tensors[0].keys() == tensors[1].keys()
        for name, tensor in tensors[0].items():
            assert tensor.equal(tensors[1][name]), f"{party}: {name}"
    lines = [metrics(run) for run in (one, other)]
    assert lines[0] == lines[1] and lines[0]


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without the wall clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_seconds"} for line in lines]
