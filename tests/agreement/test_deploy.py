"""What deploy/ says is so: its commands parse, its files, ports, secrets and health checks fit one another.

Neither a container nor a service is started here (`make deployment` does that); the commands that they would run are
given to the command line's own parser.
"""

import configparser
import json
import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tree import ROOT

from colonnade.cli.application import app
from colonnade.errors import SettingsError
from colonnade.exit_codes import ExitCode
from colonnade.runtimes.network.limits import MOST_CONNECTIONS
from colonnade.runtimes.network.settings import parse_address

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
ALL_SERVICES: dict[str, Any] = COMPOSE["services"]
MONITORING = ("prometheus", "grafana")
SERVICES = {name: service for name, service in ALL_SERVICES.items() if name not in MONITORING}
COMMAND: Any = typer.main.get_command(app)


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The verb and the options of a call, as the command line understands them; raises if it does not."""
    verb, rest = words[0], words[1:]
    command = COMMAND.commands[verb]
    return verb, command.make_context(verb, rest).params


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "colonnade@.service").read_text(encoding="utf-8"))
    return parser


# --- compose.yaml -----------------------------------------------------------------------------------------------


def test_a_label_party_and_two_feature_parties() -> None:
    assert set(SERVICES) == {"bank", "shop", "clinic"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_runs_a_call_that_parses(name: str) -> None:
    verb, options = parsed(SERVICES[name]["command"])
    assert verb == "join"
    assert options["party"] == Path(f"/etc/colonnade/{name}/party.toml")
    assert options["federation"] == Path("/etc/colonnade/federation.toml")
    assert options["out"].is_relative_to("/var/lib/colonnade")


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_names_is_mounted_and_declared(name: str) -> None:
    service = SERVICES[name]
    mounts = {target: source for source, target, *_ in (mount.split(":") for mount in service["volumes"])}
    named = {source for source in mounts.values() if not source.startswith(".")}
    assert named <= set(COMPOSE["volumes"]) and all(source.startswith(f"{name}-") for source in named)
    assert mounts["/etc/colonnade/federation.toml"] == "./federation.toml"
    assert mounts[f"/etc/colonnade/{name}"] == f"./{name}"
    assert mounts["/var/lib/colonnade"] == f"{name}-run"
    for mount in service["volumes"]:
        assert mount.endswith(":ro") == mount.startswith("."), "only volumes of its own may be written to"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_its_own_key_and_nobody_elses(name: str) -> None:
    assert SERVICES[name]["secrets"] == [f"{name}_key", f"{name}_certificate"]
    files = {secret: COMPOSE["secrets"][secret]["file"] for secret in SERVICES[name]["secrets"]}
    assert files == {f"{name}_key": f"./secrets/{name}.key", f"{name}_certificate": f"./secrets/{name}.pem"}
    readable = [mount.split(":")[0] for mount in SERVICES[name]["volumes"]]
    assert "./secrets" not in readable and "." not in readable


def test_every_volume_and_every_secret_is_used() -> None:
    mounted = {mount.split(":")[0] for service in ALL_SERVICES.values() for mount in service["volumes"]}
    assert set(COMPOSE["volumes"]) == {source for source in mounted if not source.startswith(".")}
    assert set(COMPOSE["secrets"]) == {secret for service in SERVICES.values() for secret in service["secrets"]}


def test_only_the_label_party_is_reached_from_outside() -> None:
    outside = {
        name: [port for port in map(str, service["ports"]) if not port.startswith("127.0.0.1:")]
        for name, service in ALL_SERVICES.items()
    }
    assert outside == {"bank": ["7443:7443"]} | {name: [] for name in ("shop", "clinic", *MONITORING)}
    published = [port.split(":")[-2] for service in ALL_SERVICES.values() for port in service["ports"]]
    assert len(published) == len(set(published)), "two services want one port of the machine"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_asked_how_it_is_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    kind, *command = service["healthcheck"]["test"]
    assert kind == "CMD" and command[:2] == ["python", "-c"]
    compile(command[2], "the health check", "exec")
    asked = re.search(r"http://([\d.]+:\d+)/healthz", command[2])
    assert asked is not None
    port = parse_address(asked.group(1), "the health check")[1]
    assert any(published.endswith(f":{port}") for published in service["ports"])
    assert service["restart"].startswith("on-failure")
    assert service["read_only"] and service["cap_drop"] == ["ALL"]


def test_the_comments_name_the_settings_that_the_services_need() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    for words in (
        'address = "bank:7443"',
        'listen = "0.0.0.0:7443"',
        'metrics = "0.0.0.0:9464"',
        "/run/secrets/bank_key",
    ):
        assert words in text


# --- the image --------------------------------------------------------------------------------------------------


def test_the_image_is_built_from_files_that_exist_with_the_tested_versions() -> None:
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert {"pyproject.toml", "deploy/requirements.lock", "torch.lock", "src"} <= set(copied)
    assert not [name for name in copied if not (ROOT / name).exists()]
    let_in = re.findall(r"^!(.*)$", (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(let_in) == sorted(copied)
    *locked, ours = re.findall(r"^RUN pip install (.*)$", text, re.MULTILINE)
    assert len(locked) == 2 and all("--require-hashes" in line and line.endswith(".lock") for line in locked)
    assert {"--no-deps", "--no-build-isolation", "--no-index"} <= set(ours.split())  # nothing is fetched without a hash
    python = re.search(r"^FROM python:(\d+)\.(\d+)\.\d+-slim@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert python is not None and f">={'.'.join(python.groups())}" == needed
    assert 'ENTRYPOINT ["colonnade"]' in text
    assert re.search(r"^USER colonnade$", text, re.MULTILINE)


def test_keys_belong_to_the_user_of_the_image() -> None:
    uid = re.search(r"--uid (\d+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert uid is not None
    assert f"chown {uid.group(1)} secrets/*.key" in (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


# --- the unit of systemd ----------------------------------------------------------------------------------------


def test_the_unit_runs_a_call_that_parses() -> None:
    words = shlex.split(unit()["Service"]["ExecStart"].replace("%i", "bank"))
    assert Path(words[0]).name == "colonnade"
    verb, options = parsed(words[1:])
    assert verb == "join"
    assert options["party"] == Path("/etc/colonnade/bank/party.toml")
    assert str(options["out"]) == f"/var/lib/{unit()['Service']['StateDirectory'].replace('%i', 'bank')}"


def test_a_call_that_does_not_parse_is_noticed() -> None:
    with pytest.raises(Exception, match=r"No such option|Missing option"):
        parsed(["join", "federation.toml", "--parties", "x"])
    with pytest.raises(SettingsError):
        parse_address("9464", "the health check")


def test_the_unit_knows_what_the_exit_codes_mean() -> None:
    service = unit()["Service"]
    assert service["SuccessExitStatus"] == str(ExitCode.STOPPED)
    assert service["RestartPreventExitStatus"] == str(SettingsError.exit_code)
    assert (service["Restart"], service["KillSignal"]) == ("on-failure", "SIGTERM")


def test_the_unit_may_touch_its_run_directory_and_nothing_else() -> None:
    service = unit()["Service"]
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == "/var/lib/colonnade/%i"
    assert (service["NoNewPrivileges"], service["ProtectHome"], service["UMask"]) == ("true", "true", "0077")
    caches = re.findall(r"_CACHE_DIR=(\S+)|MPLCONFIGDIR=(\S+)", service["Environment"])
    assert caches and all("".join(pair).startswith("/var/cache/colonnade/") for pair in caches)
    assert service["CacheDirectory"] == "colonnade"


# --- the chart of Helm ------------------------------------------------------------------------------------------
# It is rendered by helm itself in `make deployment`; here its own files are held against one another.

CHART = DEPLOY / "helm" / "colonnade"
JOB = (CHART / "templates" / "party.yaml").read_text(encoding="utf-8")


def test_the_chart_is_of_this_version_and_its_values_are_those_of_its_schema() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == metadata.version("colonnade")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(values) == set(schema["properties"]) - {"global"}
    for section, described in schema["properties"].items():
        assert section == "global" or set(described.get("properties", values[section])) == set(values[section])
    used = set(
        re.findall(r"\.Values\.([\w.]+)", "".join(path.read_text("utf-8") for path in CHART.glob("templates/*")))
    )
    leaves = {
        f"{section}.{name}" if isinstance(own, dict) and own and section != "resources" else section
        for section, own in values.items()
        for name in (own if isinstance(own, dict) and own else [""])
    }
    assert used == leaves


def test_the_chart_runs_a_call_that_parses_as_the_user_of_the_image() -> None:
    found = re.search(r"args: \[(join.*)\]", JOB)
    assert found is not None
    verb, options = parsed(found[1].split(", "))
    assert verb == "join" and options["party"] == Path("/etc/colonnade/party.toml")
    places = re.findall(r"mountPath: ([^\s,}]+)", JOB)
    assert {"/etc/colonnade", str(options["out"].parent), "/run/colonnade/keys"} <= set(places)
    uid = re.search(r"--uid (\d+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert uid is not None and {*re.findall(r"(?:runAsUser|fsGroup): (\d+)", JOB)} == {uid[1]}


def test_the_chart_knows_what_the_exit_codes_mean() -> None:
    rules = dict(re.findall(r"action: (\w+)\n\s+onExitCodes: .*values: \[(\d+)\]", JOB))
    assert rules == {"FailJob": str(int(SettingsError.exit_code)), "Ignore": str(int(ExitCode.STOPPED))}


def test_connections_do_not_take_all_files() -> None:
    """Both ways to run a party allow far more files than the label party takes connections."""
    allowed = {unit()["Service"]["LimitNOFILE"], *(service["ulimits"]["nofile"] for service in SERVICES.values())}
    assert {*map(int, allowed)} == {8192}
    assert MOST_CONNECTIONS <= 8192 // 4
