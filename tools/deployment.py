"""Runs what deploy/ describes, as far as one machine can: `make deployment`, as root on Linux.

    python tools/deployment.py unit              systemd-analyze verify, then ExecStart as it is written
    python tools/deployment.py chart             helm lint and template, Kubernetes' schemas, the container's call
    python tools/deployment.py image             the Dockerfile by buildah, then its entry point
    python tools/deployment.py image --debian    the same over Debian's Python, where Docker Hub cannot be reached

Each is started in a clean root of its own, as the user `colonnade`, with the files where the description says, until it
answers `/healthz`; then it is stopped. Nobody else is there: the party waits for the others, and is well.
Not tried here: what a cluster and the sandbox of systemd add.
"""

import configparser
import fcntl
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PARTY, UID, METRICS_PORT = "bank", 10001, 9464
PATIENCE_SECONDS = 120.0
FEDERATION = f"""[federation]
name = "trial"
label_party = "{PARTY}"

[data]
set = "iris"
parties = 2

[network]
address = "127.0.0.1:7443"
"""


class NotSoError(Exception):
    """Something in deploy/ is not as it says."""


@dataclass
class Started:
    """What is to be started, and what it finds: paths are those inside of its root."""

    words: list[str]
    environment: Mapping[str, str]
    files: dict[str, bytes] = field(default_factory=dict)  # the user's own, readable by nobody else
    folders: list[str] = field(default_factory=list)  # the user's own
    health: str = f"http://127.0.0.1:{METRICS_PORT}/healthz"
    before: list[list[str]] = field(default_factory=list)  # programs that are run first


# --- a party's files ----------------------------------------------------------------------------------------------


def party_file(keys: str) -> str:
    """The bank's, with its keys in a folder."""
    return f"""[party]
name = "{PARTY}"
listen = "127.0.0.1:7443"
metrics = "127.0.0.1:{METRICS_PORT}"
log = "json"

[keys]
key = "{keys}/{PARTY}.key"
certificate = "{keys}/{PARTY}.pem"
authority = "{keys}/authority.pem"
revoked = "{keys}/revoked.txt"
"""


def issued() -> dict[str, bytes]:
    """Key, certificate and the two files of the authority, by `colonnade certs`."""
    with tempfile.TemporaryDirectory() as folder:
        certs = [sys.executable, "-m", "colonnade", "certs"]
        run([*certs, "init", f"{folder}/authority", "--name", "trial"])
        run([*certs, "issue", PARTY, "--authority", f"{folder}/authority", "--out", f"{folder}/{PARTY}"])
        return {path.name: path.read_bytes() for path in Path(folder, PARTY).iterdir()}


def run(words: list[str], **options: Any) -> str:
    """A program's output; its own words are the complaint."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise NotSoError(f"{shlex.join(words)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


# --- a clean root -------------------------------------------------------------------------------------------------


@contextmanager
def clean_root() -> Iterator[Path]:
    """This machine's programs and this environment's Python, read-only, and nothing else of it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        for name in ("etc", "tmp", "run", "var/lib", "var/cache"):
            (root / name).mkdir(parents=True)
        environment = Path(sys.prefix)
        shown = {Path("/usr"): "/usr", Path("/dev"): "/dev", Path("/proc"): "/proc", ROOT / "src": str(ROOT / "src")}
        shown |= {environment: str(environment), Path(sys.base_prefix): sys.base_prefix}
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).is_symlink():
                (root / name).symlink_to(f"usr/{name}")
            elif Path("/", name).exists():
                shown[Path("/", name)] = f"/{name}"
        (root / "opt").mkdir(exist_ok=True)
        (root / "opt" / "colonnade").symlink_to(environment)
        mounted = []
        try:
            for place, inside in sorted(shown.items()):
                if place.is_relative_to("/usr") and place != Path("/usr"):
                    continue
                at = root / inside.lstrip("/")
                at.mkdir(parents=True, exist_ok=True)
                run(["mount", "--rbind", str(place), str(at)])
                mounted.append(at)
            yield root
        finally:
            for at in reversed(mounted):
                subprocess.run(["umount", "--lazy", "--recursive", str(at)], check=True)


def well(started: Started, root: Path) -> None:
    """Start it in its root as the user, and wait until it says that it is well."""
    (root / "etc" / "passwd").write_text(f"root:x:0:0::/:/bin/sh\ncolonnade:x:{UID}:{UID}::/:/bin/sh\n")
    for name, content in {**started.files, **dict.fromkeys(started.folders, None)}.items():
        at = root / name.lstrip("/")
        (at if content is None else at.parent).mkdir(parents=True, exist_ok=True)
        if content is not None:
            at.write_bytes(content)
        at.chmod(0o700 if content is None else 0o600)
        os.chown(at, UID, UID)
    as_user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", f"--groups={UID}", "--"]
    inside = [shutil.which("chroot") or "/usr/sbin/chroot", str(root), *as_user]
    environment = {"PATH": "/opt/colonnade/bin:/usr/local/bin:/usr/bin:/bin", **started.environment}
    for words in started.before:
        run([*inside, *words], env=environment)
    process = subprocess.Popen(
        [*inside, *started.words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        answer = _healthy(process, started.health)
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    if answer is None:
        raise NotSoError(f"{shlex.join(started.words)} was not well within {PATIENCE_SECONDS:.0f} s:\n{said[-3000:]}")
    if process.returncode != 3:
        raise NotSoError(f"Stopped, it ended with {process.returncode} and not with 3:\n{said[-3000:]}")
    print(f"  {shlex.join(started.words)}\n  {json.dumps(answer)}\n  stopped by SIGTERM, it ended with 3")


def _healthy(process: "subprocess.Popen[str]", address: str) -> Any:
    until = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(address, timeout=5) as reply:
                return json.load(reply)
        except OSError:
            time.sleep(0.2)
    return None


# --- the three ----------------------------------------------------------------------------------------------------


def unit() -> None:
    """The unit of systemd: its file is understood, and its ExecStart, written as it is, starts a party."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "colonnade@.service").read_text(encoding="utf-8").replace("%i", PARTY))
    service = parser["Service"]
    words = shlex.split(service["ExecStart"])
    with clean_root() as root:
        units = root / "etc" / "systemd" / "system"
        units.mkdir(parents=True)
        shutil.copy(DEPLOY / "colonnade@.service", units)
        if shutil.which("systemd-analyze") is None:
            raise NotSoError("systemd-analyze is not installed: apt-get install systemd")
        verify = ["systemd-analyze", "verify", "--man=no", f"/etc/systemd/system/colonnade@{PARTY}.service"]
        done = subprocess.run(["chroot", str(root), *verify], capture_output=True, text=True, check=False)
        known = re.compile(r"Unknown key '(RestartSteps|RestartMaxDelaySec)'")  # before systemd 254
        complaints = [line for line in done.stderr.splitlines() if "colonnade" in line and not known.search(line)]
        if complaints:
            raise NotSoError("\n".join(complaints))
        print("  systemd-analyze verify: nothing to complain about")
        keys = f"/etc/colonnade/{PARTY}"
        files = {f"{keys}/{name}": content for name, content in issued().items()}
        files[f"{keys}/federation.toml"] = FEDERATION.encode()
        files[f"{keys}/party.toml"] = party_file(keys).encode()
        folders = [f"/var/lib/{service['StateDirectory']}", f"/var/cache/{service['CacheDirectory']}"]
        environment = dict(word.split("=", 1) for word in service["Environment"].split())
        well(Started(words, environment, files, folders), root)


def chart() -> None:
    """The Helm chart: linted, rendered, held against Kubernetes' schemas; the container's call starts a party."""
    import yaml

    if shutil.which("helm") is None:
        raise NotSoError("helm is not installed: https://helm.sh/docs/intro/install/")
    folder, keys = DEPLOY / "helm" / "colonnade", "/run/colonnade/keys"
    own = party_file(keys).replace(f"{PARTY}.key", "key.pem").replace(f"{PARTY}.pem", "certificate.pem")
    with tempfile.TemporaryDirectory() as made:
        Path(made, "federation.toml").write_text(FEDERATION)
        Path(made, "party.toml").write_text(own)
        given = ["--set", f"party.name={PARTY},party.listens=true,keys.secret=bank-keys"]
        given += [
            f"--set-file=party.federationFile={made}/federation.toml",
            f"--set-file=party.partyFile={made}/party.toml",
        ]
        run(["helm", "lint", "--strict", str(folder), *given])
        rendered = run(["helm", "template", PARTY, str(folder), *given])
    objects = {one["kind"]: one for one in yaml.safe_load_all(rendered) if one}
    print(f"  helm lint --strict and template: {', '.join(objects)}")
    _held_against_schemas(objects)
    pod = objects["Job"]["spec"]["template"]["spec"]
    (prepares,), (party,) = pod["initContainers"], pod["containers"]
    secret = {name.replace(PARTY, "key") if name.endswith(".key") else name: one for name, one in issued().items()}
    names = {"key.key": "key.pem", f"{PARTY}.pem": "certificate.pem"}
    files = {f"/run/secrets/colonnade/{names.get(name, name)}": one for name, one in secret.items()}
    files |= {f"/etc/colonnade/{name}": text.encode() for name, text in objects["ConfigMap"]["data"].items()}
    # Volumes that are mounted empty, and are the user's by fsGroup.
    empty = [one["mountPath"] for one in party["volumeMounts"] if one["name"] in ("keys", "run", "cache")]
    ports = {one["name"]: one["containerPort"] for one in party["ports"]}
    probe = party["livenessProbe"]["httpGet"]
    health = f"http://127.0.0.1:{ports[probe['port']]}{probe['path']}"
    words = [*entry_point(), *party["args"]]
    before = [[*prepares["command"], *prepares["args"]]]
    with clean_root() as root:
        well(Started(words, image_environment(), files, empty, health, before), root)


def _held_against_schemas(objects: Mapping[str, Any]) -> None:
    try:
        import kubernetes_validate
    except ImportError:
        print("  not held against Kubernetes' schemas: pip install kubernetes-validate")
        return
    for kind, one in objects.items():
        kubernetes_validate.validate(one, "1.33", strict=True)
        print(f"  {kind} is as Kubernetes' schema has it")


BUILDAH = ["buildah", "--storage-driver", "vfs"]
IMAGE = "localhost/colonnade-trial"


def build(base: str | None) -> None:
    """The image by buildah, of its own base or over another one."""
    if shutil.which("buildah") is None:
        raise NotSoError("buildah is not installed: apt-get install buildah")
    packages = [place for place in os.environ.get("PIP_FIND_LINKS", "").split() if Path(place).is_dir()]
    words = ["bud", "--isolation=chroot", "--layers=false", *(f"--volume={place}:{place}:ro" for place in packages)]
    words += [f"--ignorefile={DEPLOY / 'Dockerfile.dockerignore'}", f"--file={DEPLOY / 'Dockerfile'}", f"--tag={IMAGE}"]
    run([*BUILDAH, *words, *([] if base is None else [f"--from={base}"]), str(ROOT)])
    print(f"  built by buildah{' over ' + base if base else ''}", flush=True)


def image() -> None:
    """The image's entry point starts a party, in the image's own root."""
    config = json.loads(run([*BUILDAH, "inspect", "--type=image", IMAGE]))["OCIv1"]["config"]
    if config["User"] != "colonnade" or config["Entrypoint"] != entry_point():
        raise NotSoError(f"The image's user and entry point are {config['User']} and {config['Entrypoint']}.")
    keys = "/etc/colonnade"
    files = {f"{keys}/{name}": content for name, content in issued().items()}
    files |= {f"{keys}/federation.toml": FEDERATION.encode(), f"{keys}/party.toml": party_file(keys).encode()}
    words = [*entry_point(), "join", f"{keys}/federation.toml", f"--party={keys}/party.toml"]
    environment = dict(one.split("=", 1) for one in config["Env"])
    container = run([*BUILDAH, "from", "--pull-never", IMAGE]).strip()
    try:
        root = Path(run([*BUILDAH, "mount", container]).strip())
        for name in ("dev", "proc"):
            run(["mount", "--rbind", f"/{name}", str(root / name)])
        well(Started([*words, "--out=/var/lib/colonnade/run"], environment, files), root)
    finally:
        for name in ("dev", "proc"):
            subprocess.run(["umount", "--lazy", "--recursive", str(root / name)], check=False)
        run([*BUILDAH, "rm", container])


def debian() -> str:
    """Debian's own Python 3.11 as a base, with what pip and TLS are told on this machine. Its name."""
    name = "localhost/colonnade-debian"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        run(
            ["debootstrap", "--variant=minbase", "--include=python3,python3-pip,ca-certificates", "bookworm", str(root)]
        )
        (root / "usr/bin/python").symlink_to("python3")
        next((root / "usr/lib").glob("python3*/EXTERNALLY-MANAGED")).unlink()  # in an image nothing else manages them
        told = {"PIP_CERT": "cert", "PIP_FIND_LINKS": "find-links"}
        lines = [f"{word} = {os.environ[name]}" for name, word in told.items() if name in os.environ]
        (root / "etc/pip.conf").write_text("\n".join(["[global]", "retries = 1", *lines, ""]))
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt")
        container = run([*BUILDAH, "from", "scratch"]).strip()
        run([*BUILDAH, "add", "-q", container, str(root), "/"])
        run([*BUILDAH, "commit", "-q", container, name])
        run([*BUILDAH, "rm", container])
    return name


def dockerfile() -> str:
    return re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))


def entry_point() -> list[str]:
    (words,) = re.findall(r"^ENTRYPOINT (.*)$", dockerfile(), re.MULTILINE)
    return [str(word) for word in json.loads(words)]


def image_environment() -> dict[str, str]:
    (words,) = re.findall(r"^ENV (.*)$", dockerfile(), re.MULTILINE)
    return dict(word.split("=", 1) for word in words.split())


# --- the program --------------------------------------------------------------------------------------------------

STARTED: dict[str, Callable[[], None]] = {"unit": unit, "chart": chart, "image": image}


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running


def main(arguments: list[str]) -> int:
    asked = [word for word in arguments if not word.startswith("--")] or list(STARTED)
    if os.geteuid() != 0 or not sys.platform.startswith("linux") or not set(asked) <= set(STARTED):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if "--inside" in arguments:
            loopback_up()
            STARTED[asked[0]]()
            return 0
        for name in asked:
            print(f"{name}:", flush=True)
            if name == "image":
                build(debian() if "--debian" in arguments else None)
            # Mounts that nobody else sees, and a network of its own: ports are free, and nobody comes from outside.
            inside = ["unshare", "--mount", "--net", sys.executable, __file__, name, "--inside"]
            if subprocess.run(inside, check=False).returncode:
                return 1
    except NotSoError as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
