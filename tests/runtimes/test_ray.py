"""Parties as Ray actors, on a cluster of two nodes on this machine; and their carrier alone, over calls that fail.

A synchronous federation gives the same models wherever it runs: so it must on Ray, and also when an actor is killed.
"""

import asyncio
import logging
import os
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import ray
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.cluster_utils import Cluster

import colonnade
from colonnade.algorithms.training import DecidedTraining
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError, SettingsError
from colonnade.federation.building import facts_of, private_data_of
from colonnade.federation.plan import Plan
from colonnade.launch.outcome import Outcome
from colonnade.launch.ray import PartyActor
from colonnade.launch.seat_files import Life, SeatFiles, write_seat
from colonnade.party import Effect, Finish, Send
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.links import Peers
from colonnade.runtimes.ray import supervisor
from colonnade.runtimes.ray.carrier import CallCarrier
from colonnade.runtimes.ray.cluster import NAMESPACE, cluster
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.station import Recording, Station
from colonnade.settings import build
from colonnade.testing import Scripted, letter
from colonnade.trials.sweep import sweep

# Long enough to be killed in the middle: parties are asked how far they are twice a second.
TRAINING = DecidedTraining(epochs=80, batch_size=16, evaluate_every_epochs=40)
BOTTOM, TOP = colonnade.BottomSettings(hidden=(4,)), colonnade.TopSettings(hidden=(4,))
LEAST_CPUS = 0.01  # several parties share the two cores


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[None]:
    """A cluster whose second node alone has the resource `bank`; Ray is connected to it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # What Ray says about a default of its own that will change.
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=node)
    try:
        nodes.add_node(num_cpus=2, object_store_memory=80 << 20, resources={"bank": 1})
        ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def flowers() -> FederatedData:
    return colonnade.dataset("iris", parties=2)


@pytest.fixture(scope="module")
def simulated(flowers: FederatedData) -> Outcome:
    return colonnade.train(flowers, "split", training=TRAINING, bottom=BOTTOM, top=TOP)


def train(data: FederatedData, algorithm: str = "split", **options: Any) -> Outcome:
    return colonnade.train(data, algorithm, **{"training": TRAINING, "bottom": BOTTOM, "top": TOP, **options})


def assert_same_models(one: Outcome, other: Outcome) -> None:
    for party, models in one.models.items():
        for name, model in models.items():
            for key, tensor in model.state_dict().items():
                assert tensor.equal(other.models[party][name].state_dict()[key]), f"{party}: {name}.{key}"


# --- on the cluster ---------------------------------------------------------------------------------------------


def test_a_run_that_is_stopped_resumed_and_killed_learns_what_a_simulation_does(
    two_nodes: None, flowers: FederatedData, simulated: Outcome, tmp_path: Path
) -> None:
    """One run, since every actor takes a while to load PyTorch: stopped early, and killed when it goes on."""
    runtime = Ray(cpus=LEAST_CPUS, placement_seconds=200, resources={"party2": {"CPU": LEAST_CPUS, "bank": 0.5}})
    reports: list[tuple[str, dict[str, Any]]] = []
    stopped = train(
        flowers,
        runtime=runtime,
        out=tmp_path / "run",
        report=lambda *report: reports.append(report),
        stop_requested=lambda: any(said["exchanges"] for _, said in reports),
    )
    assert not stopped.finished and stopped.summary["status"] == "stopped"
    assert 0 < stopped.summary["exchanges"] < 1120
    assert {party for party, _ in reports} == {"label", "party1", "party2"}
    (bank,) = (node["NodeID"] for node in ray.nodes() if "bank" in node["Resources"])
    assert {said["node"] for party, said in reports if party == "party2"} == {bank}

    with pytest.raises(SettingsError, match="started with --runtime ray"):
        train(flowers, runtime="processes", out=tmp_path / "run", resume=True)

    def kill_once(party: str, said: dict[str, Any]) -> None:
        if party == "party1" and said.get("exchanges", 0) > stopped.summary["exchanges"] / 2 and not killed:
            killed.append(said["actor"])
            ray.kill(ray.get_actor(said["actor"], NAMESPACE), no_restart=False)

    killed: list[str] = []
    lines: list[dict[str, Any]] = []
    run = train(flowers, runtime=runtime, out=tmp_path / "run", resume=True, report=kill_once, watch=lines.append)
    assert killed and run.finished and lines
    own = run.summary["parties"]
    # Everybody was started again to go on, and party1 once more after it was killed.
    assert {party: own[party]["restarts"] for party in own} == {"label": 1, "party1": 2, "party2": 1}
    assert own["party1"]["exchanges"] == own["party2"]["exchanges"] == 560
    assert (run.summary["runtime"], run.summary["virtual_seconds"]) == ("ray", None)
    for count in ("exchanges", "bytes_up", "bytes_down", "test", "train_loss"):
        assert run.summary[count] == simulated.summary[count], count
    assert_same_models(run, simulated)


def test_one_sum_teaches_everybody_on_the_cluster(two_nodes: None, flowers: FederatedData) -> None:
    """Actors are as late as they happen to be: what is the same is where the steps lead, the optimum."""
    settings = colonnade.Afsaga(updates="everybody")
    training = DecidedTraining(epochs=30, batch_size=16, evaluate_every_epochs=0, l2=0.1)
    runtime = Ray(cpus=LEAST_CPUS, placement_seconds=200)
    outcome, simulated = (
        colonnade.train(flowers, settings, training=training, runtime=one) for one in (runtime, "simulate")
    )
    assert outcome.finished and outcome.summary["runtime"] == "ray"
    own = outcome.summary["parties"]
    assert all(own[party]["steps"] > 0 for party in flowers.columns)
    for metric in ("log_loss", "penalty"):
        assert outcome.summary["test"][metric] == pytest.approx(simulated.summary["test"][metric], rel=1e-2)


def test_who_finds_no_place(two_nodes: None, flowers: FederatedData) -> None:
    runtime = Ray(cpus=LEAST_CPUS, placement_seconds=0.5, resources={"party1": {"vault": 1.0}})
    with pytest.raises(RunError, match=r"party1 .*found no place.* asks for CPU 0\.01, vault 1; free are .*bank 1"):
        train(flowers, runtime=runtime)


def forgotten() -> type[Any]:
    """An actor that stands for a Ray that forgets the first call for news and the first call to live.

    Made here, so that Ray sends the class itself: the cluster's nodes do not know this module.
    """

    class Forgotten:
        def __init__(self, name: str) -> None:
            self._calls = {"live": 0, "news": 0}
            self._begun = False

        async def live(self, seat: dict[str, bytes], peers: dict[str, Any]) -> dict[str, Any]:
            self._calls["live"] += 1
            if self._calls["live"] == 1:
                await asyncio.Event().wait()
            self._begun = True
            return {"finished": True}

        async def news(self) -> tuple[bool, list[dict[str, Any]]]:
            self._calls["news"] += 1
            if self._calls["news"] == 1:
                await asyncio.Event().wait()
            return self._begun, [{"asked": self._calls["live"]}]

    return Forgotten


def test_calls_that_ray_forgets_are_made_again(two_nodes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_LOST_SECONDS", 0.2)
    told: list[tuple[str, dict[str, Any]]] = []
    actors = supervisor.ActorSupervisor(
        forgotten(),
        {"party1": {}},
        {"party1": []},
        Ray(cpus=LEAST_CPUS, placement_seconds=200),
        watch=lambda *news: told.append(news),
        stop_requested=lambda: False,
    )
    assert actors.run()
    assert told[-1] == ("party1", {"asked": 2})


def test_a_sweep_on_the_cluster(two_nodes: None, tmp_path: Path) -> None:
    path = tmp_path / "flowers.toml"
    path.write_text('[data]\nset = "iris"\nparties = 2\n[training]\nepochs = 1\n', encoding="utf-8")
    grid = {"training.learning_rate": [0.1, 0.2]}
    here = sweep(path, grid, out=tmp_path / "here", workers=1)
    there = sweep(path, grid, out=tmp_path / "there", address="auto")
    for one, other in zip(here["cells"], there["cells"], strict=True):
        assert {**one, "wall_seconds": 0} == {**other, "wall_seconds": 0}


# --- without one ------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_not_there(flowers: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(SettingsError, match=r"no Ray cluster at the address 'auto': Could not .* write local"):
        train(flowers, runtime="ray", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "ray://[::1]:{}", "no-such-host.invalid:{}"])
def test_an_address_at_which_nobody_listens_is_said_before_ray_tries(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray would try for minutes"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so that nobody else has it; nobody listens
        where = address.format(taken.getsockname()[1])
        said = re.escape(f"There is no Ray cluster at the address '{where}': ")
        with pytest.raises(SettingsError, match=rf"{said}.*ray start --head"), cluster(where):
            pass


@pytest.mark.parametrize("address", ["auto", "{}", "ray://{}"])
def test_an_address_at_which_somebody_listens_is_left_to_ray(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(options["address"]))
    with socket.create_server(("127.0.0.1", 0)) as door:
        where = address.format(f"127.0.0.1:{door.getsockname()[1]}")
        with cluster(where):
            assert asked == [where]
    monkeypatch.setenv("RAY_ADDRESS", where.removeprefix("ray://"))  # what auto means where it is set
    if address != "auto":
        with pytest.raises(SettingsError, match="no Ray cluster at the address '127"), cluster("auto"):
            pass


def test_a_local_cluster_has_what_the_parties_need(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: asked.update(options))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with cluster("local", [{"CPU": 1.0}, {"CPU": 1.5, "bank": 0.5}, {"CPU": 1.0, "bank": 0.25}]):
        assert (asked["num_cpus"], asked["num_gpus"], asked["resources"]) == (4, None, {"bank": 0.75})


def test_a_run_directory_that_a_node_does_not_see(flowers: FederatedData, tmp_path: Path) -> None:
    plan = Plan(colonnade.Split(), TRAINING, colonnade.PerturbationSettings(), BOTTOM, TOP, 0)
    life = Life(str(tmp_path / "elsewhere"), (), Endurance(), order=("label", "party1"))
    seat = tmp_path / "seat"
    write_seat(seat, SeatFiles((private_data_of(flowers, "party1", plan),), facts_of(flowers, plan), plan, life))
    files = {path.name: path.read_bytes() for path in seat.iterdir()}
    actor = PartyActor("party1")
    assert asyncio.run(actor.deliver("label", "token", 1, b"")) is False  # nobody lives there yet
    told = asyncio.run(actor.live(files, {}))
    assert "is not there on the node on which party1 lives" in told["failed"]


def test_settings() -> None:
    given_table = {"address": "ray://head:10001", "resources": {"party1": {"CPU": 2, "bank": 0.001}}}
    assert build(Ray, given_table, "ray").needs_of("party1") == {"CPU": 2, "bank": 0.001}
    assert Ray(cpus=0.5).needs_of("party2") == {"CPU": 0.5}
    for wrong, words in (
        ({"address": ""}, "ray.address is empty"),
        ({"restarts": -1}, "ray.restarts is -1; it must be 0 or more"),
        ({"calls_in_flight": 0}, "must be 1 or more"),
        ({"cpus": float("nan")}, "ray.cpus is nan"),
        ({"resources": {"party1": {"bank": -1.0}}}, "ray.resources.party1.bank is -1.0"),
    ):
        with pytest.raises(SettingsError, match=words):
            build(Ray, wrong, "ray")


def test_a_party_that_does_not_exist_is_given_nothing(flowers: FederatedData, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no party for ray.resources 'party3'\. Did you mean 'party2'"):
        train(flowers, runtime=Ray(resources={"party3": {"CPU": 1}}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- the carrier ------------------------------------------------------------------------------------------------


class Fickle:
    """Calls between carriers of one loop that are slow, overtake one another, fail before or after, or are lost."""

    def __init__(self, seed: int, failing: float) -> None:
        self.carriers: dict[str, CallCarrier] = {}
        self.under_way: dict[tuple[str, str], int] = {}
        self.most = 0
        self._drawn = random.Random(seed)
        self._failing = failing

    async def call(self, sender: str, peer: str, method: str, *arguments: Any) -> bool:
        link = (sender, peer)
        self.under_way[link] = self.under_way.get(link, 0) + 1
        self.most = max(self.most, self.under_way[link])
        try:
            await asyncio.sleep(self._drawn.choice((0, 0, 0.0005, 0.002)))
            if self._drawn.random() < self._failing or peer not in self.carriers:
                raise ConnectionError(peer)
            if self._drawn.random() < self._failing / 4:
                await asyncio.Event().wait()  # nobody will ever answer
            answer = getattr(self.carriers[peer], method)(*arguments)
            accepted = bool(await answer if asyncio.iscoroutine(answer) else answer)
            if self._drawn.random() < self._failing:
                raise ConnectionError(peer)
            return accepted
        finally:
            self.under_way[link] -= 1


def counting(to: str, count: int) -> Scripted:
    """Sends so many numbered letters at once, and finishes when it has as many."""

    def script(party: Scripted, what: str) -> list[Effect]:
        if what == "Started":
            return [Send(to, letter(number, eights=number)) for number in range(count)]
        heard = len(party.names("letter")) + what.startswith("letter")
        return [Finish()] if heard == count and what.startswith("letter") else []

    return Scripted(script)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from((0.0, 0.05, 0.15)), st.integers(1, 3), st.integers(8, 40))
def test_every_letter_comes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, seed: int, failing: float, calls_in_flight: int, waiting_frames: int
) -> None:
    async def both() -> tuple[list[bool], Fickle]:
        fickle = Fickle(seed, failing)
        endurance = Endurance(notice_seconds=60, linger_seconds=1.0, waiting_frames=waiting_frames)
        folder = tmp_path_factory.mktemp("town")
        for name, other in (("a", "b"), ("b", "a")):
            station = Station(
                name,
                parties[name],
                Peers([other], "a"),
                folder,
                Recording(Recorder("a"), lambda at: Ledger()),
                endurance=endurance,
            )

            async def call(peer: str, method: str, *arguments: Any, name: str = name) -> bool:
                return await fickle.call(name, peer, method, *arguments)

            fickle.carriers[name] = CallCarrier(
                station,
                ["a", "b"],
                call,
                calls_in_flight=calls_in_flight,
                linger_seconds=endurance.linger_seconds,
                stop_requested=lambda: False,
            )
        async with asyncio.timeout(60):
            return await asyncio.gather(*(carrier.run() for carrier in fickle.carriers.values())), fickle

    parties = {"a": counting("b", 30), "b": counting("a", 30)}
    impatient = {
        "_LONGEST_RETRY_SECONDS": 0.02,
        "_SIGN_OF_LIFE_SECONDS": 0.02,
        "_LOOK_UP_SECONDS": 0.02,
        "_ANSWER_SECONDS": 0.1,
    }
    with mock.patch.multiple("colonnade.runtimes.ray.carrier", **impatient):
        ended, fickle = asyncio.run(both())
    assert ended == [True, True]
    for party in parties.values():
        assert party.names("letter") == [f"letter {number}" for number in range(30)]
    if not failing:  # else calls of a link that was given up may still be on their way
        assert fickle.most <= calls_in_flight + 1  # and a proposal


def test_torch_has_one_thread_in_an_actor() -> None:
    before = torch.get_num_threads()
    try:
        PartyActor("anybody")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
