"""Organisations serve over mutual TLS: degraded answers while a party is away, whole ones when it is back."""

import json
import shutil
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parties import Organisation, Town, free_port, wait_until
from test_predicting_organisations import trained


def serve(one: Organisation, *more: str) -> None:
    files = [str(one.folder / "federation.toml"), "--party", str(one.folder / "party.toml")]
    one.begin(["serve", *files, "--model", str(one.out), "--directory", str(one.folder / "served"), *more])


def asked(
    port: int, path: str = "/predict", trust: ssl.SSLContext | None = None, **body: Any
) -> tuple[int, dict[str, Any]]:
    address = f"{'http' if trust is None else 'https'}://127.0.0.1:{port}{path}"
    request = urllib.request.Request(address, headers={"content-type": "application/json"})
    request.data = json.dumps(body).encode() if body else None
    try:
        with urllib.request.urlopen(request, timeout=20, context=trust) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def test_a_party_that_is_killed_is_stood_in_for_until_it_is_back(town: Callable[..., Town]) -> None:
    built = trained(town, "vafl")
    port = free_port()
    serve(built.label, "--no-keys", "--http", f"127.0.0.1:{port}", "--party-seconds", "10")
    for one in built.feature_parties:
        serve(one)
    wait_until(lambda: asked(port, "/healthz")[1].get("status") == "well", "everybody to be there")
    status, body = asked(port, id="c020")
    (row,) = body["predictions"]
    assert (status, row["degraded"], sorted(row["parties"])) == (200, False, ["party1", "party2"])
    built["party1"].kill()
    wait_until(lambda: asked(port, "/healthz")[1]["status"] == "degraded", "the loss to be noticed")
    (away,) = asked(port, id="c020")[1]["predictions"]
    assert away["missing"] == {"party1": "is away"} and away["probabilities"] != row["probabilities"]
    serve(built["party1"])
    wait_until(lambda: asked(port, "/healthz")[1]["status"] == "well", "it to come back")
    assert asked(port, id="c020")[1]["predictions"][0]["probabilities"] == row["probabilities"]
    assert asked(port, id="c099")[0] == 404
    assert not [one for one in built.parties.values() if "c020" in one.said()]
    for one in built.parties.values():
        one.signal(15)
        one.end()


def test_a_federation_of_another_purpose_and_wrong_calls_are_refused(town: Callable[..., Town]) -> None:
    built = trained(town, "vafl", 1)
    serve(built.label)
    built.label.end(code=2)
    assert "Say who may ask: --keys FILE" in built.label.said()
    port = free_port()
    serve(built.label, "--no-keys", "--http", f"127.0.0.1:{port}")
    built["party1"].start(out=built["party1"].folder / "again")
    built["party1"].end(code=None)
    assert "serves and the other trains" in built["party1"].said()


def test_https_with_a_partys_certificate_and_a_new_version_on_hangup(town: Callable[..., Town]) -> None:
    built = trained(town, "vafl", 1)
    label, feature, port = built.label, built["party1"], free_port()
    for one in (label, feature):  # nobody looks by itself
        one.options = {"patches": {"colonnade.launch.serving.LOOK_SECONDS": 1000.0}}
    serve(label, "--no-keys", "--tls", "--http", f"127.0.0.1:{port}", "--party-seconds", "10")
    serve(feature)
    trust = ssl.create_default_context(cafile=str(label.folder / "authority.pem"))
    trust.check_hostname = False  # it is known as a party, not as a host
    wait_until(lambda: asked(port, "/healthz", trust)[1].get("status") == "well", "everybody to be there")
    first = asked(port, trust=trust, id="c020")
    assert first[0] == 200
    assert asked(port, "/healthz") == (0, {}), "it speaks no plain HTTP"
    assert asked(port, "/healthz", ssl.create_default_context()) == (0, {}), "others did not sign its certificate"
    for one in (label, feature):
        _rename(one.out / "model" / one.name / "model.json", "f" * 32)
    assert asked(port, trust=trust, id="c020") == first, "nobody has looked"
    label.signal(signal.SIGHUP)
    assert asked(port, trust=trust, id="c020") == first, "not everybody has the new one"
    feature.signal(signal.SIGHUP)
    answers = []

    def is_new() -> bool:
        answers.append(asked(port, trust=trust, id="c020"))
        return bool(answers[-1][1]["version"] == "f" * 16)

    wait_until(is_new, "the new version")
    assert {status for status, _ in answers} == {200}, "no request was dropped for it"
    assert answers[-1][1]["predictions"] == first[1]["predictions"]
    for one in (label, feature):
        one.signal(signal.SIGTERM)
        one.end()


def _rename(path: Path, training: str) -> None:
    """The same model, of another training."""
    described = json.loads(path.read_text(encoding="utf-8"))
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**described, "training": training}), encoding="utf-8")
    shutil.copymode(path, new)
    new.replace(path)
