"""What an operator sees of a party: /healthz, /metrics, the log, the exit code."""

import ast
import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from parties import Organisation, Town, free_port, shared, wait_until
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from colonnade.errors import RunError, SettingsError
from colonnade.exit_codes import ExitCode
from colonnade.federation.file import parse_federation
from colonnade.federation.party_file import read_party_file
from colonnade.runtimes import operations, picture
from colonnade.runtimes.network.settings import parse_address
from colonnade.runtimes.operations import PICTURE_SECONDS, STALLED_SECONDS, Operations
from colonnade.runtimes.peer import Link
from colonnade.runtimes.picture import Amount, Picture

EXPIRES = datetime(2030, 1, 1, tzinfo=UTC)
IRIS = {"set": "iris", "parties": 2}
DIGITS = {"set": "digits", "parties": 2, "max_rows": 1200}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Shown:
    """A server with a party that a test invents."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.picture = Picture()
        self.pictures_taken = 0
        self.expires: Callable[[], datetime] = lambda: EXPIRES
        self.operations = Operations("bank", "127.0.0.1:0", self.clock)
        self.look = self.operations.attend(self._take, lambda: self.expires(), "vafl")

    def _take(self) -> Picture:
        self.pictures_taken += 1
        return self.picture

    def get(self, path: str) -> tuple[int, str]:
        return get(f"http://127.0.0.1:{self.operations.port}{path}")

    def health(self) -> tuple[int, dict[str, Any]]:
        status, body = self.get("/healthz")
        return status, json.loads(body)

    def samples(self) -> dict[tuple[str, ...], float]:
        return samples(self.get("/metrics")[1])


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """(name, label values in the order of their names) → value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def shown() -> Iterator[Shown]:
    one = Shown()
    with one.operations:
        yield one


# --- where it looks ---------------------------------------------------------------------------------------------


def test_a_picture_is_of_what_a_party_shows() -> None:
    """Nothing that is another object's own is read."""
    trees = [ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8")) for module in (operations, picture)]
    private = [
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value) != "self"
    ]
    assert [name for name in private if not name.startswith("__")] == []


# --- where it listens -------------------------------------------------------------------------------------------


NO_ADDRESS = ["9464", ":9464", "127.0.0.1", "127.0.0.1:", "host:x", "h:65536", "h:99999", "::1:9464", "[h]:1", "a b:1"]


@pytest.mark.parametrize("text", NO_ADDRESS)
def test_an_address_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    """Wherever one is written: gRPC would take 443, or the port modulo 65536, and say nothing."""
    with pytest.raises(SettingsError, match=r"\[party\] metrics is .*write it as host:port"):
        Operations("bank", text)
    with pytest.raises(SettingsError, match=r"\[network\] address is .*write it as host:port"):
        parse_federation({"data": IRIS, "network": {"address": text}})
    path = tmp_path / "party.toml"
    keys = '[keys]\ncertificate = "a"\nkey = "b"\nauthority = "c"\n'
    for setting in ("listen", "metrics"):
        path.write_text(f'[party]\nname = "bank"\n{setting} = "{text}"\n{keys}')
        with pytest.raises(SettingsError, match=rf"\[party\] {setting} is .*write it as host:port"):
            read_party_file(path)


def test_addresses() -> None:
    assert parse_address("[fe80::1%eth0]:7443", "x") == ("fe80::1%eth0", 7443)
    assert parse_address("bank.example.org:65535", "x") == ("bank.example.org", 65535)
    assert parse_address("0.0.0.0:0", "x", any_port=True) == ("0.0.0.0", 0)
    with pytest.raises(SettingsError, match="port from 1 to 65535"):
        parse_address("bank:0", "x")


def test_an_address_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RunError, match=f"cannot be served at {address}: .*Choose another"):
            Operations("bank", address)


def test_a_host_that_is_none_is_said() -> None:
    with pytest.raises(RunError, match="cannot be served"):
        Operations("bank", "no..host:9464")


# --- /healthz ---------------------------------------------------------------------------------------------------


def test_before_its_first_turn_a_party_waits(shown: Shown) -> None:
    body = {"party": "bank", "status": "waiting", "connected": [], "absent": [], "seconds_since_last_event": None}
    assert shown.health() == (200, body)


def test_health_says_who_is_there_and_how_long_ago_something_happened(shown: Shown) -> None:
    links = {"shop": Link(True, 0, 0, 0), "clinic": Link(False, 0, 0, 0)}
    shown.picture = Picture("training", links, ("clinic",), busy_seconds=0.25)
    shown.look()
    shown.clock.seconds += 3.5
    status, body = shown.health()
    assert status == 200
    assert (body["status"], body["connected"], body["absent"]) == ("training", ["shop"], ["clinic"])
    assert body["seconds_since_last_event"] == 3.5


def test_a_silent_peer_is_no_illness(shown: Shown) -> None:
    shown.picture = Picture("training", {"shop": Link(True, 0, 0, 0)}, busy_seconds=1.0)
    for _ in range(5):
        shown.look()
        shown.clock.seconds += STALLED_SECONDS - 1
    status, body = shown.health()
    assert status == 200
    assert body["seconds_since_last_event"] == 5 * (STALLED_SECONDS - 1)


def test_a_thread_that_no_longer_comes_by_is_an_illness(shown: Shown) -> None:
    shown.look()
    shown.clock.seconds += STALLED_SECONDS + 1
    status, body = shown.health()
    assert status == 503
    assert "61 seconds" in body["fault"]
    shown.look()
    assert shown.health()[0] == 200


def test_a_picture_is_taken_now_and_then_not_in_every_turn(shown: Shown) -> None:
    for _ in range(8):
        shown.look()
        shown.clock.seconds += PICTURE_SECONDS / 4
    assert shown.pictures_taken == 2


def test_other_pages_and_other_verbs_are_refused(shown: Shown) -> None:
    assert shown.get("/")[0] == 404
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{shown.operations.port}/metrics", data=b"x", timeout=10)
    with refused.value as error:
        assert error.code == 501


# --- /metrics ---------------------------------------------------------------------------------------------------


def test_the_figures_of_a_picture(shown: Shown) -> None:
    shown.picture = Picture(
        status="training",
        links={"shop": Link(True, 2, 3, 3000), "clinic": Link(False, 1, 0, 0)},
        absent=("clinic",),
        exchanges=12,
        steps=6,
        epochs=1.5,
        staleness={"mean": 0.5, "max": 4.0},
        sent={"GradientReply": Amount(12, 2400)},
        received={"EmbeddingUpload": Amount(13, 2600)},
        frames_taken=13,
        queue_depth=1,
        busy_seconds=0.75,
        restarts=2,
        checkpoints=5,
        refusals=7,
        releases={("gaussian", "shop's columns of one row"): 9},
    )
    shown.look()
    shown.clock.seconds += 2
    found = shown.samples()
    process = {key for key in found if key[0].startswith("process_")}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total"} <= {key[0] for key in process}
    assert found.pop(next(key for key in found if key[0] == "colonnade_info")) == 1
    assert {key: value for key, value in found.items() if key not in process} == {
        ("colonnade_status", "waiting"): 0,
        ("colonnade_status", "training"): 1,
        ("colonnade_status", "finished"): 0,
        ("colonnade_exchanges_total",): 12,
        ("colonnade_steps_total",): 6,
        ("colonnade_epochs",): 1.5,
        ("colonnade_frames_total", "sent", "GradientReply"): 12,
        ("colonnade_bytes_total", "sent", "GradientReply"): 2400,
        ("colonnade_frames_total", "received", "EmbeddingUpload"): 13,
        ("colonnade_bytes_total", "received", "EmbeddingUpload"): 2600,
        ("colonnade_frames_taken_total",): 13,
        ("colonnade_staleness_exchanges", "mean"): 0.5,
        ("colonnade_staleness_exchanges", "max"): 4,
        ("colonnade_queue_depth",): 1,
        ("colonnade_connected", "shop"): 1,
        ("colonnade_connected", "clinic"): 0,
        ("colonnade_kept_frames", "shop"): 3,
        ("colonnade_kept_frames", "clinic"): 0,
        ("colonnade_kept_bytes", "shop"): 3000,
        ("colonnade_kept_bytes", "clinic"): 0,
        ("colonnade_reconnects_total", "shop"): 2,
        ("colonnade_reconnects_total", "clinic"): 1,
        ("colonnade_busy_seconds_total",): 0.75,
        ("colonnade_restarts_total",): 2,
        ("colonnade_checkpoints_total",): 5,
        ("colonnade_refusals_total",): 7,
        ("colonnade_privacy_releases_total", "gaussian", "shop's columns of one row"): 9,
        ("colonnade_seconds_since_last_event",): 2,
        ("colonnade_certificate_expiry_timestamp_seconds",): EXPIRES.timestamp(),
    }


def test_a_certificate_that_will_not_do_ends_in_1970(shown: Shown) -> None:
    def broken() -> datetime:
        raise SettingsError("The certificate bank.pem expired.")

    shown.expires = broken
    assert shown.samples()[("colonnade_certificate_expiry_timestamp_seconds",)] == 0


def test_two_parties_of_one_process_share_nothing(shown: Shown) -> None:
    other = Shown()
    with other.operations:
        other.picture = Picture(exchanges=3)
        other.look()
        assert shown.samples()[("colonnade_exchanges_total",)] == 0
        assert other.samples()[("colonnade_exchanges_total",)] == 3
    assert not [family for family in REGISTRY.collect() if family.name.startswith("colonnade")]


def test_a_scrape_sees_one_moment_while_the_party_goes_on(shown: Shown) -> None:
    """Exchanges and steps are equal in every picture, so they are in every scrape."""
    over = threading.Event()

    def go_on() -> None:
        count = 0
        while not over.is_set():
            count += 1
            shown.picture = Picture("training", exchanges=count, steps=count)
            shown.clock.seconds += PICTURE_SECONDS
            shown.look()

    party = threading.Thread(target=go_on)
    party.start()
    try:
        for _ in range(20):
            found = shown.samples()
            assert found[("colonnade_exchanges_total",)] == found[("colonnade_steps_total",)]
    finally:
        over.set()
        party.join()


# --- real parties -----------------------------------------------------------------------------------------------


def observed(town: Town) -> dict[str, str]:
    """Give every party a log in JSON and a port of its own for its metrics; returns their addresses."""
    addresses = {}
    for name, one in town.parties.items():
        address = f"127.0.0.1:{free_port()}"
        one.own["party"] |= {"metrics": address, "log": "json"}
        one.write_files()
        addresses[name] = f"http://{address}"
    return addresses


def health(address: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(get(f"{address}/healthz")[1])
    except OSError:  # it does not listen yet
        return {}
    return found


def log_of(one: Organisation) -> list[dict[str, Any]]:
    """Every line of the log, each of which must be JSON."""
    return [json.loads(line) for line in one.said().splitlines()]


@pytest.mark.parametrize("algorithm", ["vafl", "afsgd"])
def test_a_federation_as_its_operators_see_it(town: Callable[..., Town], algorithm: str) -> None:
    one = town(shared(algorithm, DIGITS, epochs=400, batch_size=16))
    address = observed(one)
    one.label.start()
    one["party1"].start()
    wait_until(lambda: health(address["label"]).get("connected") == ["party1"], "party1 to arrive")
    waiting = health(address["label"])
    assert (waiting["party"], waiting["status"], waiting["absent"]) == ("label", "waiting", ["party2"])
    wait_until(lambda: health(address["party1"]).get("connected") == ["label"], "party1 to be let in")
    assert health(address["party1"])["status"] == "waiting"

    one["party2"].start()
    for name in one.parties:
        wait_until(lambda name=name: health(address[name]).get("status") == "training", f"{name} to train")
    first = samples(get(f"{address['label']}/metrics")[1])
    assert first[("colonnade_connected", "party1")] == 1
    assert first[("colonnade_certificate_expiry_timestamp_seconds",)] > datetime.now(UTC).timestamp()

    def exchanges(name: str) -> float:
        return samples(get(f"{address[name]}/metrics")[1])[("colonnade_exchanges_total",)]

    for name in one.parties:
        wait_until(lambda name=name: exchanges(name) > first[("colonnade_exchanges_total",)], f"{name} to go on")
    found = samples(get(f"{address['label']}/metrics")[1])
    for direction in ("sent", "received"):
        assert sum(value for key, value in found.items() if key[:2] == ("colonnade_bytes_total", direction)) > 0

    one["party2"].kill()
    wait_until(lambda: health(address["label"])["absent"] == ["party2"], "party2 to be missed")
    one["party2"].start()
    wait_until(lambda: health(address["label"])["absent"] == [], "party2 to come back")
    assert samples(get(f"{address['party2']}/metrics")[1])[("colonnade_restarts_total",)] == 1

    for party in one.parties.values():
        party.signal(signal.SIGTERM)
        party.end(ExitCode.STOPPED)
        assert log_of(party)[-1]["event"] == "stopped"
        assert party.summary()["status"] == "stopped"


def test_a_stopped_party_goes_on_and_ends_with_0(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, epochs=60, batch_size=8))
    observed(one)
    one["party1"].options = {"milliseconds_an_event": 2}
    one.start()
    one["party1"].hear("connected to label")
    wait_until(lambda: one.exchanges() > 0, "the training to begin")
    one["party1"].signal(signal.SIGTERM)
    one["party1"].end(ExitCode.STOPPED)
    one["party1"].options = {}
    one["party1"].start()
    one.end()
    last = log_of(one.label)[-1]
    assert (last["level"], last["event"], last["party"]) == ("info", "finished", "label")
    assert set(last["test"]) >= {"accuracy"}
    for party in one.parties.values():
        assert {"time", "level", "party", "event", "message"} <= set.intersection(*map(set, log_of(party)))


def test_the_pages_hold_no_secret(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, epochs=500, batch_size=8, privacy={"noise": 0.5, "clip": 1.0}))
    address = observed(one)
    one.start()

    def released() -> float:
        found = samples(get(f"{address['party1']}/metrics")[1])
        return sum(value for key, value in found.items() if key[0] == "colonnade_privacy_releases_total")

    wait_until(lambda: health(address["party1"]).get("status") == "training", "the training to begin")
    wait_until(lambda: released() > 0, "something to be released")
    for name, party in one.parties.items():
        pages = get(f"{address[name]}/metrics")[1] + get(f"{address[name]}/healthz")[1] + party.said()
        for file in ("token", "entropy", "sealing.key"):
            assert (party.out / file).read_bytes().hex() not in pages
        key = (party.folder / f"{name}.key").read_text().splitlines()[1]
        assert key not in pages
        assert "loss" not in get(f"{address[name]}/metrics")[1]


# --- what ends a party, in its log --------------------------------------------------------------------------------


def ending(one: Organisation, code: int) -> dict[str, Any]:
    one.start()
    one.end(code)
    return log_of(one)[-1]


def test_a_wrong_setting_is_a_line_of_json(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, epochs=1, batch_size=8))
    observed(one)
    one.label.write_files(training={"epoch": 1})
    line = ending(one.label, 2)
    assert (line["level"], line["event"], line["exit_code"]) == ("error", "SettingsError", 2)
    assert "Did you mean 'epochs'?" in line["message"]


def test_an_address_that_is_taken_ends_a_party_with_1(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, epochs=1, batch_size=8))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one.label.own["party"] |= {"metrics": f"127.0.0.1:{taken.getsockname()[1]}", "log": "json"}
        one.label.write_files()
        line = ending(one.label, 1)
    assert (line["event"], line["exit_code"]) == ("RunError", 1)
    assert "Metrics cannot be served" in line["message"]


def test_a_defect_is_a_line_of_json_too(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", IRIS, epochs=1, batch_size=8))
    observed(one)
    one.label.options = {"patches": {"colonnade.launch.join.PeriodicReport": None}}  # calling it raises TypeError
    line = ending(one.label, 1)
    assert (line["level"], line["event"]) == ("critical", "defect")
    assert "TypeError" in line["traceback"]


def test_a_log_for_people_is_text(town: Callable[..., Town], tmp_path: Path) -> None:
    one = town(shared("vafl", IRIS, epochs=1, batch_size=8))
    one.label.write_files(training={"epoch": 1})
    one.label.start()
    one.label.end(2)
    assert one.label.said().startswith("colonnade: There is no")
