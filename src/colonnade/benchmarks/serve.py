"""Serving: how soon one row is answered over processes, what merging keeps of the bare models' rate, and that a party
which is killed under load leaves no request without an answer.

Five processes of one machine, four of them feature parties with a quarter of MNIST-shaped columns each; requests come
over HTTP from this one. Latencies count from the moment at which a request was due, not from when it could be sent.
Whatever takes the cores away for a tenth of a second makes one request of a hundred late, for ten seconds: so there
are three spells of load, each is told with the seconds that the host took, and the one in the middle counts.
`merged_over_bare` is rows per second in requests of many rows, over the same models put together in this process.
"""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.party_programs import free_port
from colonnade.data import load
from colonnade.errors import RunError
from colonnade.federation.file import federation_values, read_federation
from colonnade.federation.toml import write_toml
from colonnade.launch.experiment import train_plan
from colonnade.launch.run_options import RunOptions
from colonnade.models.network import network_for
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.meaning import probabilities_of

PARTIES = tuple(f"party{1 + place}" for place in range(4))
COLUMNS = 196
ROWS = 2000
RATE = 200.0
SECONDS = 10.0
SPELLS = 3
ROWS_A_REQUEST = 512
CONNECTIONS = 16
_START_SECONDS = 300.0


@one_thread
def run(watch: Watch) -> dict[str, float]:
    return measured(SECONDS, watch)


def measured(seconds: float, watch: Watch = lambda line: None) -> dict[str, float]:
    """The figures, of so many seconds of load each."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        directory = trained(Path(name))
        gc.collect()
        gc.freeze()  # or this process, which has loaded everything too, would stop to look at it, and call that latency
        with served(directory) as (program, port):
            spells = [_spell(port, seconds, watch) for _ in range(SPELLS)]
            p50, p99 = (float(np.median([spell.milliseconds(part) for spell in spells])) for part in (0.5, 0.99))
            merged, bare = asyncio.run(many_rows(port, seconds)), bare_rate(directory, seconds / 4)
            watch(f"{merged:.0f} rows a second in requests of {ROWS_A_REQUEST}; bare models {bare:.0f}")
            disturbed = asyncio.run(at_rate(port, seconds, kill=process_of(program.pid, PARTIES[1])))
            watch(f"{disturbed.sent} requests while a party was killed: {disturbed.degraded} answers were degraded")
    if not disturbed.degraded:
        raise RunError("The party that was killed was not missed: the figure would mean nothing.")
    return {
        "p50_milliseconds": p50,
        "p99_milliseconds": p99,
        "merged_over_bare": merged / bare,
        "unanswered": float(sum(spell.unanswered for spell in (*spells, disturbed))),
    }


def _spell(port: int, seconds: float, watch: Watch) -> "Load":
    before = taken_by_the_host()
    load = asyncio.run(at_rate(port, seconds))
    watch(
        f"{load.sent} requests for one row: median {load.milliseconds(0.5):.1f} ms, 99 of 100 within "
        f"{load.milliseconds(0.99):.1f} ms; meanwhile the host took {taken_by_the_host() - before:.2f} s of the cores"
    )
    return load


def taken_by_the_host() -> float:
    """Seconds for which this machine, if it is a virtual one, wanted a core and had none; 0 where nothing tells."""
    try:
        words = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()
        return float(words[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def trained(folder: Path) -> Path:
    """A finished run of four parties with tables, and a label party that has the label alone."""
    draws = np.random.default_rng(0)
    ids = [f"c{number:06}" for number in range(ROWS)]
    label = pd.DataFrame({"id": ids, "label": draws.integers(0, 10, ROWS)})
    label.to_parquet(folder / "label.parquet")
    for place, name in enumerate(PARTIES):
        values = draws.normal(size=(ROWS, COLUMNS)).astype(np.float32)
        table = pd.DataFrame(values, columns=[f"x{place}_{column}" for column in range(COLUMNS)])
        table.insert(0, "id", ids)
        table.to_parquet(folder / f"{name}.parquet")
    settings = {
        "data": {"label": "label", "task": "multiclass"},
        "training": {"epochs": 0.5},
        "bottom": {"hidden": [128], "embedding": 64},
        "parties": {name: {"file": f"{name}.parquet"} for name in ("label", *PARTIES)},
    }
    (folder / "federation.toml").write_text(write_toml(settings), encoding="utf-8")
    federation = read_federation(folder / "federation.toml")
    data = load(federation.data, federation.party_data(), federation.label_party, folder)
    federation = federation.with_absolute_files(folder)
    options = RunOptions(folder / "run", settings=federation_values(federation))
    train_plan(data, federation.plan(data), federation.simulate, options)
    return folder / "run"


@contextmanager
def served(run: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The program while it serves, and its port, once everybody is there."""
    port = free_port()
    command = [sys.executable, "-m", "colonnade", "serve", str(run), "--no-keys", "--http", f"127.0.0.1:{port}"]
    with (run / "serve.log").open("wb") as log:
        program = subprocess.Popen([*command, "--party-seconds", "2"], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not asyncio.run(_is_well(port)):
            if program.poll() is not None or time.monotonic() > deadline:
                last = (run / "serve.log").read_text(encoding="utf-8").splitlines()[-1:]
                raise RunError(f"The program that serves did not start: {' '.join(last)}")
            time.sleep(0.2)
        yield program, port
    finally:
        program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()


async def _is_well(port: int) -> bool:
    try:
        async with asyncio.timeout(2):
            return (await Client(port).ask("GET", "/healthz"))[1].get("status") == "well"
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return False


class Client:
    """One connection, kept open: as little of HTTP as it takes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, object]]:
        status, content = await self.raw(method, path, body)
        return status, json.loads(content)

    async def raw(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """The answer as it comes: what it takes to read it is the caller's time, not the server's."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        return int(lines[0].split()[1]), await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


@dataclass
class Load:
    """What came of some requests."""

    sent: int = 0
    unanswered: int = 0
    degraded: int = 0
    latencies: list[float] = field(default_factory=list)

    def milliseconds(self, part: float) -> float:
        """So many of the answers were there within so many."""
        return 1000 * float(np.quantile(self.latencies, part))


async def at_rate(port: int, seconds: float, kill: int = 0) -> Load:
    """Requests for one row each, at their times, whatever became of those before; `kill`: a process, halfway."""
    load, draws = Load(), np.random.default_rng(1)
    idle: asyncio.Queue[Client] = asyncio.Queue()
    clients = [Client(port) for _ in range(CONNECTIONS)]
    for client in clients:
        idle.put_nowait(client)
    begin = time.perf_counter()

    async def one(due: float, row: int) -> None:
        client = await idle.get()
        try:
            async with asyncio.timeout(30):
                status, body = await client.ask("POST", "/predict", json.dumps({"id": f"c{row:06}"}).encode())
            rows = body.get("predictions")
            if status != 200 or not isinstance(rows, list):
                load.unanswered += 1
            elif rows[0]["degraded"]:
                load.degraded += 1
            load.latencies.append(time.perf_counter() - due)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            load.unanswered += 1
        finally:
            idle.put_nowait(client)

    tasks = []
    count = int(RATE * seconds)
    for number in range(count):
        due = begin + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        if kill and number == count // 2:
            os.kill(kill, signal.SIGKILL)
        tasks.append(asyncio.create_task(one(due, int(draws.integers(ROWS)))))
    await asyncio.gather(*tasks)
    load.sent = count
    for client in clients:
        client.close()
    return load


async def many_rows(port: int, seconds: float) -> float:
    """Rows per second, in large requests that come from several sides at once."""
    draws = np.random.default_rng(2)
    until, answered = time.perf_counter() + seconds, 0

    async def ask_on() -> None:
        nonlocal answered
        client = Client(port)
        while time.perf_counter() < until:
            ids = [f"c{row:06}" for row in draws.integers(ROWS, size=ROWS_A_REQUEST)]
            status, _ = await client.raw("POST", "/predict", json.dumps({"ids": ids}).encode())
            answered += ROWS_A_REQUEST if status == 200 else 0
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(ask_on() for _ in range(4)))
    return answered / (time.perf_counter() - began)


def bare_rate(run: Path, seconds: float) -> float:
    """Rows per second of the same models in one process, on prepared rows, as many at a time."""
    model = load_model(run)
    assert isinstance(model, JointModel)
    rows = {name: torch.randn(ROWS_A_REQUEST, COLUMNS) for name in PARTIES}
    bottoms = {name: network_for(model.parties[name].modules["bottom"]) for name in PARTIES}
    top = network_for(model.parties["label"].modules["top"])

    def answer() -> None:  # as serving computes it, in float32: JointModel is exact, and slower
        embeddings = [bottoms[name].embed(rows[name]) for name in model.order]
        probabilities_of("multiclass", top.embed(torch.cat(embeddings, 1)))

    answer()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        answer()
        done += ROWS_A_REQUEST
    return done / (time.perf_counter() - began)


def process_of(ancestor: int, name: str) -> int:
    """The process of a feature party, among those that a program has started."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            continue
        title, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        parents[int(path.parent.name)] = int(rest[1])
        if title == name:
            found.append(int(path.parent.name))
    for process in found:
        above = process
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor:
            return process
    raise RunError(f"The process of {name} was not found.")


BENCHMARK = Benchmark(
    "serve",
    "one row over processes at 200 requests per second; merged batches over bare models; a party killed under load",
    run,
    {
        "p50_milliseconds": "<= 8",
        "p99_milliseconds": "<= 25",
        "merged_over_bare": ">= 0.5",
        "unanswered": "<= 0",
    },
)
