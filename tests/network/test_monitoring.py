"""Prometheus and the page of Grafana in deploy/: a real Prometheus scrapes real parties, in every phase of a run."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from parties import Town, free_port, shared, wait_until

from colonnade.exit_codes import ExitCode

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/colonnade.json").read_text(encoding="utf-8"))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("Prometheus is not installed: apt-get install prometheus")
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    return found


class Prometheus:
    """A server of a test's own, with the rules of deploy/."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        words = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._address}/api/v1/query?{words}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def value(self, expression: str) -> float:
        """Of the only series there is; 0 without one."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else 0.0


@contextmanager
def prometheus(folder: Path, targets: dict[str, str]) -> Iterator[Prometheus]:
    """Scrapes these addresses five times a second, each under the name of its party."""
    folder.mkdir()
    own = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
    own["global"] = {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"}
    own["scrape_configs"][0]["static_configs"] = [
        {"targets": [address], "labels": {"instance": name}} for name, address in targets.items()
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(own), encoding="utf-8")
    shutil.copy(DEPLOY / "prometheus/rules.yml", folder)
    port = free_port()
    command = [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
    try:
        server = Prometheus(port)
        wait_until(server.ready, "Prometheus to begin")
        yield server
    finally:
        process.terminate()
        process.wait(30)


def test_the_rules_hold_in_every_phase() -> None:
    checked = subprocess.run(
        [program("promtool"), "test", "rules", "rules_test.yml"],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0 and "SUCCESS" in checked.stdout, checked.stdout + checked.stderr


def test_every_alert_is_tried_and_told_of() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text(encoding="utf-8"))
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    tried = (DEPLOY / "prometheus/rules_test.yml").read_text(encoding="utf-8")
    told = (DEPLOY.parent / "docs/operations.md").read_text(encoding="utf-8")
    assert names and [one for one in names if one not in tried or f"`{one}`" not in told] == []


def test_grafana_finds_its_page_and_its_source() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["grafana"]
    mounts = dict(mount.split(":")[1::-1] for mount in compose["volumes"])
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8"))
    pages = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/colonnade.yaml").read_text(encoding="utf-8"))
    place = pages["providers"][0]["options"]["path"]
    assert (DEPLOY / mounts[place] / "colonnade.json").exists()
    assert compose["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{place}/colonnade.json"
    uids = {target["datasource"]["uid"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert uids == {sources["datasources"][0]["uid"]}


def test_prometheus_sees_parties_in_every_phase(town: Callable[..., Town], tmp_path: Path) -> None:
    data, noised = {"set": "digits", "parties": 2, "max_rows": 1200}, {"clip": 1.0, "noise": 0.1}
    one = town(shared("vafl", data, epochs=400, batch_size=16, privacy=noised))
    addresses = {name: f"127.0.0.1:{free_port()}" for name in one.parties}
    for name, party in one.parties.items():
        party.own["party"] |= {"metrics": addresses[name]}
        party.write_files()
    with prometheus(tmp_path / "prometheus", addresses) as seen:
        # One waits for the others, who are not there: alerts are on their way before there is a run.
        one.label.start()
        wait_until(lambda: seen.value('colonnade_status{instance="label", status="waiting"}'), "the label party")
        pending = 'count(ALERTS{alertname="PartyAbsent", instance="label", alertstate="pending"})'
        wait_until(lambda: seen.value(pending) == 2, "alerts on both")
        down = 'count(ALERTS{alertname="PartyDown", alertstate="pending"})'
        wait_until(lambda: seen.value(down) == 2, "alerts on both programs")
        assert seen.value(f'{down[:-1]} and on(instance) up{{instance="label"}})') == 0
        one["party1"].start()
        wait_until(lambda: seen.value(pending) == 1, "the alert on who has come to end")
        one["party2"].start()
        wait_until(lambda: seen.value("min(colonnade_exchanges_total)") > 0, "exchanges of all")
        for query in queries():  # a rate is one from the second scrape on
            wait_until(lambda query=query: seen.query(query), f"an answer to {query}")
        for party in one.parties.values():
            party.signal(signal.SIGTERM)
            party.end(ExitCode.STOPPED)


def queries() -> list[str]:
    """What Grafana asks for, with its variables filled in as it would."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    filled = [query.replace("$party", ".*").replace("$__rate_interval", "1m") for query in found]
    assert not [query for query in filled if re.search(r"\$\w", query)]
    return filled
