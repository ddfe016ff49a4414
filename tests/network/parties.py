"""A federation of real processes on this machine, as tests need it: files, certificates, a port, and who is running.

Every party is `colonnade join` itself over mutual TLS on loopback. A fork server starts them, each in a few
milliseconds. What a party said is in its log, what it has become in its run directory.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

from colonnade.data.federated import FederatedData
from colonnade.data.loading import load
from colonnade.data.settings import PartyData
from colonnade.federation.building import build_parties
from colonnade.federation.file import Federation, parse_federation
from colonnade.federation.toml import write_toml
from colonnade.launch.experiment import train
from colonnade.launch.outcome import Outcome
from colonnade.party import Party
from colonnade.runtimes.checkpoint import numbers_of, read_checkpoint
from colonnade.runtimes.processes.fork_server import Child, ForkServer
from colonnade.runtimes.processes.settings import Processes
from colonnade.state import State
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificates import Credentials, read_credentials

LABEL = "label"
PATIENCE_SECONDS = 60.0
"""Far longer than anything here takes: only a test that fails waits for it."""


class FailedError(AssertionError):
    """A party did not do what the test waited for; its last words are in the message."""


def start_fork_server() -> ForkServer:
    """Its module is in this folder, which it is told of by PYTHONPATH."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    try:
        return ForkServer("started_party")
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


class SupervisedForkServer:
    """The same fork server for the processes of one machine, in place of their own: one less to load."""

    def __init__(self, fork_server: ForkServer, **options: Any) -> None:
        self._fork_server = fork_server
        self._options = json.dumps(options)
        self.started: dict[str, Child] = {}

    def start(self, title: str, arguments: list[str], log: Path) -> Child:
        child = self.started[title] = self._fork_server.start(title, [self._options, "party", *arguments], log)
        return child


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """What `holds` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise FailedError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.02)
    return found


class Organisation:
    """One party: its files in a folder of its own, its log, and its process if it has one."""

    def __init__(self, town: "Town", name: str, own: Mapping[str, Any]) -> None:
        self._town = town
        self.name = name
        self.folder = town.folder / name
        self.folder.mkdir()
        self.out = self.folder / "run"
        self.log = self.folder / "log.txt"
        self.log.touch()
        self.process: Child | None = None
        self.started = 0
        self.options: dict[str, Any] = {}
        issue(town.authority, name, self.folder, [], 1)
        keys = {"certificate": f"{name}.pem", "key": f"{name}.key", "authority": "authority.pem"}
        self.own: dict[str, Any] = {
            "party": {"name": name, "listen": f"127.0.0.1:{town.port}"},
            "keys": {**keys, "revoked": "revoked.txt"},
            "endurance": dict(town.endurance),
            **own,
        }
        self.write_files()

    def write_files(self, **sections: Any) -> None:
        """Its party.toml, and its copy of what all share with these sections changed."""
        shared = {**self._town.shared, **sections}
        (self.folder / "federation.toml").write_text(write_toml(shared), encoding="utf-8")
        (self.folder / "party.toml").write_text(write_toml(self.own), encoding="utf-8")

    def credentials(self) -> Credentials:
        keys = [self.folder / self.own["keys"][what] for what in ("key", "certificate", "authority", "revoked")]
        return read_credentials(*keys)

    # --- its process ---

    def command(self, *more: str, verb: str = "join", out: Path | None = None) -> list[str]:
        files = [str(self.folder / "federation.toml"), "--party", str(self.folder / "party.toml")]
        return [verb, *files, "--out", str(out or self.out), *more]

    def start(self, *more: str, verb: str = "join", out: Path | None = None) -> Child:
        return self.begin(self.command(*more, verb=verb, out=out))

    def begin(self, command: list[str]) -> Child:
        """Any command, in a process of its own."""
        self.process = self._town.fork_server.start(self.name, [json.dumps(self.options), *command], self.log)
        self._town.started.append(self.process)
        self.started += 1
        return self.process

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send(number)

    def kill(self) -> None:
        """As if somebody pulled the plug of this process."""
        assert self.process is not None
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)

    def end(self, code: int | None = 0) -> int:
        """Wait until it has ended, and see how."""
        assert self.process is not None
        if not self.process.wait(PATIENCE_SECONDS):
            raise FailedError(f"{self.name} does not end. It said:\n{self.last_words()}")
        found = self.process.returncode
        assert found is not None
        if code is not None and found != code:
            raise FailedError(f"{self.name} ended with {found} instead of {code}. It said:\n{self.last_words()}")
        return found

    # --- what it said and has become ---

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        return "\n".join(self.said().splitlines()[-25:])

    def hear(self, words: str, times: int = 1) -> None:
        """Wait until its log holds these words, so many times."""
        try:
            wait_until(lambda: self.said().count(words) >= times, f"{self.name} to say {words!r}")
        except FailedError as error:
            raise FailedError(f"{error}. It said:\n{self.last_words()}") from None

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "summary.json").read_text(encoding="utf-8"))
        return found

    def metrics(self) -> list[dict[str, Any]]:
        path = self.out / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        whole = []
        for line in lines:
            with suppress(ValueError):  # the last one may be half written
                whole.append(json.loads(line))
        return whole

    def saved(self) -> State:
        """Its last checkpoint, which must be whole."""
        folder = self.out / "checkpoints"
        state = read_checkpoint(folder, self.name, numbers_of(folder, self.name)[-1])
        assert state is not None
        return state

    def memory_megabytes(self) -> float:
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


class Town:
    """A federation: what its parties share, and the parties."""

    def __init__(
        self,
        fork_server: ForkServer,
        folder: Path,
        shared: Mapping[str, Any],
        *,
        parties: int = 2,
        own: Mapping[str, Mapping[str, Any]] | None = None,
        **endurance: Any,
    ) -> None:
        self.fork_server = fork_server
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.endurance = {"notice_seconds": 0.3, "linger_seconds": 10.0, **endurance}
        self.authority = folder / "authority"
        make_authority(self.authority, "a test", 2)
        # The same seed gives the same training, unless a target is to be kept: noise that all can compute keeps none.
        targets = {"labels_epsilon", "columns_epsilon"} & {*shared.get("privacy", {})}
        network = {"address": f"127.0.0.1:{self.port}", "private_randomness": bool(targets)}
        self.shared: dict[str, Any] = {"network": network, **shared}
        self.started: list[Child] = []
        names = [LABEL, *(f"party{1 + place}" for place in range(parties))]
        self.parties = {name: Organisation(self, name, (own or {}).get(name, {})) for name in names}

    @property
    def label(self) -> Organisation:
        return self.parties[LABEL]

    @property
    def feature_parties(self) -> list[Organisation]:
        return [one for name, one in self.parties.items() if name != LABEL]

    def __getitem__(self, name: str) -> Organisation:
        return self.parties[name]

    def start(self, *more: str) -> None:
        """Everybody; `more` is for the label party."""
        self.label.start(*more)
        for one in self.feature_parties:
            one.start()

    def end(self) -> dict[str, Any]:
        """Everybody ends well; the label party's summary."""
        for one in self.parties.values():
            one.end()
        return self.label.summary()

    def exchanges(self) -> int:
        """How far the label party says that it is."""
        metrics = self.label.metrics()
        return int(metrics[-1]["exchange"]) if metrics else 0

    def epochs(self) -> float:
        """The same in epochs, which all algorithms count alike."""
        metrics = self.label.metrics()
        return float(metrics[-1]["epoch"]) if metrics else 0.0

    def goes_on(self) -> None:
        """Some exchanges more than there were."""
        before = self.exchanges()
        wait_until(lambda: self.exchanges() > before or not self.label.alive(), "the training to go on")

    def close(self) -> None:
        for process in self.started:
            process.send(signal.SIGKILL)
            process.close()

    # --- the same, elsewhere ---

    def federation(self) -> Federation:
        return parse_federation(self.shared)

    def data(self) -> FederatedData:
        federation = self.federation()
        shares = dict(federation.party_data())
        for name, one in self.parties.items():
            if "data" in one.own:
                shares[name] = PartyData(str(one.folder / one.own["data"]["file"]))
        return load(federation.data, shares, federation.label_party, self.folder)

    def simulated(self, seed: int | None = None, **more: Any) -> Outcome:
        """The same federation in virtual time."""
        return self._trained("simulate", seed, **more)

    def processed(self, options: Mapping[str, Any] | None = None, **more: Any) -> Outcome:
        """The same federation as processes over Unix sockets."""
        self.supervisor = SupervisedForkServer(self.fork_server, **(options or {}))
        with mock.patch("colonnade.launch.processes.fork_server_for", lambda module: self.supervisor):
            return self._trained(self.federation().processes, None, **more)

    def _trained(self, runtime: str | Processes, seed: int | None, **more: Any) -> Outcome:
        own = self.federation()
        return train(
            self.data(),
            own.algorithm,
            training=own.training,
            bottom=own.bottom,
            top=own.top,
            privacy=own.privacy,
            seed=own.seed if seed is None else seed,
            runtime=runtime,
            **more,
        )

    def built(self) -> dict[str, Party]:
        """Fresh parties like those of this federation: what they begin with."""
        own = self.federation()
        return build_parties(self.data(), own.algorithm, own.training, own.privacy, own.bottom, own.top, own.seed)

    def models(self) -> dict[str, dict[str, torch.nn.Module]]:
        """What every party has trained."""
        return self.models_of(*self.parties)

    def models_of(self, *names: str) -> dict[str, dict[str, torch.nn.Module]]:
        """What these have trained, from their last checkpoints."""
        parties = {name: party for name, party in self.built().items() if name in names}
        for name, party in parties.items():
            party.restore(self.parties[name].saved().part("party"))
        return {name: party.model() for name, party in parties.items()}


def weights(models: Mapping[str, Mapping[str, torch.nn.Module]]) -> dict[str, torch.Tensor]:
    """Every weight of every party, by name."""
    return {
        f"{party}.{name}.{key}": tensor
        for party, own in models.items()
        for name, module in own.items()
        for key, tensor in module.state_dict().items()
    }


def assert_same_bits(
    one: Mapping[str, Mapping[str, torch.nn.Module]], other: Mapping[str, Mapping[str, torch.nn.Module]]
) -> None:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    assert ours, "there is nothing to compare"
    different = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert not different


def shared(
    algorithm: str | Mapping[str, Any], data: Mapping[str, Any], epochs: float, batch_size: int, **sections: Any
) -> dict[str, Any]:
    """A federation.toml's sections."""
    chosen = {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    training = {"epochs": epochs, "batch_size": batch_size, "observe_every_epochs": 0.5, **sections.pop("training", {})}
    return {"algorithm": chosen, "data": dict(data), "training": training, **sections}


IRIS = {"set": "iris", "parties": 2}
TABLE_ROWS = 6000  # a third of them to train on
LINEAR_SPLIT = {"bottom": {"kind": "linear"}, "top": {"kind": "sum"}}


def with_tables(build: Callable[..., Town], plan: Mapping[str, Any], parties: int = 4, **options: Any) -> Town:
    """A federation whose parties have files of their own: two columns each, and a label that nearly follows from them.

    A linear model finds it, whatever the order in which things happen, so that two trainings end close to each other.
    """
    names = [LABEL, *(f"party{1 + place}" for place in range(parties))]
    tables = {"data": {"label": "label", "test_fraction": 2 / 3, "standardise": False}}
    own = {name: {"data": {"file": "table.csv"}} for name in names}
    town = build({**plan, **tables, "parties": {name: {} for name in names}}, parties=parties, own=own, **options)
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((TABLE_ROWS, 2 * parties))
    slopes = np.resize([2.0, -1.0, 1.0, 1.0, -2.0, 1.0, 1.0, -1.0], 2 * parties)
    ids = np.arange(TABLE_ROWS)
    labels = (columns @ slopes + 0.5 * generator.standard_normal(TABLE_ROWS) > 0).astype(int)
    frames = {LABEL: {"label": labels}}
    for place, name in enumerate(names[1:]):
        frames[name] = {f"x{column}": columns[:, column] for column in (2 * place, 2 * place + 1)}
    for name, frame in frames.items():
        pd.DataFrame({"id": ids, **frame}).to_csv(town[name].folder / "table.csv", index=False)
    return town
