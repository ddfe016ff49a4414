"""One meaning per exit code: the table, its page, and what the errors return. Stops are in test_interruption.py."""

import re
from pathlib import Path

from command_line import colonnade, toml

from colonnade import errors
from colonnade.exit_codes import ExitCode

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def test_the_page_has_every_code_under_its_name() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == [(code.value, code.name) for code in ExitCode]


def test_errors_return_what_they_mean() -> None:
    assert errors.SettingsError.exit_code == errors.DataError.exit_code == ExitCode.WRONG
    assert errors.RunError.exit_code == errors.ProtocolError.exit_code == ExitCode.FAILED


def test_a_wrong_call_and_a_wrong_file_are_the_same_fault() -> None:
    wrong = toml("wrong.toml", "[trainign]\nepochs = 1\n")
    calls = (("run",), ("run", "--nonsense"), ("rnu",), ("run", wrong), ("attack", "label-inference", "--last", "1"))
    assert {colonnade(*call).code for call in calls} == {ExitCode.WRONG}
