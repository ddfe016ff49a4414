"""Whatever comes to a party's port or over its streams, from whomever: a sentence or the stream's end, and no harm.

A federation is under way while it is attacked; one of its parties is held still meanwhile, so that the training lasts
as long as the attacks do. Then it goes on and must end with the bits of an undisturbed one, in bounded memory.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parties import IRIS, LABEL, Organisation, Town, assert_same_bits, shared, wait_until
from strangers import (
    Caller,
    Conversation,
    FakeLabelParty,
    calling,
    frame,
    guest_of,
    hello_of,
    plain_socket,
    resume,
    roster,
    welcome,
)

from colonnade.messages import (
    EmbeddingUpload,
    EvaluationEmbedding,
    EvaluationRequest,
    GradientAndBatch,
    Introduction,
    ProductRequest,
    Stop,
)
from colonnade.runtimes.journal import events_after
from colonnade.runtimes.network.relay import wrap
from colonnade.runtimes.processes.fork_server import ForkServer
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.settings import build
from colonnade.wire import authority as authorities
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.handshake import ENVELOPE, PACKETS, Presence, Refused, heard, say
from colonnade.wire.packets import ACKNOWLEDGE, FRAME, START, header
from colonnade.wire.sealing import Envelope

PLAN = shared({"name": "split", "party_timeout_seconds": 0.2}, {"set": "wine", "parties": 13}, 20, 16)
HONEST = ("party1", "party2")
TRAITORS = [f"party{number}" for number in range(3, 14)]  # whoever is expelled is not let in again: one for each lie
MOST_MEGABYTES_MORE = 150.0
SHORT_HELLO = {
    "colonnade.runtimes.network.limits.HELLO_SECONDS": 1.0,
    # One caller after another: how many come, and how often, is tested elsewhere.
    "colonnade.runtimes.network.limits.KNOCKS_PER_SECOND": 100_000,
    "colonnade.runtimes.network.limits.GREETINGS_PER_SECOND": 1000.0,
}


def besieged(fork_server: ForkServer, folder: Path) -> Iterator[Town]:
    """Two honest parties and a label party that began without the others; the second is held still meanwhile."""
    town = Town(fork_server, folder, PLAN, parties=13, linger_seconds=1.0)  # the others will never have been there
    try:
        town.label.options["patches"] = SHORT_HELLO
        town.label.start(*(word for name in TRAITORS for word in ("--without", name)))
        town["party1"].start()
        town["party2"].options["milliseconds_an_event"] = 10  # or the training ends before it can be held still
        town["party2"].start()
        wait_until(lambda: town.exchanges() > 8, "the training to be under way")
        town["party2"].signal(signal.SIGSTOP)
        before = town.label.memory_megabytes()
        yield town
        assert town.label.memory_megabytes() < before + MOST_MEGABYTES_MORE
        town["party2"].signal(signal.SIGCONT)
        for name in (LABEL, *HONEST):
            assert town[name].started == 1
            town[name].end()
        assert not {*town.label.summary()["expelled"]} & {*HONEST}
        never = {"parties": {name: {"crashes": [[0.0, float("inf")]]} for name in TRAITORS}}
        undisturbed = town.simulated(simulate=build(Simulate, never, "simulate"))
        models = town.models_of(LABEL, *HONEST)
        assert_same_bits(models, {name: undisturbed.models[name] for name in models})
    finally:
        town.close()


@pytest.fixture(scope="module")
def under_attack(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    yield from besieged(fork_server, tmp_path_factory.mktemp("besieged"))


# --- who is not let in -------------------------------------------------------------------------------------------


def test_random_bytes_at_the_port(under_attack: Town) -> None:
    chance = random.Random(0)
    for _ in range(20):
        with plain_socket(under_attack.port) as link:
            link.sendall(chance.randbytes(chance.randrange(1, 4000)))
    assert under_attack.label.alive()


def test_no_certificate(under_attack: Town) -> None:
    authority = under_attack.label.credentials().authority_pem
    hello = hello_of(under_attack["party3"])
    caller = Caller(under_attack.port, None, None, authority)
    caller.say(say(hello))
    assert "CERTIFICATE_REQUIRED" in caller.failure()
    caller.close()


def stranger_with(town: Town, folder: Path, name: str, authority: Path | None = None) -> tuple[bytes, bytes]:
    issued = issue(authority or town.authority, name, folder, [], 1)
    return issued.key.read_bytes(), issued.certificate.read_bytes()


def refusal_of(town: Town, key: bytes, certificate: bytes) -> str:
    hello = hello_of(town["party3"])
    caller = Caller(town.port, key, certificate, town.label.credentials().authority_pem)
    caller.say(say(hello))
    try:
        return caller.refusal() or caller.failure()
    finally:
        caller.close()


def test_a_foreign_authority(under_attack: Town, tmp_path: Path) -> None:
    make_authority(tmp_path / "authority", "somebody else", 2)
    own = stranger_with(under_attack, tmp_path / "party3", "party3", tmp_path / "authority")
    assert "UNKNOWN_CA" in refusal_of(under_attack, *own)


def test_an_expired_certificate(under_attack: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = expired_certificate(under_attack, tmp_path, monkeypatch)
    assert "CERTIFICATE_EXPIRED" in refusal_of(under_attack, *own)


def expired_certificate(town: Town, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """A certificate of the true authority whose time ended a moment ago."""
    days = timedelta(days=1)
    with monkeypatch.context() as patch:
        patch.setattr(authorities, "timedelta", lambda **span: timedelta(seconds=-30) if span == {"days": 1} else days)
        return stranger_with(town, folder, "party3")


def test_a_revoked_certificate(under_attack: Town, tmp_path: Path) -> None:
    issued = issue(under_attack.authority, "party3", tmp_path, [], 1)
    list_of_label = under_attack.label.folder / "revoked.txt"
    before = list_of_label.read_bytes()
    list_of_label.write_bytes(before + f"{issued.serial:x}\n".encode())
    try:
        said = refusal_of(under_attack, issued.key.read_bytes(), issued.certificate.read_bytes())
        assert "revoked" in said
    finally:
        list_of_label.write_bytes(before)


def test_a_good_certificate_of_nobody_in_the_federation(under_attack: Town, tmp_path: Path) -> None:
    own = stranger_with(under_attack, tmp_path, "party99")
    assert "party99 has a good certificate, but is not a feature party of this federation" in refusal_of(
        under_attack, *own
    )


def test_the_label_partys_own_name(under_attack: Town) -> None:
    own = under_attack.label.credentials()
    assert "label has a good certificate, but is not a feature party" in refusal_of(
        under_attack, own.key_pem, own.certificate_pem
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": 99}, "party3 speaks version 99 of the protocol, label version 2"),
        ({"settings": "{"}, "settings that are not JSON"),
        ({"settings": "[" * 100_000}, "settings that are not JSON"),
        ({"row_digest": "0"}, "party3 has other rows than label, or the same in another split"),
        ({"shape": ()}, "says something impossible of itself"),
        ({"shape": (0,)}, "says something impossible of itself"),
        ({"shape": (1 << 40,)}, "says something impossible of itself"),
        ({"shape": (2,) * 100_000}, "says something impossible of itself"),
        ({"width": 1 << 50}, "says something impossible of itself"),
        ({"width": -1}, "says something impossible of itself"),
        ({"width": 17}, "sends embeddings of 17 numbers, but the training began with 16"),
        ({"token": "x" * 100_000}, "says something impossible of itself"),
        ({"sealing_key": b"1"}, "was not signed by 'party3' for this federation"),
        ({"signature": b""}, "was not signed by 'party3' for this federation"),
    ],
)
def test_a_hello_that_cannot_be(under_attack: Town, changes: dict[str, Any], said: str) -> None:
    hello = hello_of(under_attack["party3"], **changes)
    with calling(under_attack["party3"]) as caller:
        caller.say(say(hello))
        assert said in caller.refusal()


def test_another_federation_file_is_told_by_its_first_difference(under_attack: Town) -> None:
    party = under_attack["party3"]
    hello = hello_of(party)
    other = hello.settings.replace('"epochs": 20', '"epochs": 21')
    assert other != hello.settings
    hello = hello_of(party, settings=other)
    with calling(party) as caller:
        caller.say(say(hello))
        assert "differ in training.epochs: use the same file" in caller.refusal()
    hello = hello_of(party, settings='{"a\\u001b\\n": 1}')
    with calling(party) as caller:
        caller.say(say(hello))
        said = caller.refusal()
    assert "differ in a��" in said  # nothing that a terminal would obey


def test_a_second_process_of_the_same_name(under_attack: Town, tmp_path: Path) -> None:
    hello = hello_of(under_attack["party1"], tmp_path)
    with calling(under_attack["party1"]) as caller:
        caller.say(say(hello))
        assert "Another process takes part as party1 already, from another run directory" in caller.refusal()


@pytest.mark.parametrize(
    "word",
    [b"", b"W", b"hello", b"W\x81\xa4type\xa5hello", b"P" + bytes(24), b"E\x05party", b"W" + b"\x91" * 5000],
)
def test_something_other_than_a_hello(under_attack: Town, word: bytes) -> None:
    with calling(under_attack["party3"]) as caller:
        caller.say(word)  # nothing at all is the last word
        assert ("word of the handshake" if word else "ended before its Hello") in caller.refusal()


def test_another_word_than_hello(under_attack: Town) -> None:
    with calling(under_attack["party3"]) as caller:
        caller.say(say(Presence("party1", 1)))
        assert caller.refusal() == "The first word on a stream must be Hello."


def test_a_hello_that_never_ends(under_attack: Town) -> None:
    """A stream that says nothing, and a connection that sends a byte now and then: neither holds anything up."""
    chance = random.Random(1)
    with plain_socket(under_attack.port) as link, calling(under_attack["party3"]) as caller:
        for _ in range(4):
            link.sendall(chance.randbytes(1))
            time.sleep(0.1)
        assert caller.refusal() == "No Hello came within 1 seconds."


def test_hundreds_of_connections(under_attack: Town) -> None:
    """As fast as one can: more than 200 a second on an idle machine."""
    links = []
    for place in range(600):
        link = plain_socket(under_attack.port)
        own = link.__enter__()
        own.sendall(b"\x16\x03\x01" if place % 2 else os.urandom(64))
        links.append(link)
        if len(links) > 100:
            links.pop(0).__exit__(None, None, None)
    for link in links:
        link.__exit__(None, None, None)
    hello = hello_of(under_attack["party3"], protocol=3)
    with calling(under_attack["party3"]) as caller:
        caller.say(say(hello))
        assert "version 3 of" in caller.refusal()


# --- who is let in and then behaves badly -------------------------------------------------------------------------


@pytest.fixture
def inside(under_attack: Town) -> Iterator[Caller]:
    """A stream of the third party, which was let in."""
    hello = hello_of(under_attack["party3"])
    with calling(under_attack["party3"]) as caller:
        caller.enter(hello)
        yield caller


def upload(rows: Any = None, width: int = 16, exchange: int = 1, value: float = 0.0) -> EmbeddingUpload:
    rows = np.arange(16, dtype=np.uint32) if rows is None else np.array(rows, np.uint32)
    return EmbeddingUpload(exchange, rows, np.full((rows.size, width), value, np.float32))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


HOSTILE = {
    "random bytes": (random.Random(2).randbytes(500), "unknown kind"),
    "an unknown kind": (header(9, 0, 0), "unknown kind 9"),
    "a frame before the resume": (frame(1, upload()), "A frame came before the connection was resumed"),
    "twice resumed": (resume() + resume(), "The connection was resumed twice"),
    "four gigabytes": (resume() + header(FRAME, 1, 0, 2**32 - 1), "A packet claims 4294967295 bytes"),
    "a body where none may be": (header(ACKNOWLEDGE, 0, 0, 5) + b"12345", "claims a body of 5 bytes"),
    "more acknowledged than sent": (resume() + header(ACKNOWLEDGE, 0, 10**9), "only"),
    "more held than sent": (resume(10**9), "only"),
    "the word to start": (resume() + header(START, 0, 0), "which is the label party's"),
    "a gap": (resume() + frame(7, upload()), "frames between them are missing"),
}
NO_MESSAGES = {
    "no frame": (resume() + header(FRAME, 1, 0, 40) + bytes(40), "not a Colonnade frame"),
    "not a number": (resume() + frame(1, upload(value=np.nan)), "NaN or infinity"),
    "an unknown message": (
        resume() + frame(1, upload()).replace(b"EmbeddingUpload", b"EmbeddingUploxd"),
        "Unknown kind",
    ),
    "an altered header": (resume() + flipped(frame(1, upload()), 24 + 12), "frame"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_packets_that_no_honest_party_sends(under_attack: Town, inside: Caller, attack: str) -> None:
    data, said = HOSTILE[attack]
    inside.packets(data)
    assert said in inside.refusal()
    assert under_attack.label.alive()


def expelled_for(town: Town, name: str, data: bytes, said: str) -> None:
    """Once is enough: the reason is said, and whoever comes again is not let in."""
    hello = hello_of(town[name])
    with calling(town[name]) as caller:
        caller.enter(hello)
        caller.packets(data)
        assert said in caller.refusal()
    with calling(town[name]) as caller:
        caller.say(say(hello))
        assert "was expelled from this run" in caller.refusal()
    assert town.label.alive()


@pytest.mark.parametrize("place", range(len(NO_MESSAGES)), ids=list(NO_MESSAGES))
def test_frames_that_no_honest_party_sends(under_attack: Town, place: int) -> None:
    data, said = [*NO_MESSAGES.values()][place]
    expelled_for(under_attack, TRAITORS[1 + place], data, said)


def test_a_packet_that_is_cut_short_is_waited_for_in_vain(under_attack: Town, inside: Caller) -> None:
    inside.packets(resume() + frame(1, upload())[:-10])
    inside.close()
    under_attack.label.hear("party3 is no longer connected")
    assert under_attack.label.alive()


@pytest.mark.parametrize("word", [b"X", say(Refused("no")), bytes([ENVELOPE]) + b"\x06party1"])
def test_neither_packets_nor_an_envelope(inside: Caller, word: bytes) -> None:
    inside.say(word)
    assert inside.refusal() == "Something came that is neither packets nor an envelope."


def test_messages_that_fit_no_federation_change_nothing(under_attack: Town) -> None:
    """Valid messages for rows and shapes that do not exist: each is refused, in the sentence that says why."""
    wrong = [
        (upload(rows=[10**6]), "sent row 1000000; there are 134"),
        (upload(width=3), "sent embeddings of width 3; 16 was agreed on"),
        (EvaluationEmbedding(1, 10**9, np.zeros((1, 16), np.float32)), "rows or a width that were not asked for"),
        (Stop("because"), "sent Stop, which a label party does not take here"),
        (EvaluationRequest(1, 0, 5, 0), "sent EvaluationRequest, which a label party does not take here"),
    ]
    for name, (message, said) in zip(TRAITORS[-len(wrong) :], wrong, strict=True):
        expelled_for(under_attack, name, resume() + frame(1, message), said)


# --- a label party that is none, or means harm --------------------------------------------------------------------


@pytest.fixture
def alone(town: Callable[..., Town]) -> Town:
    """A federation of which only a feature party runs so far; what it connects to is a test's."""
    one = town(shared("split", IRIS, 2, 16))
    one["party1"].options["patches"] = {"colonnade.runtimes.network.limits.LONGEST_RETRY_SECONDS": 0.3}
    return one


def goes_on_to_the_end(town: Town) -> None:
    """The true label party comes to the address, and the training is what it would have been."""
    assert town["party1"].alive(), town["party1"].last_words()
    town.label.start()
    town["party2"].start()
    town.end()
    assert town["party1"].started == 1
    assert_same_bits(town.models(), town.simulated().models)


def honest(town: Town, conversation: Conversation) -> None:
    """Be the label party, as far as somebody with its files can."""
    conversation.say(welcome(town.label, town["party1"], conversation.hello))


def met_by(town: Town, script: Callable[[Conversation], None], said: str, owner: Organisation | None = None) -> None:
    fake = FakeLabelParty(owner or town.label, town.port, script)
    try:
        if not town["party1"].started:
            town["party1"].start()
        town["party1"].hear(said)
    finally:
        fake.close()


BAD_GREETINGS: dict[str, tuple[Callable[[Town, Conversation], None], str]] = {
    "noise": (lambda town, one: one.say(b"noise"), "Something else came where a word of the handshake was expected"),
    "packets": (lambda town, one: one.say(bytes([PACKETS]) + bytes(24)), "Something else came"),
    "everybody first": (lambda town, one: one.say(say(roster(["party1"]))), "said Roster before Welcome"),
    "signed by another": (
        lambda town, one: one.say(welcome(town.label, town["party1"], one.hello, signer=town["party2"])),
        "What answers is not label: it could not sign as label does",
    ),
    "another's certificate": (
        lambda town, one: one.say(welcome(town["party2"], town["party1"], one.hello)),
        "The certificate of 'party2' was shown for 'label'",
    ),
    "an impossible federation": (
        lambda town, one: (honest(town, one), one.say(say(roster(["party1", "party2"], classes=1 << 40))))[0],
        "label described an impossible federation",
    ),
    "no place in it": (
        lambda town, one: (honest(town, one), one.say(say(roster(["party2"]))))[0],
        "label described an impossible federation",
    ),
    "huge columns": (
        lambda town, one: (
            honest(town, one),
            one.say(say(roster(["party1", "party2"], shapes={"party1": (2,), "party2": (1 << 60,)}))),
        )[0],
        "label described an impossible federation",
    ),
    "another width": (
        lambda town, one: (honest(town, one), one.say(say(roster(["party1", "party2"], width=17))))[0],
        "label expects embeddings of 17 numbers from party1, whose model gives 16",
    ),
    "come again later": (
        lambda town, one: one.say(say(Refused("not now\x1b[2J", final=False))),
        "the stream to label is closed: not now�[2J",
    ),
}


def test_a_label_party_that_does_not_greet_as_one_should(alone: Town) -> None:
    """One after the other, to the same feature party, which then trains with the true one."""
    for script, said in BAD_GREETINGS.values():
        met_by(alone, lambda one, script=script: script(alone, one), said)  # type: ignore[misc]
    goes_on_to_the_end(alone)


def begun(town: Town, *packets: bytes) -> Callable[[Conversation], None]:
    """Greet as the true one does, begin the training, and then send these."""

    def script(one: Conversation) -> None:
        honest(town, one)
        one.say(say(roster(["party1", "party2"])))
        one.say(bytes([PACKETS]) + b"".join(packets))
        one.stays = True

    return script


def test_packets_that_no_honest_label_party_sends(alone: Town) -> None:
    for data, said in (
        (random.Random(3).randbytes(100), "unknown kind"),
        (resume() + header(FRAME, 1, 0, 2**32 - 1), "A packet claims 4294967295 bytes"),
        (resume() + frame(2, Stop("early")), "frames between them are missing"),
        (frame(1, Stop("early")), "A frame came before the connection was resumed"),
        (resume(5), "only 0 were sent"),
    ):
        met_by(alone, begun(alone, data), said)
    goes_on_to_the_end(alone)


def test_a_label_party_that_sends_what_is_no_message_is_left(alone: Town) -> None:
    met_by(alone, begun(alone, resume(), frame(1, upload(value=np.inf))), "NaN or infinity")
    assert alone["party1"].end(1) == 1
    assert "label is expelled from this run: " in alone["party1"].said()
    assert "Traceback" not in alone["party1"].said()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (EvaluationRequest(1, 10**9, 10, 0), "label asked for the test rows 1000000000 to 1000000010; there are 38"),
        (
            GradientAndBatch(1, np.zeros((1, 1), np.float32), 1, np.array([10**6], np.uint32)),
            "label named row 1000000; there are 112",
        ),
        (upload(), "sent EmbeddingUpload, which a feature party does not take here"),
    ],
)
def test_a_label_party_that_asks_for_what_is_not_there_is_left(alone: Town, message: Any, said: str) -> None:
    """Without it there is nothing to do: the party ends with the sentence, and its journal has its state."""
    met_by(alone, begun(alone, resume(), header(START, 0, 0), frame(1, message)), said)
    assert alone["party1"].end(1) == 1
    assert "label broke the protocol: " in alone["party1"].said()
    assert "Traceback" not in alone["party1"].said()
    assert [*events_after(alone["party1"].out / "journal", "party1", 0)]


def test_somebody_else_at_the_address(alone: Town) -> None:
    """At first that is a wrong address, and said so; later it may be anything, and is waited for to pass."""
    one = alone["party1"]
    fake = FakeLabelParty(alone["party2"], alone.port, lambda conversation: None)
    try:
        one.start()
        assert one.end(1) == 1
        assert f"What answers at 127.0.0.1:{alone.port} could not show a certificate of label" in one.said()
    finally:
        fake.close()
    met_by_true = FakeLabelParty(alone.label, alone.port, lambda conversation: honest(alone, conversation))
    try:
        one.start()
        one.hear("connected to label")
    finally:
        met_by_true.close()
    met_by(
        alone, lambda conversation: None, "could not show a certificate of label from our authority", alone["party2"]
    )
    assert one.alive()
    alone.label.start()
    alone["party2"].start()
    alone.end()
    assert one.started == 2


# --- envelopes between feature parties ----------------------------------------------------------------------------


def test_envelopes_that_no_honest_party_sends(town: Callable[..., Town]) -> None:
    """A traitor among the feature parties of a linear federation; then the true party comes from the same directory."""
    one = town(shared("afsaga", {**IRIS, "parties": 3}, 6, 16, training={"l2": 0.01}), parties=3)
    one.label.start()
    one["party1"].start()
    one["party2"].start()
    one.label.hear("listening")
    traitor = one["party3"]
    guest = guest_of(traitor, traitor.out)
    digest = guest._keys.digest
    for attack, said, who in (
        (lambda to, seal: wrap("party3", 1, b"x"), "who is not another party of the federation", LABEL),
        (lambda to, seal: wrap("party99", 1, b"x"), "who is not another party of the federation", LABEL),
        (lambda to, seal: bytes([ENVELOPE]) + b"\xffparty1", "An envelope is truncated", LABEL),
        (lambda to, seal: wrap("party1", to, b"short"), "is truncated: 5 bytes", "party1"),
        (lambda to, seal: wrap("party1", to, flipped(seal(b"good"), 30)), "altered on the way", "party1"),
        (lambda to, seal: wrap("party1", to, seal(os.urandom(99))), "it broke the protocol", "party1"),
        (lambda to, seal: wrap("party1", to, seal(frame(1, Stop("now")))), "before the connection", "party1"),
        (lambda to, seal: wrap("party1", to + 5, seal(b"of another generation")), "", "party1"),
    ):
        with calling(traitor) as caller:
            caller.enter(guest._hello(b"0123456789abcdef"))
            generation, key = _presence_of(caller, "party1")
            envelope = Envelope(guest._keys.sealing, "party3", key, "party1", digest)
            before = one[who].said().count(said)
            caller.say(attack(generation, envelope.seal))
            if said:
                one[who].hear(said, before + 1)
    traitor.start()
    assert one.end()["test"]["accuracy"] > 0.85
    assert all(party.started == 1 for party in one.parties.values())


def _presence_of(caller: Caller, name: str) -> tuple[int, bytes]:
    """Wait to be told that somebody can be reached: how, and with which key."""
    while (data := caller.hear()) is not None:
        if data[:1] == b"W" and isinstance(word := heard(data), Presence) and word.name == name and word.generation:
            assert word.introduced is not None
            return word.generation, word.introduced.sealing_key
    raise AssertionError(f"{name} never came")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Stop("now"), "sent Stop, which is the label party's to send"),
        (
            ProductRequest("party3", 1, np.arange(2, dtype=np.uint32)),
            "asked for a sum of party3, who has no labels to use it with",
        ),
    ],
)
def test_a_feature_party_cannot_play_the_label_party(town: Callable[..., Town], message: Any, said: str) -> None:
    federation = {"name": "afsaga", "updates": "one"}  # in which parties ask one another
    one = town(shared(federation, {**IRIS, "parties": 3}, 6, 16, training={"l2": 0.01}), parties=3)
    for name in (LABEL, "party1", "party2"):
        one[name].start()
    one.label.hear("listening")
    traitor = one["party3"]
    guest = guest_of(traitor, traitor.out)
    hidden = Introduction(0.0, 0.0, np.zeros(4, np.uint64))
    with calling(traitor) as caller:
        caller.enter(guest._hello(b"0123456789abcdef"))
        generation, key = _presence_of(caller, "party1")
        envelope = Envelope(guest._keys.sealing, "party3", key, "party1", guest._keys.digest)
        sealed = envelope.seal(resume() + frame(1, hidden) + frame(2, message))
        caller.say(wrap("party1", generation, sealed))
        one["party1"].hear(said)
        caller.packets(resume(), frame(1, hidden), frame(2, Stop("now")))
        assert "sent Stop, which is the label party's to send" in caller.refusal()
    assert one.label.alive() and one["party1"].alive() and one["party2"].alive()
