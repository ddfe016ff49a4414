"""A model's card: written with a run, signed by its parties; no byte of it changes unseen, and no stranger signs it."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import colonnade as command
from command_line import refused

import colonnade
from colonnade.launch.card import KeyFiles, verify_card, write_card
from colonnade.wire import certificates
from colonnade.wire.authority import issue, make_authority, revoke


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("carded")
    noise = colonnade.PerturbationSettings(noise=2.0, clip=1.0)
    training = colonnade.Training(epochs=0.5, batch_size=16)
    colonnade.train(
        colonnade.dataset("iris", parties=2), "vafl", training=training, privacy=noise, seed=41, out=folder / "run"
    )
    return folder / "run"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that has named the label party and a stranger."""
    folder = tmp_path_factory.mktemp("authority")
    make_authority(folder / "authority", "tests", 100)
    for name in ("label", "party1", "stranger"):
        issue(folder / "authority", name, folder / name, [], 10)
    return folder / "authority"


def keys(authority: Path, name: str, other: str = "") -> KeyFiles:
    folder = authority.parent / name
    return KeyFiles(authority.parent / (other or name) / f"{other or name}.key", folder / f"{name}.pem")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_every_finished_run_has_a_card_that_nobody_signed(run: Path, authority: Path) -> None:
    whole = json.loads((run / "card.json").read_text())
    card = whole["card"]
    assert whole["signatures"] == []
    assert card["model"]["algorithm"] == "vafl"
    assert card["model"]["feature_parties"] == ["party1", "party2"]
    assert card["data"]["rows"] == 112 and card["data"]["row_shapes"] == {"party1": [2], "party2": [2]}
    assert card["metrics"]["test"] == json.loads((run / "summary.json").read_text())["test"]
    assert sorted(card["weights"]) == ["label", "party1", "party2"]
    assert {"direction", "claimed", "sound", "observed", "conditions"} <= set(card["privacy"]["figures"][0])
    page = (run / "card.md").read_text()
    assert "Nobody has signed this card." in page and "columns of party1" in page
    assert refused("card", "--verify", run / "card.json", "--authority", authority, code=1).endswith(
        "is not signed: it says what anybody may have written."
    )


def test_it_shows_nothing_of_the_data_and_no_seed_that_noise_follows_from(run: Path) -> None:
    text = (run / "card.json").read_text() + (run / "card.md").read_text()
    data = colonnade.dataset("iris", parties=2)
    names = [name for held in data.columns.values() for name in held.names]
    assert names and not [name for name in names if name in text]
    assert "seed" not in json.loads((run / "card.json").read_text())["card"]["settings"]
    assert str(run) not in text


def test_parties_sign_it_and_anybody_verifies(run: Path, authority: Path) -> None:
    for name in ("label", "party1"):
        one = keys(authority, name)
        answer = command("card", run, "--key", one.key, "--certificate", one.certificate)
        assert answer.code == 0, answer.err
    assert "Signed by label, party1" in answer.out
    checked = command("card", run, "--verify", run / "card.json", "--authority", authority)
    assert checked.code == 0, checked.err
    assert checked.out.splitlines()[0].startswith("Signed by label on 2")
    assert "The weights in" in checked.out
    assert "- party1, 2" in (run / "card.md").read_text()
    as_json = command("card", "--verify", run / "card.json", "--authority", authority / "authority.pem", "--json")
    assert as_json.object["signed_by"] == ["label", "party1"]


def test_no_byte_changes_unseen(run: Path, authority: Path) -> None:
    path = write_card(run, None, keys(authority, "label"))
    content = path.read_bytes()
    step = max(1, len(content) // 150)
    for place in [*range(0, len(content), step), len(content) - 1]:
        for changed in (content[place] ^ 1, content[place] ^ 32):
            path.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
            with pytest.raises(colonnade.ColonnadeError):
                verify_card(path, authority)
    for changed_whole in (content + b"\n", content[:-1], content.replace(b"\n", b"\r\n"), b"", b"[]", b'{"format": 1}'):
        path.write_bytes(changed_whole)
        with pytest.raises(colonnade.ColonnadeError, match=r"some byte of it has been changed"):
            verify_card(path, authority)
    path.write_bytes(content)
    verify_card(path, authority)


def test_a_certificate_or_signature_in_another_spelling_is_told(run: Path, authority: Path) -> None:
    path = write_card(run, None, keys(authority, "label"))
    content = path.read_bytes()
    (signature,) = json.loads(content)["signatures"]
    pem = signature["certificate"]
    body = pem.split("-----")[2].strip().replace("\n", "")
    spellings = [signature["signature"].upper(), pem.replace("-----BEGIN", " -----BEGIN")]
    if body.endswith("="):  # bits of the last letter that no byte uses
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        last = body.rstrip("=")[-1]
        spellings.append(pem.replace(f"{last}=", f"{letters[letters.index(last) ^ 1]}=", 1))
    for one in spellings:
        key = "signature" if set(one) <= set("0123456789ABCDEF") else "certificate"
        rewritten(path, lambda whole, key=key, one=one: whole["signatures"][0].update({key: one}))  # type: ignore[misc]
        with pytest.raises(colonnade.ColonnadeError):
            verify_card(path, authority)
        path.write_bytes(content)


def rewritten(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    """A card changed by somebody who knows how cards are written."""
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def test_a_figure_that_was_touched_up_is_told(run: Path, authority: Path) -> None:
    path = write_card(run, None, keys(authority, "label"))
    rewritten(path, lambda whole: whole["card"]["metrics"]["test"].update(accuracy=1.0))  # type: ignore[index]
    said = refused("card", "--verify", path, "--authority", authority, code=1)
    assert "The signature of 'label' does not fit: what was signed has been changed since" in said
    path = write_card(run, None, keys(authority, "label"))
    rewritten(path, lambda whole: whole["signatures"][0].update(signed_at="2020-01-01 00:00 UTC"))  # type: ignore[index]
    assert "does not fit" in refused("card", "--verify", path, "--authority", authority, code=1)
    path = write_card(run, None, keys(authority, "label"))
    rewritten(path, lambda whole: whole["signatures"][0].update(name="party1"))  # type: ignore[index]
    refused("card", "--verify", path, "--authority", authority, code=1)


def test_wrong_keys_and_strangers(run: Path, authority: Path, tmp_path: Path) -> None:
    mixed = keys(authority, "label", other="party1")
    said = refused("card", run, "--key", mixed.key, "--certificate", mixed.certificate)
    assert "does not belong to the certificate" in said
    stranger = keys(authority, "stranger")
    said = refused("card", run, "--key", stranger.key, "--certificate", stranger.certificate)
    assert said.startswith("stranger is no party of this model")
    path = write_card(run, None, keys(authority, "label"))
    make_authority(tmp_path / "other", "others", 10)
    said = refused("card", "--verify", path, "--authority", tmp_path / "other", code=1)
    assert "was not issued by the authority that this party trusts" in said


def test_expired_and_revoked(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_authority(tmp_path / "authority", "tests", 1000)
    issue(tmp_path / "authority", "label", tmp_path / "label", [], 10)
    own = KeyFiles(tmp_path / "label" / "label.key", tmp_path / "label" / "label.pem")
    path = write_card(run, None, own)
    with monkeypatch.context() as later:
        later.setattr(certificates, "utc_now", lambda: datetime.now(UTC) + timedelta(days=11))
        assert "expired on" in refused("card", "--verify", path, "--authority", tmp_path / "authority", code=1)
        assert "expired on" in refused("card", run, "--key", own.key, "--certificate", own.certificate)
    revoke(tmp_path / "authority", "label")
    said = refused("card", "--verify", path, "--authority", tmp_path / "authority", code=1)
    assert "was revoked" in said


def test_signatures_stay_while_the_card_says_the_same(run: Path, authority: Path) -> None:
    write_card(run, None, keys(authority, "label"))
    assert len(json.loads(write_card(run).read_text())["signatures"]) == 1
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "epochs": 99}))
    assert json.loads(write_card(run).read_text())["signatures"] == []


def test_the_card_of_another_model(run: Path, authority: Path, tmp_path: Path) -> None:
    path = write_card(run, None, keys(authority, "label"))
    other = colonnade.train(
        colonnade.dataset("iris", parties=2), "vafl", training=colonnade.Training(epochs=0.5), seed=2
    ).save(tmp_path / "other")
    said = refused("card", other, "--verify", path, "--authority", authority, code=1)
    assert "it is the card of another model" in said
    alone = write_card(other / "party1", tmp_path)
    card = json.loads(alone.read_text())["card"]
    assert (card["model"]["of_party"], card["metrics"], card["privacy"]) == ("party1", None, None)
    (other / "party1" / "weights.safetensors").write_bytes(b"x")
    assert "is damaged" in refused("card", other)


def test_wrong_calls_are_named(run: Path, authority: Path, tmp_path: Path) -> None:
    assert "Name a run's directory" in refused("card")
    assert "--verify needs --authority" in refused("card", "--verify", run / "card.json")
    assert "give both --key and --certificate" in refused("card", run, "--key", "x")
    assert "only reads" in refused("card", "--verify", "x", "--authority", authority, "--out", tmp_path)
    assert "There is no card" in refused("card", "--verify", tmp_path / "no.json", "--authority", authority)
    assert "neither a run's directory nor a model" in refused("card", tmp_path)
    assert "There is no directory" in refused("card", tmp_path / "nowhere")
