"""A party is who its certificate says, now: it may be renewed while it runs, and revoked while it is connected."""

import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from parties import IRIS, LABEL, Organisation, Town, assert_same_bits, shared, wait_until

from colonnade.wire import authority as authorities
from colonnade.wire.authority import issue, make_authority, revoke

OFTEN = {"colonnade.runtimes.network.limits.EXPIRY_CHECK_SECONDS": 0.1}


@pytest.fixture
def held(town: Callable[..., Town]) -> Town:
    """A training under way, whose second party is held still so that it lasts as long as the test."""
    one = town(shared("split", IRIS, 4, 16))
    for party in one.parties.values():
        party.options["patches"] = OFTEN
    # Seconds for what takes a moment: on a busy machine it would be over before this process has looked.
    one["party2"].options["milliseconds_an_event"] = 100.0
    one.start()
    wait_until(lambda: one.exchanges() > 8, "the training to be under way")
    one["party2"].signal(signal.SIGSTOP)
    return one


def ends_as_undisturbed(town: Town) -> None:
    town["party2"].signal(signal.SIGCONT)
    town.end()
    assert_same_bits(town.models(), town.simulated().models)


def renew(town: Town, one: Organisation) -> None:
    before = one.credentials()
    issue(town.authority, one.name, one.folder, [], 1)
    assert one.credentials().certificate_pem != before.certificate_pem


def tell_of_revocation(town: Town, *of: str, to: tuple[str, ...]) -> None:
    """Revoke certificates, and hand the new list to these parties."""
    for name in of:
        assert revoke(town.authority, name)
    for name in to:
        (town[name].folder / "revoked.txt").write_bytes((town.authority / "revoked.txt").read_bytes())


def test_a_feature_party_renews_its_certificate(held: Town) -> None:
    """The old one is revoked at the label party: the party comes again with the new one, by itself."""
    one = held["party1"]
    old = [one.folder / f"party1.{suffix}" for suffix in ("key", "pem")]
    kept = [path.read_bytes() for path in old]
    tell_of_revocation(held, "party1", to=(LABEL,))
    assert kept == [path.read_bytes() for path in old]
    renew(held, one)
    held.label.hear("party1 is shut out: ")
    held.label.hear("party1 is connected", 2)
    ends_as_undisturbed(held)
    assert one.started == 1


def test_the_label_party_renews_its_certificate(held: Town) -> None:
    """Its streams stay; whoever comes anew, and whoever was told of a revocation, meets the new one."""
    renew_after_revocation(held, held.label, to=("party1", "party2"))
    held["party1"].hear("the stream to label is closed: The certificate that the peer showed")
    held["party1"].hear("connected to label", 2)
    held.label.hear("a renewed certificate is in use")
    ends_as_undisturbed(held)
    assert held.label.started == 1


def renew_after_revocation(town: Town, one: Organisation, to: tuple[str, ...]) -> None:
    assert revoke(town.authority, one.name)
    renew(town, one)
    for name in to:
        (town[name].folder / "revoked.txt").write_bytes((town.authority / "revoked.txt").read_bytes())


def test_a_revoked_party_is_shut_out_while_it_is_connected(held: Town) -> None:
    tell_of_revocation(held, "party1", to=(LABEL,))
    held.label.hear("party1 is shut out: The certificate that the peer showed of 'party1', serial ")
    one = held["party1"]
    assert one.end(1) == 1
    assert "label refused party1: " in one.said()
    assert "Traceback" not in one.said()
    renew(held, one)  # what is revoked is the certificate; with a new one the party goes on where it was
    one.start()
    ends_as_undisturbed(held)


def test_a_label_party_whose_certificate_is_revoked_is_not_believed(held: Town) -> None:
    one = held["party1"]
    tell_of_revocation(held, LABEL, to=("party1",))
    one.hear("the stream to label is closed: The certificate that the peer showed of 'label', serial ", 2)
    assert one.alive()
    renew(held, held.label)
    ends_as_undisturbed(held)
    assert one.started == 1


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o666])
def test_a_key_that_others_may_read_is_refused(town: Callable[..., Town], mode: int) -> None:
    one = town(shared("split", IRIS, 2, 16))["party1"]
    (one.folder / "party1.key").chmod(mode)
    one.start()
    assert one.end(2) == 2
    assert "party1.key" in one.said()
    assert not one.out.exists()


def test_anothers_certificate_is_refused(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 2, 16))
    party = one["party1"]
    keys = {**party.own["keys"], "certificate": "../party2/party2.pem", "key": "../party2/party2.key"}
    party.own["keys"] = keys
    party.write_files()
    party.start()
    assert party.end(2) == 2
    assert "is that of 'party2', but this party is 'party1'" in party.said()


def of_another_authority(town: Town, one: Organisation) -> None:
    """A certificate that its party believes in, since it trusts two authorities, and the label party does not."""
    theirs = town.folder / "their authority"
    make_authority(theirs, "another", 2)
    issue(theirs, one.name, town.folder / "elsewhere", [], 1)
    for suffix in ("key", "pem"):
        (one.folder / f"{one.name}.{suffix}").write_bytes((town.folder / f"elsewhere/{one.name}.{suffix}").read_bytes())
    with (one.folder / "authority.pem").open("ab") as file:
        file.write((theirs / "authority.pem").read_bytes())


def test_a_certificate_that_tls_refuses_is_told_of_on_both_sides(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 2, 16))
    one.label.options["patches"] = {**OFTEN, "colonnade.runtimes.network.limits.HELLO_SECONDS": 1.0}
    party = one["party1"]
    of_another_authority(one, party)
    one.start()
    party.hear("closes the connection before a word. If it is label, its TLS does not accept the certificate of party1")
    one.label.hear("connections ended without a stream: TLS refused their certificates")
    assert "party1 is connected" not in one.label.said()
    renew(one, party)  # it comes again by itself, with what lies there now
    one.end()
    assert party.started == 1
    assert_same_bits(one.models(), one.simulated().models)


def test_an_expired_certificate_of_its_own_is_said_by_the_party_itself(
    town: Callable[..., Town], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it says a word to anybody."""
    one = town(shared("split", IRIS, 2, 16))
    party = one["party1"]
    with monkeypatch.context() as patch:  # a day that ended half a minute ago
        patch.setattr(authorities, "timedelta", lambda **_: timedelta(seconds=-30))
        issue(one.authority, "party1", party.folder, [], 1)
    party.start()
    assert party.end(2) == 2
    assert "of 'party1' expired on" in party.said()
    assert "issue it anew" in party.said()
    assert not party.out.exists()


def test_two_processes_on_one_run_directory(held: Town) -> None:
    one = held["party1"]
    first = one.process
    one.start()
    assert one.end(1) == 1
    assert f"Another process takes part from {one.out} already." in one.said()
    one.process = first
    ends_as_undisturbed(held)


def test_two_processes_of_one_name(held: Town, tmp_path: Path) -> None:
    """From another directory: the first one stays, also when the label party has been started again meanwhile."""
    one = held["party1"]
    first = one.process
    one.start(out=tmp_path / "elsewhere")
    assert one.end(1) == 1
    assert "Another process takes part as party1 already, from another run directory" in one.said()
    one.process = first
    one.signal(signal.SIGSTOP)
    held.label.kill()
    held.label.start()
    held.label.hear("listening", 2)
    second = one.start(out=tmp_path / "elsewhere")
    second.wait(30)
    assert second.returncode == 1
    one.process = first
    one.signal(signal.SIGCONT)
    ends_as_undisturbed(held)


def test_a_second_label_party_at_the_same_address(held: Town, tmp_path: Path) -> None:
    first = held.label.process
    held.label.start(out=tmp_path / "elsewhere")
    assert held.label.end(1) == 1
    assert "cannot be listened on: is it taken?" in held.label.said()
    held.label.process = first
    ends_as_undisturbed(held)


def test_secrets_of_a_run_are_their_owners(held: Town) -> None:
    for one in held.parties.values():
        assert one.out.stat().st_mode & 0o777 == 0o700
        for secret in ("token", "sealing.key", "entropy"):
            assert (one.out / secret).stat().st_mode & 0o777 == 0o600
    everything: list[Any] = [
        (path, path.read_bytes()) for one in held.parties.values() for path in one.out.rglob("*") if path.is_file()
    ]
    for one in held.parties.values():
        key = (one.folder / f"{one.name}.key").read_bytes().splitlines()[1]
        assert not [path for path, content in everything if key in content]
    ends_as_undisturbed(held)
