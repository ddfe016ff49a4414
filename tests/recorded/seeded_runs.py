"""Seeded runs of every kind of schedule and estimator, and one number for all that each of them wrote.

`python tests/recorded/seeded_runs.py digests.json` writes the numbers down; the test beside this file compares.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import colonnade
from colonnade import BottomSettings, PerturbationSettings, Simulate, SimulatedParty, TopSettings, Training
from colonnade.algorithms import find

ROUGH = Simulate(
    latency_seconds={"distribution": "exponential", "mean": 0.01},
    loss=0.3,
    reorder=True,
    parties={
        "label": SimulatedParty(crashes=((0.05, 0.09),)),
        "party1": SimulatedParty(crashes=((0.03, 0.06), (0.2, 0.3)), straggle_probability=0.2),
    },
)
UNEVEN = Simulate(
    compute_seconds={"distribution": "exponential", "mean": 0.01},
    latency_seconds={"distribution": "exponential", "mean": 0.004},
    parties={"party1": SimulatedParty(slowdown=3.0)},
)
ADAM = Training(epochs=2, batch_size=8, optimiser="adam", learning_rate=0.02, l1=0.01, l2=0.01, observe_every_epochs=0)
NOISE = PerturbationSettings(noise=0.3, inner_noise=0.1, clip=1.0)
DP_SGD = PerturbationSettings(clip=1.0, bottom_update="dp-sgd", update_clip=0.1, columns_epsilon=50.0)


def dropout() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))


def tiny_data(own: bool = False) -> Any:
    generator = np.random.default_rng(5)
    X = generator.normal(size=(32, 6))
    y = (X @ np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0]) > 0).astype(int)
    return colonnade.from_arrays(
        X[:24], y[:24], X_test=X[24:], y_test=y[24:], parties=3, label_party_columns=own, standardise=False
    )


RUNS: dict[str, dict[str, Any]] = {
    "vafl, rough": {"algorithm": ("vafl", {"in_flight": 3, "wait_for": 2, "max_delay": 4}), "simulate": ROUGH},
    "vafl, own columns, Adam": {"algorithm": ("vafl", {"in_flight": 2}), "own": True, "training": ADAM},
    "vafl, private": {"algorithm": ("vafl", {}), "privacy": DP_SGD},
    "vafl, noise, warm-up": {"algorithm": ("vafl", {"warm_up": True, "max_delay": 4}), "privacy": NOISE},
    "split, rough": {"algorithm": ("split", {"party_timeout_seconds": 0.03}), "simulate": ROUGH, "training": ADAM},
    "cascaded": {"algorithm": ("cascaded", {"in_flight": 3, "directions": 2})},
    "zoo": {"algorithm": ("zoo", {"wait_for": 2}), "simulate": ROUGH},
    "zoo-sync": {"algorithm": ("zoo-sync", {})},
    "czofo, noise": {"algorithm": ("czofo", {"in_flight": 2}), "privacy": NOISE},
    "dpzv, private": {
        "algorithm": ("dpzv", {"clip": 1.0, "server_update": "private-zo"}),
        "privacy": PerturbationSettings(labels_epsilon=20.0),
    },
    "dpzv, dp-sgd": {
        "algorithm": ("dpzv", {"server_update": "dp-sgd", "clip": 1.0, "noise": 0.1, "server_noise": 0.1})
    },
    "centralised, dropout": {"algorithm": ("centralised", {}), "bottom": dropout, "training": ADAM},
    "fdml": {"algorithm": ("fdml", {})},
    "afsgd, two-tree": {"algorithm": ("afsgd", {"sums": "two-tree"})},
    "afsvrg, pairwise, rough": {"algorithm": ("afsvrg", {"sums": "pairwise"}), "simulate": ROUGH},
    "afsaga, own columns": {"algorithm": ("afsaga", {}), "own": True},
    "fsgd": {"algorithm": ("fsgd", {})},
    "fsvrg, rough": {"algorithm": ("fsvrg", {}), "simulate": ROUGH},
    "fsaga, pairwise": {"algorithm": ("fsaga", {"sums": "pairwise"})},
    "asysqn-sgd": {"algorithm": ("asysqn-sgd", {})},
    "asysqn-svrg": {"algorithm": ("asysqn-svrg", {})},
    "asysqn-saga, rough": {"algorithm": ("asysqn-saga", {}), "simulate": ROUGH},
    "synsqn-sgd": {"algorithm": ("synsqn-sgd", {})},
    "synsqn-svrg, two-tree": {"algorithm": ("synsqn-svrg", {"sums": "two-tree"})},
    "synsqn-saga": {"algorithm": ("synsqn-saga", {})},
    "fcg": {"algorithm": ("fcg", {"sums": "pairwise"})},
}


def digest_of(name: str, out: Path) -> str:
    """Traces, checkpoints, ledger and settings of a run, the time on the wall left out."""
    how = dict(RUNS[name])
    algorithm, settings = how.pop("algorithm")
    row = find(algorithm)
    models: dict[str, Any] = {}
    if algorithm not in LINEAR and algorithm != "fdml":
        models = {"bottom": BottomSettings("linear", embedding=2), "top": TopSettings("concat-linear")}
    if "bottom" in how:
        models["bottom"] = how.pop("bottom")()
    colonnade.train(
        tiny_data(how.pop("own", False)),
        row.settings(**settings),
        training=how.pop("training", Training(epochs=2, batch_size=8, observe_every_epochs=0.7)),
        simulate=how.pop("simulate", UNEVEN),
        seed=7,
        out=out,
        trace=True,
        checkpoint_seconds=1e9,  # one checkpoint, however slow the machine is
        **models,
        **how,
    )
    found = hashlib.sha256()
    for path in sorted(out.rglob("*")):
        if path.suffix in (".trace", ".safetensors") or path.name in ("ledger.jsonl", "federation.toml"):
            found.update(path.name.encode() + path.read_bytes())
        elif path.parent.name == "checkpoints" and path.suffix == ".json":
            found.update(json.dumps(without_wall(json.loads(path.read_text())), sort_keys=True).encode())
    return found.hexdigest()


LINEAR = {
    *("afsgd", "afsvrg", "afsaga", "fsgd", "fsvrg", "fsaga", "asysqn-sgd", "asysqn-svrg", "asysqn-saga"),
    *("synsqn-sgd", "synsqn-svrg", "synsqn-saga", "fcg"),
}


def without_wall(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_wall(own) for key, own in value.items() if "wall" not in key and "sha" not in key}
    return [without_wall(own) for own in value] if isinstance(value, list) else value


if __name__ == "__main__":
    digests = {}
    for run in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            digests[run] = digest_of(run, Path(folder) / "run")
        print(run, digests[run][:12], flush=True)
    Path(sys.argv[1]).write_text(json.dumps(digests, indent=1) + "\n")
