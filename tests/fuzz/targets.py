"""Everything that reads bytes which somebody else may have written, each as a target with one invariant.

The invariant of all: the bytes are taken, or refused with an error of Colonnade's own (`errors.py`), whose text the
command line can show; never another exception. `one_input` says whether they were taken.
"""

import hashlib
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from zlib import crc32

import frames
import torch
from mutations import damaged, edited_json, edited_messagepack, edited_pem, edited_text, edited_toml
from safetensors.torch import save

from colonnade import messages
from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.federation.file import digest, federation_values, parse_federation, read_federation
from colonnade.federation.party_file import read_party_file
from colonnade.federation.toml import parse_toml, write_toml
from colonnade.files import toml_of
from colonnade.party import Finish, Observe, PeerLost, Received, Send, SetTimer, Started, TimerFired
from colonnade.privacy.ledger import Ledger
from colonnade.reports.observed import AUDIT_FILE, audit_of
from colonnade.reports.run_page import _run_page
from colonnade.reports.rundir import read_run
from colonnade.runtimes.checkpoint import read_checkpoint
from colonnade.runtimes.journal import Journal, events_after
from colonnade.runtimes.network.relay import unwrap, wrap
from colonnade.runtimes.replay import event_of
from colonnade.trace import MAGIC, packed, read_trace, record_of
from colonnade.wire import handshake
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificate_files import certificates_of, private_key_of, read_revoked
from colonnade.wire.certificates import Credentials, check_peer, read_credentials
from colonnade.wire.codec import encode
from colonnade.wire.packets import ACKNOWLEDGE, FRAME, RESUME, PacketReader, header
from colonnade.wire.sealing import Envelope, SealingKey, check_introduction, sign_introduction

Variant = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """A reader of bytes, valid inputs to begin with, and what harm is done to them."""

    name: str
    seeds: Callable[[], list[bytes]]
    one_input: Callable[[bytes], bool]
    variants: tuple[Variant, ...] = (damaged,)


@cache
def _folder() -> Path:
    """Where readers of files find theirs; kept for the whole process."""
    made = tempfile.TemporaryDirectory(prefix="colonnade-fuzz-")
    _kept.append(made)
    return Path(made.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _placed(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def _refused(read: Callable[[], object]) -> bool:
    """Whether it was taken after all."""
    try:
        read()
    except ColonnadeError as error:
        str(error).encode()  # a lone surrogate would break the terminal
        return False
    return True


# --- from a peer --------------------------------------------------------------------------------------------------


def one_frame(data: bytes) -> bool:
    return frames.one_input(data) is not None


def one_stream(data: bytes) -> bool:
    """Packets, in pieces of any size. What a reader holds is bounded by what has come."""
    reader, size, place = PacketReader(1 << 24), 1 + len(data) % 29, 0
    try:
        while place < len(data):
            for packet in reader.feed(data[place : place + size]):
                assert packet.kind in (1, 2, 3, 4, 5)
            place += size
            assert len(reader._body) <= max(1 << 20, 2 * place)
    except ProtocolError:
        return False
    return True


def streams() -> list[bytes]:
    body = frames.frames()[0]
    return [
        header(RESUME, 3, 2) + header(FRAME, 4, 2, len(body)) + body + header(ACKNOWLEDGE, 0, 3),
        header(FRAME, 1, 0, 0) + header(FRAME, 2, 0, 3) + b"abc",
    ]


@cache
def _people() -> tuple[Credentials, Credentials]:
    """A bank and a shop of one authority."""
    folder = _folder() / "people"
    make_authority(folder / "authority", "fuzz", 30)
    found = []
    for name in ("bank", "shop"):
        issue(folder / "authority", name, folder / name, [], 20)
        own = folder / name
        found.append(read_credentials(own / f"{name}.key", own / f"{name}.pem", own / "authority.pem", None))
    return found[0], found[1]


def words() -> list[bytes]:
    bank, shop = _people()
    key = SealingKey.generate().public_bytes()
    introduced = handshake.Introduced(shop.certificate_pem, key, sign_introduction(shop, "d", key))
    said: list[handshake.Word] = [
        handshake.Hello(2, "{}", "r", 9, 3, (4,), 8, "00" * 32, key, b"s" * 70, b"n" * 16),
        handshake.Welcome(("shop",), bank.certificate_pem, handshake.sign_welcome(bank, "d", "shop", b"n" * 16)),
        handshake.Refused("why", final=False),
        handshake.Roster("classes", 2, {"shop": (4,), "bank": (1, 28, 28)}, {"shop": 8}),
        handshake.Presence("shop", 3, introduced),
        handshake.Left(),
    ]
    return [handshake.say(word) for word in said]


def one_word(data: bytes) -> bool:
    """A word, and what follows from it: whose certificate, whose signature."""
    bank, shop = _people()

    def read() -> None:
        word = handshake.heard(data)
        assert handshake.heard(handshake.say(word)) == word
        match word:
            case handshake.Welcome():
                handshake.check_welcome(word, shop, "bank", "d", b"n" * 16)
            case handshake.Presence(introduced=handshake.Introduced() as one):
                args = (one.certificate, bank.authority_pem, frozenset[int](), "d", one.sealing_key, one.signature)
                check_introduction(*args)
                Envelope(SealingKey.generate(), "bank", one.sealing_key, "shop", "d")
            case handshake.Refused():
                assert handshake.plain(word.sentence).isprintable()
            case handshake.Hello():
                handshake.difference({"a": {"b": 1}}, word.settings)

    return _refused(read)


def edited_word(data: bytes, dice: random.Random) -> bytes:
    return data[:1] + edited_messagepack(data[1:], dice)


@cache
def _sealing() -> tuple[SealingKey, SealingKey]:
    return SealingKey.generate(), SealingKey.generate()


def envelopes() -> list[bytes]:
    ours, theirs = _sealing()
    envelope = Envelope(ours, "shop", theirs.public_bytes(), "clinic", "d")
    return [wrap("shop", 2, envelope.seal(content)) for content in (b"", b"a mask", bytes(300))]


def one_envelope(data: bytes) -> bool:
    ours, theirs = _sealing()
    envelope = Envelope(theirs, "clinic", ours.public_bytes(), "shop", "d")
    before = envelope.state()

    def read() -> None:
        _, _, sealed = unwrap(data)
        try:
            envelope.open(sealed)
        except ProtocolError:
            assert envelope.state() == before
            raise
        Envelope(theirs, "clinic", ours.public_bytes(), "shop", "d").restore(envelope.state())

    return _refused(read)


def certificates() -> list[bytes]:
    bank, shop = _people()
    return [shop.certificate_pem, bank.certificate_pem, bank.authority_pem, b"# revoked\n00ab\n12:34\n", shop.key_pem]


def one_certificate(data: bytes) -> bool:
    bank, _ = _people()
    taken = [
        _refused(partial(check_peer, data, bank.authority_pem, frozenset())),
        _refused(partial(certificates_of, data, "the file")),
        _refused(partial(private_key_of, data, Path("some.key"))),
        _refused(partial(read_revoked, _placed("revoked.txt", data))),
    ]
    return any(taken)


# --- from a run directory -----------------------------------------------------------------------------------------


def traces() -> list[bytes]:
    frame = encode(messages.Stop("done"))
    items = [Started(0.0), Received(1.5, "shop", messages.Stop("done")), Send("shop", messages.Stop("done"))]
    items += [TimerFired(2.0, "t"), PeerLost(3.0, "shop"), SetTimer("t", 1.0), Observe(1, 1, 0.5, 0.1), Finish()]
    framed = {Received, Send}
    return [MAGIC + b"".join(packed(record_of(item, frame if type(item) in framed else None)) for item in items)]


def one_trace(data: bytes) -> bool:
    """A trace is read and its events understood; as a journal it is taken up again."""
    path = _placed("label.trace", data)
    journal = _placed("journal/label-0000000003.journal", data)

    def replayed() -> None:
        for record in read_trace(path):
            if record.is_event:
                event_of(record)

    def taken_up() -> None:
        Journal(journal.parent, "label", 3).close()
        for record in events_after(journal.parent, "label", 3):
            if record.is_event:
                event_of(record)

    return _refused(replayed) and _refused(taken_up)


def edited_record(data: bytes, dice: random.Random) -> bytes:
    """One record after another is edited, with a checksum that fits: what a disk does not do, and a person can."""
    place, records = len(MAGIC), []
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "little")
        records.append(data[place + 12 : place + 12 + length])
        place += 12 + length
    at = dice.randrange(len(records))
    harm = edited_messagepack if dice.random() < 0.7 else damaged
    records[at] = harm(records[at], dice)
    return MAGIC + b"".join(
        b"".join((len(body).to_bytes(4, "little"), (len(body) ^ 0xFFFFFFFF).to_bytes(4, "little")))
        + crc32(body).to_bytes(4, "little")
        + body
        for body in records
    )


_BETWEEN = b"\n--- tensors ---\n"


def checkpoints() -> list[bytes]:
    tensors = save({"bottom.model.0.weight": torch.ones(2, 3), "rows": torch.arange(4), "none": torch.zeros(0, 2)})
    values = {"sha256": "", "values": {"station": {"now": 1.5, "links": {"shop": {"sent": 3}}}, "steps": [1, 2]}}
    return [json.dumps(values).encode() + _BETWEEN + tensors]


def one_checkpoint(data: bytes) -> bool:
    """Torn or not, a checkpoint is a state or nothing. The checksum is made to fit: else nothing but it is tried."""
    described, _, tensors = data.partition(_BETWEEN)
    fitting = described.replace(b'"sha256": ""', b'"sha256": "' + hashlib.sha256(tensors).hexdigest().encode() + b'"')
    path = _placed("checkpoints/c-0000000001.json", fitting)
    path.with_name("c-0000000001.safetensors").write_bytes(tensors)
    return read_checkpoint(path.parent, "c", 1) is not None


def edited_checkpoint(data: bytes, dice: random.Random) -> bytes:
    described, _, tensors = data.partition(_BETWEEN)
    if dice.random() < 0.5:
        return edited_json(described, dice) + _BETWEEN + tensors
    size = int.from_bytes(tensors[:8], "little")
    head = edited_json(tensors[8 : 8 + size], dice)
    return described + _BETWEEN + len(head).to_bytes(8, "little") + head + tensors[8 + size :]


def ledgers() -> list[bytes]:
    return [b'{"releases": 2048, "boot": "b"}\n{"releases": 7, "boot": "b", "remembered": 5}\n{"rel']


def one_ledger(data: bytes) -> bool:
    _placed("ledger/ledger.jsonl", b"{}\n" * 9)
    path = _placed("ledger/ledger.reserved", data)
    return _refused(lambda: Ledger(path.with_suffix(".jsonl"), 6).close())


# --- what a person writes, or an older version wrote ----------------------------------------------------------------

_FEDERATION = b"""[federation]
name = "loans"
label_party = "bank"
seed = 1
[data]
id = "customer"
label = "paid_back"
rows = "same"
[parties.bank]
[parties.shop]
file = "shop.csv"
columns = ["a", "b"]
bottom = {kind = "mlp", hidden = [8, 4]}
[algorithm]
name = "vafl"
activation_seconds = {shop = 1.0}
[training]
epochs = 500
learning_rate = 0.1
[privacy]
noise = 1.5
clip = 1.0
[simulate]
latency_seconds = {distribution = "exponential", mean = 0.1}
links = {"shop -> bank" = {latency_seconds = 0.5}}
[simulate.parties.shop]
slowdown = 3.0
crashes = [[0.3, 0.6]]
[network]
address = "127.0.0.1:7443"
"""
_PARTY = b"""[party]
name = "bank"
listen = "0.0.0.0:7443"
metrics = "127.0.0.1:9464"
log = "json"
[data]
file = "bank.csv"
[keys]
certificate = "bank.pem"
key = "bank.key"
authority = "authority.pem"
revoked = "revoked.txt"
[bottom]
kind = "linear"
[endurance]
sync = true
"""


def one_federation(data: bytes) -> bool:
    """A federation.toml: what was taken is written with its defaults, and that is read to the same."""

    def read() -> None:
        federation = read_federation(_placed("federation.toml", data))
        values = federation_values(federation)
        assert digest(federation_values(parse_federation(toml_of(write_toml(values).encode())))) == digest(values)

    return _refused(read)


def one_party_file(data: bytes) -> bool:
    return _refused(lambda: read_party_file(_placed("party.toml", data)))


def edited_settings(data: bytes, dice: random.Random) -> bytes:
    return edited_toml(parse_toml(data, "the seed"), dice)


_LINE = {"party": "label", "exchange": 3, "step": 3, "epoch": 0.5, "wall_seconds": 1.0, "virtual_seconds": 2.0}
_RECORDS: dict[str, object] = {
    "metrics.jsonl": {**_LINE, "loss": 0.5, "metric": {"accuracy": 0.5}, "bytes_up": 10, "bytes_down": 20, "note": "n"},
    "timeline.jsonl": {"party": "label", "start": 0.0, "end": 1.0, "what": "busy"},
    "summary.json": {
        "algorithm": "vafl",
        "runtime": "simulate",
        "status": "finished",
        "exchanges": 3,
        "headline": "accuracy",
        "virtual_seconds": 2.0,
        "bytes_up": 10,
        "bytes_down": 20,
        "train_loss": 0.5,
        "test": {"accuracy": 0.5},
        "staleness": {"mean": 0.5, "p95": 1, "max": 2, "histogram": {"edges": [0, 1, 2], "counts": [1, 2]}},
        "bytes_by_message": {"Stop": 10},
        "parties": {"label": {"role": "label", "exchanges": 3, "steps": 3, "busy_seconds": 1.0, "idle_seconds": 1.0}},
        "privacy": {"delta": 1e-5, "figures": [{"direction": "columns of shop", "adversary": "label party"}]},
        "learnt": [{"sender": "shop", "viewer": "label", "kind": "Stop", "frames": 1, "sentence": "s"}],
        "data": {"name": "iris", "rows": 9, "test_rows": 3, "task": "classes", "parties": {"shop": {"columns": 2}}},
        "settings": {"algorithm": {"name": "vafl"}, "training": {"epochs": 2}},
        "versions": {"python": "3.11"},
    },
    AUDIT_FILE: [
        {
            "observed": 0.5,
            "given_hidden_state": 1.0,
            "canaries": 9,
            "protects": "one label",
            "adversary": "a",
            "audit": {"delta": 1e-5, "confidence": 0.95, "algorithm": "vafl", "server_update": "frozen"},
        }
    ],
}


def records() -> list[bytes]:
    """The name of a file, and its content."""
    return [name.encode() + b"\n" + json.dumps(content).encode() + b"\n" for name, content in _RECORDS.items()]


def one_record(data: bytes) -> bool:
    """A run directory with one file that is not as it was; the others are."""
    run = _folder() / "run"
    for name, content in _RECORDS.items():
        _placed(f"run/{name}", json.dumps(content).encode() + b"\n")
    name, _, content = data.partition(b"\n")
    if name.decode("ascii", "replace") in _RECORDS:
        _placed(f"run/{name.decode()}", content)

    def read() -> None:
        told = read_run(run)
        _run_page(told, [], audit_of(told)).encode()

    return _refused(read)


def edited_content(data: bytes, dice: random.Random) -> bytes:
    name, _, content = data.partition(b"\n")
    lines = [edited_json(content, dice) for _ in range(1 + (name.endswith(b"l") and dice.random() < 0.5))]
    return name + b"\n" + b"\n".join(lines) + b"\n"


TARGETS = {
    target.name: target
    for target in (
        Target("codec", frames.frames, one_frame, (frames.variant,)),
        Target("packets", streams, one_stream),
        Target("words", words, one_word, (damaged, edited_word, edited_word)),
        Target("envelopes", envelopes, one_envelope),
        Target("certificates", certificates, one_certificate, (damaged, edited_text, edited_pem)),
        Target("trace", traces, one_trace, (damaged, edited_record, edited_record)),
        Target("checkpoint", checkpoints, one_checkpoint, (damaged, edited_checkpoint, edited_checkpoint)),
        Target("ledger", ledgers, one_ledger, (damaged, edited_text)),
        Target("federation", lambda: [_FEDERATION], one_federation, (damaged, edited_text, edited_settings)),
        Target("party", lambda: [_PARTY], one_party_file, (damaged, edited_text, edited_settings)),
        Target("records", records, one_record, (damaged, edited_text, edited_content, edited_content)),
    )
}
