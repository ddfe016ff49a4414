"""Organisations serve over mutual TLS: degraded answers while a party is away, whole ones when it is back."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from parties import Organisation, Town, free_port, wait_until
from test_predicting_organisations import trained


def serve(one: Organisation, *more: str) -> None:
    files = [str(one.folder / "federation.toml"), "--party", str(one.folder / "party.toml")]
    one.begin(["serve", *files, "--model", str(one.out), "--directory", str(one.folder / "served"), *more])


def asked(port: int, path: str = "/predict", **body: Any) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"content-type": "application/json"})
    request.data = json.dumps(body).encode() if body else None
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
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
