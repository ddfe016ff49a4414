"""`colonnade audit`."""

import json
from pathlib import Path

from command_line import colonnade


def test_the_verb_prints_json_and_writes_a_page() -> None:
    small = ("--rows", "256", "--batch-size", "4", "--epochs", "2")
    made = colonnade("audit", "vafl", *small, "--page", "audit.html", "--json")
    assert made.code == 0, made.err
    (result,) = json.loads(made.out)
    assert result["observed"] <= result["sound"]
    assert "Claimed, sound, observed" in Path("audit.html").read_text(encoding="utf-8")
    shown = colonnade("audit", "dpzv", *small)
    assert "nothing bounds ε" in shown.out.replace("\n", " ")
