"""Whole `colonnade join` programs for benchmarks: the files of a federation over loopback and mutual TLS, and every
party's program, started from the fork server of party_program.py.
"""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.data import from_arrays
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.federation.toml import write_toml
from colonnade.runtimes.processes.fork_server import Child, fork_server_for
from colonnade.wire.authority import issue, make_authority


def random_data(parties: int, rows: int) -> FederatedData:
    """Eight random columns a party, and labels that follow from all of them: for what does not depend on the data."""
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((rows, 8 * parties), dtype=np.float32)
    return from_arrays(columns, (columns.sum(1) > 0).astype(int), parties=parties, test_fraction=0.0)


def training_lines(folder: Path) -> list[dict[str, Any]]:
    """What the label party's program observed while it trained."""
    lines = (folder / "run-label" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["loss"] is not None]


def write_federation(
    folder: Path, data: FederatedData, settings: Mapping[str, object], port: int, carrier: str = "tls"
) -> dict[str, Path]:
    """Files of a whole federation over loopback: everybody's data, certificates and party.toml. Dense tables only."""
    parties: dict[str, dict[str, object]] = {name: {} for name in data.feature_parties}
    shared = {
        **settings,
        "data": {"label": "label", "standardise": False, "test_fraction": 0.0, "task": data.labels.task},
        "parties": {data.label_party: {}, **parties},
        "network": {"address": f"127.0.0.1:{port}", "private_randomness": False, "carrier": carrier},
    }
    (folder / "federation.toml").write_text(write_toml(shared), encoding="utf-8")
    make_authority(folder / "authority", "benchmark", 2)
    files = {}
    for name in (data.label_party, *parties):
        ids = np.arange(data.rows)
        if name == data.label_party:
            nothing = np.zeros((data.rows, 0), np.float32)
            np.savez(folder / f"{name}.npz", ids=ids, columns=nothing, labels=data.labels.train.numpy())
        else:
            np.savez(folder / f"{name}.npz", ids=ids, columns=data.columns[name].train.numpy())
        files[name] = write_party(folder, name, port, f"{name}.npz")
    return files


def write_party(folder: Path, name: str, port: int, file: str) -> Path:
    """A party's certificate, from the authority in `folder`, and its own file, which is returned."""
    issue(folder / "authority", name, folder / name, [], 1)
    own = {
        "party": {"name": name, "listen": f"127.0.0.1:{port}", "out": str(folder / f"run-{name}")},
        "data": {"file": file},
        "keys": {
            "certificate": f"{name}/{name}.pem",
            "key": f"{name}/{name}.key",
            "authority": f"{name}/authority.pem",
        },
    }
    path = folder / f"{name}.toml"
    path.write_text(write_toml(own), encoding="utf-8")
    return path


def ended_badly(folder: Path, name: str) -> RunError:
    """Says what a party's program said last."""
    last = (folder / f"{name}.log").read_text(encoding="utf-8").splitlines()[-3:]
    return RunError(f"The party {name} did not end well: {' '.join(last)}")


@contextmanager
def joined(folder: Path, files: Mapping[str, Path]) -> Iterator[dict[str, Child]]:
    """Every party's program, running; they are killed at the end if they have not ended."""
    fork_server = fork_server_for("colonnade.benchmarks.party_program")
    children: dict[str, Child] = {}
    try:
        for name, file in files.items():
            arguments = ["join", str(folder / "federation.toml"), "--party", str(file)]
            children[name] = fork_server.start(name, arguments, folder / f"{name}.log")
        yield children
    finally:
        for child in children.values():
            child.send(9)
            child.close()


def wait_for_all(folder: Path, children: Mapping[str, Child], seconds: float) -> None:
    """Until everybody has ended well."""
    deadline = time.monotonic() + seconds
    for name, child in children.items():
        if not child.wait(max(0.0, deadline - time.monotonic())) or child.poll():
            raise ended_badly(folder, name)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
