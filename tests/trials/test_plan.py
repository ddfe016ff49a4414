"""`colonnade plan`: what a simulation with measured times foretells, and what is recommended."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import colonnade
from colonnade.costs.estimate import price
from colonnade.errors import SettingsError
from colonnade.federation.building import facts_of
from colonnade.federation.file import changed_values, parse_federation, read_federation
from colonnade.federation.plan import Plan
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty
from colonnade.trials import forecast
from colonnade.trials import plan as planning
from colonnade.trials.contention import contention_of
from colonnade.trials.forecast import Carriage, Forecast, Rehearsal, World
from colonnade.trials.plan import Variant, declared_times, plan_training, recommended

DATA = colonnade.dataset("iris", parties=2)
COMPUTE = 0.001
NEAR = Simulate(latency_seconds=0.0)


def plan(**sections: Any) -> Plan:
    training = {"epochs": 3, "batch_size": 8}
    return parse_federation({"data": {"set": "iris"}, "training": training, **sections}).plan(DATA)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor on which everything between two looks at its clock takes a millisecond."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(forecast.time, "thread_time", lambda: COMPUTE * next(ticks))


Foretold = Callable[..., Forecast]


@pytest.fixture
def foretold(ticking: None) -> Foretold:
    def in_world(world: World, of: Plan | None = None) -> Forecast:
        return Rehearsal(DATA, of or plan(), world, seconds=0.05).foretold(world)

    return in_world


# --- pace: small numbers that can be checked by hand --------------------------------------------------------------


def test_far_links_make_an_exchange_a_round_trip_and_two_events(foretold: Foretold) -> None:
    """Two parties that wait for their own replies: each makes one exchange in 0.1 s of link and 2 ms of work."""
    far = foretold(World(Simulate(latency_seconds=0.05)))
    assert far.exchanges_per_second == pytest.approx(2 / 0.102, rel=0.05)
    assert far.busy["label"] == pytest.approx(2 * COMPUTE / 0.102, rel=0.1)


def test_uploads_in_flight_fill_a_far_link(foretold: Foretold) -> None:
    far = World(Simulate(latency_seconds=0.05))
    one, four = foretold(far), foretold(far, plan(algorithm={"name": "vafl", "in_flight": 4}))
    assert four.exchanges_per_second / one.exchanges_per_second == pytest.approx(4, rel=0.15)
    assert four.bytes_up == pytest.approx(one.bytes_up, rel=0.1)


def test_parties_of_one_machine_wait_for_its_cores(foretold: Foretold) -> None:
    """An exchange is an event of each side: one core does one after the other, of two the label party fills one."""
    assert foretold(World(NEAR, cores=1)).exchanges_per_second == pytest.approx(1 / (2 * COMPUTE), rel=0.05)
    assert foretold(World(NEAR, cores=2)).exchanges_per_second == pytest.approx(1 / COMPUTE, rel=0.05)


def test_what_slows_an_event_down_counts(foretold: Foretold) -> None:
    alone = foretold(World(NEAR, cores=1))
    # Two frames, each carried at two ends.
    carried = foretold(World(NEAR, cores=1, carriage=Carriage(COMPUTE)))
    assert alone.exchanges_per_second / carried.exchanges_per_second == pytest.approx(3, rel=0.05)
    slow = Simulate(latency_seconds=0.0, parties={"label": SimulatedParty(slowdown=4)})
    assert foretold(World(slow)).exchanges_per_second == pytest.approx(1 / (4 * COMPUTE), rel=0.05)
    assert foretold(World(NEAR, declared={"label": 0.01})).exchanges_per_second == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("name", ["split", "fsgd", "zoo-sync"])
def test_other_schedules_are_foretold_too(foretold: Foretold, name: str) -> None:
    chosen = plan(algorithm={"name": name})
    told = foretold(World(NEAR), chosen)
    assert told.exchanges == price(chosen, facts_of(DATA, chosen)).exchanges
    assert told.seconds == pytest.approx(told.exchanges / told.exchanges_per_second + told.evaluation_seconds)
    assert 0 < told.evaluation_seconds < told.seconds and max(told.busy.values()) <= 1


def test_who_trains_alone_waits_for_nobody(foretold: Foretold) -> None:
    with pytest.raises(SettingsError, match="nothing travels"):
        foretold(World(NEAR), plan(algorithm={"name": "centralised"}))


# --- variants ---------------------------------------------------------------------------------------------------


def told(seconds: float, size: int) -> Forecast:
    return Forecast(seconds, 0.0, 10, 10 / seconds, size, 0, {"label": 0.5, "party1": 0.2}, 2.0, 100.0)


def test_the_fastest_is_recommended_and_of_equals_the_one_that_sends_less() -> None:
    variants = [
        Variant({}, told(10, 100)),
        Variant({"a.b": "1"}, told(5.0, 100)),
        Variant({"a.b": "2"}, told(5.1, 50)),
        Variant({"a.b": "3"}, refused="No."),
    ]
    assert recommended(variants, range(4)) == 2
    assert recommended(variants, [0, 1, 3]) == 1
    assert recommended(variants, [3]) is None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flowers.toml"
    path.write_text('[data]\nset = "iris"\nparties = 2\n[training]\nepochs = 2\nbatch_size = 8\n')
    return path


def test_a_file_and_its_variants(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the real runs, which are the benchmark's."""
    monkeypatch.setattr(planning, "carriage_here", lambda *_: Carriage(1e-4))
    each = {"algorithm.in_flight": ["1", "2", "0"]}
    found = plan_training(file, each, changes=["simulate.latency_seconds=0.05"], seconds=0.05).as_values()
    assert [one["changes"]["algorithm.in_flight"] for one in found["variants"]] == ["1", "2", "0"]
    assert (found["as_it_is"], found["best"], found["best_alike"]) == (0, 1, 1)
    assert "must be at least 1" in found["variants"][2]["why"]
    assert found["variants"][1]["seconds"] < found["variants"][0]["seconds"]
    assert set(found["variants"][0]["utilisation"]) == {"label", "party1", "party2"}
    with pytest.raises(SettingsError, match="plan each such federation by itself"):
        plan_training(file, {"data.seed": ["1", "2"]})
    with pytest.raises(SettingsError, match="change it with --set"):
        plan_training(file, {"simulate.latency_seconds": ["0", "0.1"]})
    with pytest.raises(SettingsError, match="not for 'moon'"):
        plan_training(file, place="moon")


def test_without_a_grid_uploads_and_batches_are_varied(file: Path) -> None:
    settings = read_federation(file)
    found = planning.default_grid(settings, settings.plan(DATA), 100)
    assert found == {"algorithm.in_flight": ["1", "2", "4"], "training.batch_size": ["8", "16", "32"]}


def test_declared_compute_times_are_taken(file: Path) -> None:
    file.write_text(
        file.read_text() + "[simulate]\ncompute_seconds = 0.5\n[simulate.parties.party2]\n"
        'slowdown = 3\ncompute_seconds = {distribution = "exponential", mean = 0.1}\n'
    )
    found = declared_times(changed_values(file), read_federation(file), DATA)
    assert found == {"party1": 0.5, "party2": pytest.approx(0.3)}  # the label party's is measured


def test_compute_times_of_the_command_line_are_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "carriage_here", lambda *_: Carriage())
    asked = ["simulate.label_compute_seconds=0.1", "simulate.latency_seconds=0"]
    (told,) = plan_training(file, {}, changes=asked, seconds=0.05).variants
    assert told.forecast is not None and told.forecast.exchanges_per_second == pytest.approx(10, rel=0.05)


def test_what_a_frame_costs_explains_a_real_run(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pace that was made up by a known cost gives that cost back."""
    cores, each = 1, 0.002
    monkeypatch.setattr(planning.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(planning, "_real_seconds_per_exchange", lambda *_: 2 * COMPUTE + 4 * each)
    measured = planning.carriage_here(DATA, [plan()], lambda line: None, 0.05)
    assert measured.seconds_per_frame == pytest.approx(each, rel=0.05)
    monkeypatch.setattr(planning, "_real_seconds_per_exchange", lambda *_: 0.0)  # too short to tell
    assert planning.carriage_here(DATA, [plan()], lambda line: None, 0.05) == Carriage()


def test_one_run_that_is_disturbed_counts_for_nothing(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each size the median: here the second run of the larger batch takes ten times as long."""
    monkeypatch.setattr(planning.os, "cpu_count", lambda: 1)
    each = 0.002
    took = iter([*[2 * COMPUTE + 4 * each] * 3, 20 * COMPUTE, *[2 * COMPUTE + 4 * each] * 2])
    monkeypatch.setattr(planning, "_real_seconds_per_exchange", lambda *_: next(took))
    both = [plan(), replace(plan(), training=replace(plan().training, batch_size=16))]
    measured = planning.carriage_here(DATA, both, lambda line: None, 0.05)
    assert next(took, None) is None
    assert measured.seconds_per_frame == pytest.approx(each, rel=0.05)


def test_cores_that_slow_one_another_down_do_so_when_all_are_busy() -> None:
    world = World(NEAR, cores=3, contention=1.5)
    assert [world.crowded(free) for free in (2, 1, 0)] == [1.0, 1.25, 1.5]
    assert World(NEAR, cores=None, contention=1.5).crowded(None) == 1.0
    assert World(NEAR, cores=1, contention=1.5).crowded(0) == 1.0
    assert contention_of(1) == 1.0 and contention_of(2) >= 1.0


def test_the_rehearsal_ignores_what_ends_a_training_early(foretold: Foretold) -> None:
    chosen = plan()
    stops = replace(chosen, training=replace(chosen.training, epochs=0.1))
    assert foretold(World(NEAR), stops).exchanges == 4
