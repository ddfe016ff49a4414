"""What was written by earlier versions: earlier runs resume, replay and are reported.

Bits follow from the machine's arithmetic as well as from the seed. So what the parties of a recorded run did is
compared number by number everywhere, and bit by bit on processors that are known to give the same, with the same
PyTorch.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import colonnade

from colonnade.launch.replay import parties_of
from colonnade.party import Send
from colonnade.runtimes.replay import event_of
from colonnade.threads import compute_with
from colonnade.trace import Record, read_trace, record_of
from colonnade.wire.codec import decode, encode

HERE = Path(__file__).parent


def processor() -> str:
    """Maker, family and model, where the system tells them: what libraries choose their kernels by."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().split("\n\n")[0].splitlines() if known.exists() else []
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(told.get(name, "") for name in ("vendor_id", "cpu family", "model"))


OLD_RUNS = sorted((HERE / "runs").iterdir())
OTHERWISE_NOW = {"afsaga-processes"}  # step = "auto" had another length: the same events give other weights now
LAST_DIGIT = {"dpzv-simulate"}  # an evaluation's products were rounded: they are exact now, and so other in the end
MACHINE = json.loads((HERE / "machine.json").read_text())
SAME_ARITHMETIC = MACHINE["torch"] == torch.__version__ and processor() in MACHINE["processors"]


@pytest.fixture
def old_run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    run = Path(shutil.copytree(request.param, tmp_path / request.param.name))
    for path in (run, *run.rglob("*")):  # a checkout may have left them open to a group, and such a run is refused
        path.chmod(path.stat().st_mode & ~0o022)
    return run


@pytest.mark.parametrize("old_run", OLD_RUNS, ids=lambda path: path.name, indirect=True)
def test_an_old_run_is_reported_and_resumed(old_run: Path) -> None:
    assert colonnade("report", old_run).code == 0
    runtime = json.loads((old_run / "checkpoints" / "data.json").read_text())["runtime"]
    before = json.loads((old_run / "summary.json").read_text())
    assert before["status"] == "stopped"
    kept = old_run / "federation.toml"
    ended = colonnade("run", kept, "--resume", "--out", old_run, "--runtime", runtime, "--no-report")
    assert ended.code == 0, ended.err
    after = json.loads((old_run / "summary.json").read_text())
    assert after["status"] == "finished" and after["exchanges"] > before["exchanges"]


@pytest.mark.parametrize(
    "old_run",
    [path for path in OLD_RUNS if path.name not in OTHERWISE_NOW],
    ids=lambda path: path.name,
    indirect=True,
)
def test_an_old_run_is_played_again(old_run: Path) -> None:
    """A party is given its recorded events; what it does agrees with what was recorded, effect by effect."""
    compute_with(1)
    for name, party in parties_of(old_run).items():
        expected: list[Record] = []
        for number, record in enumerate(read_trace(old_run / "trace" / f"{name}.trace")):
            if not record.is_event:
                assert_agree(expected.pop(0), record, f"{name}, record {number}")
                continue
            assert not expected, f"{name}, before record {number}: {expected[0].type} was not recorded"
            expected += [
                record_of(effect, encode(effect.message) if isinstance(effect, Send) else None)
                for effect in party.handle(event_of(record))
            ]
    if SAME_ARITHMETIC and old_run.name not in LAST_DIGIT:
        played = colonnade("replay", old_run, "--json").object["parties"]
        assert {one["model"] for one in played.values()} == {"the same"}


def assert_agree(done: Record, recorded: Record, where: str) -> None:
    assert done.type == recorded.type and len(done.fields) == len(recorded.fields), where
    for now, before in zip(done.fields, recorded.fields, strict=True):
        if done.type == "Send" and isinstance(now, bytes | bytearray):
            now, before = (decode(bytearray(frame)) for frame in (now, before))
            assert type(now) is type(before), where
            now, before = ({name: getattr(one, name) for name in one.__struct_fields__} for one in (now, before))
        if isinstance(before, dict):  # an earlier version may have had fewer metrics
            assert all(is_close(now[name], value) for name, value in before.items()), where
        else:
            assert is_close(now, before), where


def is_close(one: Any, other: Any) -> bool:
    if isinstance(other, int | float | np.ndarray):
        return bool(np.allclose(one, other, rtol=1e-5, atol=1e-5))
    return bool((list(one) if isinstance(one, tuple) else one) == other)
