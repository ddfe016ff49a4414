"""What was written by earlier versions: runs of before resume, replay and are reported.

Bits follow from the machine's arithmetic as well as from the seed, so that they are compared only where the recorded
ones were made: on the same kind of processor, with the same PyTorch.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from command_line import colonnade

HERE = Path(__file__).parent


def processor() -> str:
    """Maker, family and model, where the system tells them: what libraries choose their kernels by."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().split("\n\n")[0].splitlines() if known.exists() else []
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(told.get(name, "") for name in ("vendor_id", "cpu family", "model"))


OLD_RUNS = sorted((HERE / "runs").iterdir())
OTHERWISE_NOW = {
    "afsaga-processes",  # step = "auto" had another length: the same events give other weights now
    "dpzv-simulate",  # an evaluation's products were rounded: they are exact now, and differ in the last digit
}
MACHINE = json.loads((HERE / "machine.json").read_text())
ELSEWHERE = (
    MACHINE["cpu"] != torch.backends.cpu.get_cpu_capability()
    or MACHINE["torch"] != torch.__version__
    or processor() in MACHINE["rounds_otherwise"]
)
same_arithmetic = pytest.mark.skipif(ELSEWHERE, reason="recorded with another processor or PyTorch")


@pytest.fixture
def old_run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "run"))


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


@same_arithmetic
@pytest.mark.parametrize(
    "old_run",
    [path for path in OLD_RUNS if path.name not in OTHERWISE_NOW],
    ids=lambda path: path.name,
    indirect=True,
)
def test_an_old_run_is_played_again(old_run: Path) -> None:
    played = colonnade("replay", old_run, "--json").object["parties"]
    assert {one["model"] for one in played.values()} == {"the same"}
