"""The tutorial of three organisations, command by command: tables of another kind each, one in a real PostgreSQL."""

import importlib.util
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import colonnade
from parties import PATIENCE_SECONDS, FailedError, free_port, wait_until
from postgres_server import postgres_server

from colonnade.runtimes.processes.fork_server import Child, ForkServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "three-organisations.md").read_text(encoding="utf-8")
PASSWORD = "tell nobody"
BLOCKS = [
    [line.partition("$ ")[::2] for line in block.splitlines()]
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
]
"""(who, command) of every line, block by block."""


class Terminals:
    """What each organisation runs: one command at a time, in its own folder."""

    def __init__(self, fork_server: ForkServer, folder: Path) -> None:
        self._fork_server = fork_server
        self.folder = folder
        self.running: dict[str, Child] = {}

    def log(self, who: str) -> Path:
        return self.folder / f"{who}.log"

    def start(self, who: str, command: str, *more: str) -> None:
        words = command.split()
        assert words[0] == "colonnade"
        options = {"folder": str(self.folder / who), "environment": {"CLINIC_PASSWORD": PASSWORD}}
        arguments = [json.dumps(options), *words[1:], *more]
        self.running[who] = self._fork_server.start(who, arguments, self.log(who))

    def together(self, block: list[tuple[str, str]]) -> None:
        """Each party's command at the same time, until all have ended well."""
        for who, command in block:
            self.start(who, command)
        for who, _ in block:
            child = self.running.pop(who)
            if not child.wait(PATIENCE_SECONDS) or child.returncode != 0:
                raise FailedError(f"{who} ended with {child.returncode}: {self.log(who).read_text('utf-8')[-2000:]}")

    def kill(self, who: str, number: int) -> None:
        self.running[who].send(number)
        self.running.pop(who).wait(PATIENCE_SECONDS)


@pytest.fixture
def terminals(fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminals]:
    monkeypatch.setenv("CLINIC_PASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)
    made = Terminals(fork_server, tmp_path / "credit")
    yield made
    for who in [*made.running]:
        made.kill(who, 9)


def example() -> Any:
    spec = importlib.util.spec_from_file_location("three_organisations", ROOT / "examples" / "three_organisations.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(port: int, key: str, **body: Any) -> dict[str, Any]:
    headers = {"content-type": "application/json", "X-API-Key": key}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as reply:
        (found,) = json.load(reply)["predictions"]
        return dict(found)


def well(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as reply:
            return str(json.load(reply)["status"])
    except OSError:
        return "not there"


def test_the_settings_on_the_page_are_those_that_the_example_writes() -> None:
    shared = re.search(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shared is not None
    written = example().SHARED.format(port=7443)
    assert written.split("\n", 1)[1] == shared[1]  # but for the comment


def test_the_commands_of_the_page_lead_from_tables_to_served_predictions(
    terminals: Terminals, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, certificates, align, join, predict, add_key, serve, again = BLOCKS
    assert making == [("", "python examples/three_organisations.py credit")]
    with postgres_server(PASSWORD) as server:
        address = "postgresql+psycopg://bank:${CLINIC_PASSWORD}@/postgres?host=" + str(server)
        example().main(Path("credit"), address, port=free_port(), customers=400)
        monkeypatch.chdir("credit")
        for _, command in certificates:
            made = colonnade(*command.split()[1:])
            assert made.code == 0, made.err
        for block in (align, join, predict):
            terminals.together(block)
        summary = json.loads(Path("bank/run/summary.json").read_text(encoding="utf-8"))
        assert summary["test"]["auc"] > 0.85
        found = pd.read_csv("bank/predictions.csv").set_index("customer")
        assert len(found) == len(pd.read_csv("bank/run-align/rows.csv"))
        key = _key(terminals, add_key[0])
        _serve_and_kill(terminals, serve, again[0], found, key)
    for who in ("bank", "shop", "clinic"):
        assert PASSWORD not in terminals.log(who).read_text(encoding="utf-8")


def _key(terminals: Terminals, line: tuple[str, str]) -> str:
    """As it is shown, once, on standard output."""
    (who, command) = line
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(terminals.folder / who)
        shown = colonnade(*command.split()[1:])
    assert shown.code == 0, shown.err
    return shown.out.split()[0]


def _serve_and_kill(
    terminals: Terminals, serve: list[tuple[str, str]], again: tuple[str, str], found: pd.DataFrame, key: str
) -> None:
    port = free_port()
    for who, command in serve:
        terminals.start(who, command, *(["--http", f"127.0.0.1:{port}"] if who == "bank" else []))
    wait_until(lambda: well(port) == "well", "everybody to serve")
    customer = found.index[0]
    wait_until(lambda: not asked(port, key, id=customer)["degraded"], "everybody to answer in time")
    whole = asked(port, key, id=customer)
    assert whole["prediction"] == found.prediction[customer] and not whole["degraded"]
    assert whole["probabilities"]["yes"] == pytest.approx(found["probability of yes"][customer], abs=1e-5)
    terminals.kill("shop", 9)
    wait_until(lambda: well(port) == "degraded", "the loss to be noticed")
    away = asked(port, key, id=customer)
    assert (away["degraded"], away["missing"]) == (True, {"shop": "is away"})
    terminals.start(*again)
    wait_until(lambda: well(port) == "well", "it to come back")
    # On a busy machine an answer may be late, and is then said to be without that party.
    wait_until(lambda: asked(port, key, id=customer) == whole, "the same answer as before")
    for who in [*terminals.running]:
        terminals.kill(who, 15)
