"""`colonnade certs`: from an authority to a renewed and a revoked certificate, and what each verb refuses."""

import json
import stat
from pathlib import Path

from command_line import Answer, colonnade, refused

from colonnade.wire.certificates import read_credentials


def made(*arguments: str) -> Answer:
    answer = colonnade("certs", *arguments)
    assert (answer.code, answer.err) == (0, ""), answer
    return answer


def test_from_an_authority_to_a_revoked_certificate() -> None:
    told = made("init", "authority", "--name", "small federation").out
    assert told.splitlines() == [
        "Authority 'small federation': authority/authority.pem",
        "Keep authority/authority.key to yourself: whoever has it can pass for any party.",
    ]
    assert stat.S_IMODE(Path("authority/authority.key").stat().st_mode) == 0o600

    told = made("issue", "shop", "--authority", "authority").out
    assert [line.split(":")[0] for line in told.splitlines()] == [
        "shop/shop.key",
        "shop/shop.pem",
        "shop/authority.pem",
    ]
    files = Path("shop/shop.key"), Path("shop/shop.pem"), Path("shop/authority.pem")
    assert read_credentials(*files, Path("authority/revoked.txt"), "shop").name == "shop"
    first = json.loads(made("show", "shop/shop.pem", "--json").out)[0]

    renewed = made("issue", "shop", "--authority", "authority", "--days", "30", "--json").object
    assert renewed["serial"] != first["serial"] and renewed["key"] == "shop/shop.key"

    told = made("revoke", first["serial"], "--authority", "authority").out
    assert told.splitlines()[0] == f"Revoked: {first['serial']}" and "authority/revoked.txt" in told
    assert made("revoke", "shop", "--authority", "authority", "--json").object == {
        "revoked": [renewed["serial"]],
        "list": "authority/revoked.txt",
    }
    assert "Nothing to do" in made("revoke", "shop", "--authority", "authority").out


def test_show() -> None:
    made("init", "a", "--name", "small federation")
    hosts = ("--host", "label.example.org", "--host", "10.0.0.5")
    made("issue", "label", "--authority", "a", "--out", "files", "--days", "30", *hosts)
    shown = dict(line.split("  ", 1) for line in made("show", "files/label.pem").out.splitlines())
    assert shown["name"].strip() == "label" and shown["issued by"] == "small federation"
    assert shown["hosts"].strip() == "label.example.org, 10.0.0.5"
    assert shown["days left"] == "29" and shown["valid"].endswith(" UTC")
    told = json.loads(made("show", "files/label.pem", "--json").out)[0]
    assert (told["name"], told["is_authority"], told["days_left"]) == ("label", False, 29)
    assert told["serial"] == shown["serial"].strip()
    assert "small federation (an authority)" in made("show", "a/authority.pem").out


def test_no_verb_prints_a_key() -> None:
    printed = made("init", "a").out + made("issue", "shop", "--authority", "a").out
    printed += made("issue", "shop", "--authority", "a", "--json").out + made("show", "shop/shop.pem").out
    printed += refused("certs", "show", "shop/shop.key")
    for key in (Path("a/authority.key"), Path("shop/shop.key")):
        assert not [line for line in key.read_text().splitlines() if line in printed]


def test_what_is_refused() -> None:
    assert "There is no authority in nowhere" in refused("certs", "issue", "shop", "--authority", "nowhere")
    made("init", "a")
    assert "never overwritten" in refused("certs", "init", "a")
    assert "'simulate' is taken" in refused("certs", "issue", "simulate", "--authority", "a")
    assert "1 to 36500" in refused("certs", "issue", "shop", "--authority", "a", "--days", "0")
    assert "There is no file absent.pem" in refused("certs", "show", "absent.pem")
    Path("notes.pem").write_text("notes")
    assert "notes.pem is not a PEM certificate" in refused("certs", "show", "notes.pem")
    made("issue", "shop", "--authority", "a")
    assert "Did you mean 'shop'?" in refused("certs", "revoke", "shpo", "--authority", "a")
    assert "notes.pem" in refused("certs", "issue", "bank", "--authority", "a", "--out", "notes.pem")
    Path("a/authority.key").chmod(0o644)
    assert "chmod 600 a/authority.key" in refused("certs", "issue", "shop", "--authority", "a")
