"""An alignment of two organisations, whole programs over mutual TLS, beside a bare loop over X25519.

Everything that the programs do counts, from their start to their end: loading, reading and hashing ids, the handshake,
tables, journal, checkpoints, and the files that are written. Operations are per second that a core was busy, on both
sides, so that other work on the machine changes little; `seconds_for_a_million_ids` is by the clock on the wall.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.party_programs import ended_badly, free_port, write_party
from colonnade.federation.toml import write_toml
from colonnade.wire.authority import make_authority

IDS = 1_000_000
PARTIES = ("bank", "shop")
_LOOP_SECONDS = 3.0


@one_thread
def run(watch: Watch) -> dict[str, float]:
    return measured(IDS, watch)


def measured(ids: int, watch: Watch = lambda line: None) -> dict[str, float]:
    """The ratios with so many ids per party; COLONNADE_BENCH_IDS asks for another number than a million."""
    ids = int(os.environ.get("COLONNADE_BENCH_IDS", ids))
    before = bare_rate()
    watch(
        f"a bare loop over X25519: {before:.0f} multiplications per second of a core, so {4 * ids / before / 2:.1f} s "
        "of two cores for the four per id that the protocol needs"
    )
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        files = write_parties(folder, ids)
        began = time.perf_counter()
        used = aligned(folder, files)
        seconds = time.perf_counter() - began
        facts = [json.loads((folder / f"run-{name}-align" / "alignment.json").read_text("utf-8")) for name in PARTIES]
    operations = sum(own["multiplications"] for own in facts)
    busy = sum(one.ru_utime + one.ru_stime for one in used)
    watch(
        f"{ids} ids per party: {operations} multiplications in {seconds:.1f} s, {busy:.1f} s of the cores, which is "
        f"{busy / len(PARTIES):.1f} s of two; {facts[0]['shared']} shared rows"
    )
    return {
        "operations_per_second_over_openssl": operations / busy / ((before + bare_rate()) / 2),
        "largest_party_megabytes": max(one.ru_maxrss for one in used) / 1024,
        "seconds_for_a_million_ids": seconds * IDS / ids,
    }


def aligned(folder: Path, files: dict[str, Path]) -> list[resource.struct_rusage]:
    """Every party's program, to its end, and what it used."""
    workers = str(max(1, (os.cpu_count() or 1) // len(files)))
    programs = {}
    for name, file in files.items():
        command = [sys.executable, "-m", "colonnade", "align", str(folder / "federation.toml"), "--party", str(file)]
        with (folder / f"{name}.log").open("wb") as log:
            programs[name] = subprocess.Popen([*command, "--yes", "--workers", workers], stdout=log, stderr=log)
    used = []
    for name, program in programs.items():
        _, status, own = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
        used.append(own)
        if program.returncode:
            for other in programs.values():
                other.kill()
            raise ended_badly(folder, name)
    return used


def bare_rate() -> float:
    """Multiplications per second of a core, of a loop that does nothing else."""
    exchange = X25519PrivateKey.generate().exchange
    point = X25519PrivateKey.generate().public_key().public_bytes_raw()
    done, began = 0, time.process_time()
    while time.process_time() - began < _LOOP_SECONDS:
        for _ in range(200):
            point = exchange(X25519PublicKey.from_public_bytes(point))
        done += 200
    return done / (time.process_time() - began)


def write_parties(folder: Path, ids: int) -> dict[str, Path]:
    """Two tables that share three quarters of their ids, certificates, and everybody's files."""
    port = free_port()
    shared = {
        "federation": {"label_party": PARTIES[0]},
        "data": {"label": "label"},
        "parties": {name: {} for name in PARTIES},
        "network": {"address": f"127.0.0.1:{port}"},
    }
    (folder / "federation.toml").write_text(write_toml(shared), encoding="utf-8")
    make_authority(folder / "authority", "benchmark", 2)
    files = {}
    for place, name in enumerate(PARTIES):
        own = np.random.default_rng(place).permutation(np.arange(ids) + place * (ids // 4))
        np.savetxt(folder / f"{name}.csv", own, fmt="C%09d", header="id", comments="")
        files[name] = write_party(folder, name, port, f"{name}.csv")
    return files


BENCHMARK = Benchmark(
    "align",
    "private set intersection of two parties with a million ids each, whole programs, over bare loops over X25519",
    run,
    {
        "operations_per_second_over_openssl": ">= 0.8",
        "largest_party_megabytes": "<= 500",
        "seconds_for_a_million_ids": "<= 120",
    },
)
