"""What crosses in a zeroth-order run: embeddings, row numbers and losses or slopes; never a direction or its seed.

The transcript of every party is walked frame by frame. `unexpected` knows what each algorithm may send, with shapes;
`Secrets` knows all bytes that must stay at home: directions, drawn again here from the party's generator, the
generator's seed and its states. Both are shown to fail on a frame that leaks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recorded_runs import read_run

from colonnade import (
    BottomSettings,
    Cascaded,
    Czofo,
    Dpzv,
    PerturbationSettings,
    Simulate,
    SimulatedParty,
    Zoo,
    ZooSync,
)
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.parts.randomness import generator_for, seed_for
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.errors import ProtocolError
from colonnade.messages import (
    BatchRequest,
    EvaluationEmbedding,
    EvaluationRequest,
    GradientReply,
    LossAndBatch,
    LossReply,
    Message,
    PairUpload,
    PerturbedUpload,
    RefreshedEmbedding,
    RefreshRequest,
    RowLossReply,
    SlopeReply,
    Stop,
    WarmUpUpload,
)
from colonnade.party import Received, Send, Started
from colonnade.testing import TinyFederation, assert_same_bits, tiny_data, weights
from colonnade.trace import read_trace
from colonnade.wire.codec import decode, encode

WIDTH = 3
ROWS = 24
DATA = tiny_data()
SLOW = Simulate(parties={"party1": SimulatedParty(slowdown=4.0)})
BUSY: dict[str, Any] = {"warm_up": True, "max_delay": 3, "in_flight": 2}  # so that every kind of message occurs
RUNS = {
    "cascaded": Cascaded(**BUSY, directions=1),
    "cascaded, 3 two-sided": Cascaded(**BUSY, directions=3, two_sided=True),
    "zoo": Zoo(**BUSY, directions=2),
    "zoo-sync": ZooSync(directions=2),
    "czofo": Czofo(**BUSY, directions=2),
    "dpzv": Dpzv(**BUSY),
    "dpzv, noise": Dpzv(**BUSY, noise=0.5, server_update="private-zo", server_noise=0.5),
}


def plan(algorithm: Any, **changes: Any) -> TinyFederation:
    bottom = BottomSettings("mlp", hidden=(5,), embedding=WIDTH, output_activation=False)
    return TinyFederation(DATA, algorithm, bottom=bottom, simulate=SLOW, **changes)


def frames(run: Path) -> Iterator[tuple[str, bytes]]:
    """Every frame of every party's transcript, with the name of the party that sent it."""
    for path in sorted((run / "trace").glob("*.trace")):
        for record in read_trace(path):
            if record.type in ("Send", "Received"):
                yield (path.stem if record.type == "Send" else record.fields[1]), record.fields[-1]


def test_every_zeroth_order_algorithm_is_here() -> None:
    other = {"vafl", "split", "centralised"}
    zeroth_order = {name for name, row in ALGORITHMS.items() if hasattr(row.settings(), "directions_used")}
    assert {name.partition(",")[0] for name in RUNS} == zeroth_order
    assert zeroth_order.isdisjoint(other)


# --- the whitelist ----------------------------------------------------------------------------------------------


def shapes(message: Message) -> dict[str, Any]:
    """Arrays by their shape, everything else by its type."""
    values = {name: getattr(message, name) for name in message.__struct_fields__}
    return {name: value.shape if isinstance(value, np.ndarray) else type(value) for name, value in values.items()}


def unexpected(algorithm: Any, from_label_party: bool, message: Message) -> str | None:
    """Why this message may not cross in a run of this algorithm; None if it may."""
    looks: Directions = algorithm.directions_used()
    values = 1 + looks.points
    batch = len(getattr(message, "rows", ()))
    here = (batch, WIDTH)
    counted = {"exchange": int}
    up: dict[type[Message], dict[str, Any]] = {
        EvaluationEmbedding: {"evaluation": int, "first_row": int, "embedding": (DATA.test_rows, WIDTH)}
    }
    down: dict[type[Message], dict[str, Any]] = {
        EvaluationRequest: {"evaluation": int, "first_row": int, "row_count": int, "after_replies": int},
        Stop: {"reason": str},
    }
    if isinstance(algorithm, Dpzv):
        up[PairUpload] = {**counted, "rows": (batch,), "plus": here, "minus": here}
        down[SlopeReply] = {**counted, "slope": float}
    else:
        perturbed = (looks.points, batch, WIDTH)
        up[PerturbedUpload] = {**counted, "rows": (batch,), "embedding": here, "perturbed": perturbed}
        if isinstance(algorithm, Czofo):
            rows = message.losses.shape[1] if isinstance(message, RowLossReply) else 0
            down[RowLossReply] = {**counted, "losses": (values, rows)}
        elif isinstance(algorithm, ZooSync):
            rows = len(getattr(message, "next_rows", ()))
            down[LossAndBatch] = {**counted, "losses": (values,), "step": int, "next_rows": (rows,)}
        else:
            down[LossReply] = {**counted, "losses": (values,)}
    if isinstance(algorithm, ZooSync):
        down[BatchRequest] = {"step": int, "rows": (batch,)}
    else:
        up[WarmUpUpload] = {"rows": (batch,), "embedding": here}
        up[RefreshedEmbedding] = {"request": int, "rows": (batch,), "embedding": here}
        down[RefreshRequest] = {"request": int, "rows": (batch,)}
    allowed = (down if from_label_party else up).get(type(message))
    if allowed is None:
        return f"{type(message).__name__} may not cross here"
    if shapes(message) != allowed:
        return f"{message} should have {allowed}"
    return None


@pytest.mark.parametrize("name", RUNS)
def test_only_declared_messages_cross(name: str, tmp_path: Path) -> None:
    algorithm = RUNS[name]
    plan(algorithm).run(tmp_path / "run")
    kinds = set()
    for sender, frame in frames(tmp_path / "run"):
        message = decode(bytearray(frame))
        kinds.add(type(message))
        assert unexpected(algorithm, sender == "label", message) is None
        for rows in (getattr(message, "rows", None), getattr(message, "next_rows", None)):
            assert rows is None or len(set(rows.tolist())) == len(rows) <= ROWS
    if isinstance(algorithm, ZooSync):
        assert len(kinds) == 2 + 4
    else:
        assert len(kinds) == 4 + 4  # of feature parties, of the label party: all that the whitelist has


def test_the_whitelist_refuses_what_is_not_on_it() -> None:
    rows = np.arange(4, dtype=np.uint32)
    here = np.zeros((4, WIDTH), np.float32)
    near = np.zeros((1, 4, WIDTH), np.float32)
    cascaded, czofo = Cascaded(directions=1), Czofo()
    assert unexpected(cascaded, False, PerturbedUpload(0, rows, here, near)) is None
    assert unexpected(cascaded, False, PerturbedUpload(0, rows, here, np.concatenate([near, near])))
    assert unexpected(cascaded, True, PerturbedUpload(0, rows, here, near))
    assert unexpected(cascaded, True, GradientReply(0, here))
    assert unexpected(cascaded, True, LossReply(0, np.zeros(2))) is None
    assert unexpected(cascaded, True, LossReply(0, np.zeros(3)))
    row_losses = RowLossReply(0, np.zeros((2, 4), np.float32))
    assert unexpected(czofo, True, row_losses) is None
    assert unexpected(cascaded, True, row_losses)


# --- what must stay at home -------------------------------------------------------------------------------------

WINDOW = 16
SEED_BYTES = 8


@dataclass
class Secrets:
    """Byte strings that must be in no frame: any 16 bytes of a direction or a state, any whole seed."""

    windows: set[bytes] = field(default_factory=set)
    seeds: set[bytes] = field(default_factory=set)

    def add_direction(self, u: torch.Tensor, radius: float) -> None:
        """As it is drawn, and as it is added to the weights."""
        for values in (u, u * radius, u.double(), u.double() * radius):
            self._add(values.numpy().tobytes(), values.element_size())

    def add_state(self, generator: torch.Generator) -> None:
        self._add(generator.get_state().numpy().tobytes(), 4)

    def _add(self, content: bytes, stride: int) -> None:
        for start in range(0, len(content) - WINDOW + 1, stride):
            window = content[start : start + WINDOW]
            if len(set(window)) > WINDOW // 2:  # runs of zeros in a generator's state say nothing
                self.windows.add(window)

    def add_seed(self, seed: int) -> None:
        self.seeds |= {seed.to_bytes(SEED_BYTES, "little"), seed.to_bytes(SEED_BYTES, "big"), str(seed).encode()}

    def are_in(self, frame: bytes) -> bool:
        at = range(len(frame) - WINDOW + 1)
        return any(frame[i : i + WINDOW] in self.windows for i in at) or any(seed in frame for seed in self.seeds)


def secrets_of(given: TinyFederation, uploads: dict[str, list[int]]) -> Secrets:
    """Of all parties; `uploads` has the number of rows of each upload of each party, in order."""
    secrets = Secrets()
    settings = given.algorithm
    looks: Directions = settings.directions_used()
    radius = looks.radius
    models = {name: own.model() for name, own in given.parties().items()}
    sizes = {name: sum(p.numel() for m in own.values() for p in m.parameters()) for name, own in models.items()}
    for party in given.names:
        generator = generator_for(given.seed, party, "directions")
        secrets.add_seed(seed_for(given.seed, party, "directions"))
        secrets.add_state(generator)
        for rows in uploads.get(party, []):
            if isinstance(settings, Dpzv):
                seed = int(torch.randint(2**62, (), generator=generator))
                secrets.add_seed(seed)
                normal = torch.randn(1, sizes[party], generator=torch.Generator().manual_seed(seed))[0]
                secrets.add_direction(normal, radius)
                secrets.add_direction(normal * (sizes[party] ** 0.5 / normal.norm()), radius)
            elif isinstance(settings, Czofo):
                for _ in range(looks.count):
                    secrets.add_direction(looks.draw_rows(rows, WIDTH, generator).reshape(-1), radius)
            else:
                for u in looks.draw_rows(looks.count, sizes[party], generator):
                    secrets.add_direction(u, radius)
        if party == "label":  # one update after the other; `cascaded` and `czofo` have none of zeroth order
            for _ in range(30 * looks.count):
                secrets.add_direction(looks.draw(sizes[party], generator), radius)
        secrets.add_state(generator)
    return secrets


def uploads_in(run: Path) -> dict[str, list[int]]:
    uploads: dict[str, list[int]] = {}
    for party, items in read_run(run).items():
        sent = [item.message for item in items if item.type == "Send"]
        uploads[party] = [len(m.rows) for m in sent if isinstance(m, PerturbedUpload | PairUpload)]
    return uploads


@pytest.mark.parametrize("name", RUNS)
def test_no_direction_and_no_seed_leaves_its_party(name: str, tmp_path: Path) -> None:
    """Bytes say nothing of arithmetic: a label party of `czofo` can subtract embeddings and so learn directions.

    That is in the nature of that algorithm, whose directions are in the space of what is sent.
    """
    given = plan(RUNS[name])
    given.run(tmp_path / "run")
    uploads = uploads_in(tmp_path / "run")
    assert sum(map(len, uploads.values())) >= 18
    secrets = secrets_of(given, uploads)
    assert [decode(bytearray(frame)) for _, frame in frames(tmp_path / "run") if secrets.are_in(frame)] == []


def test_the_secrets_are_those_of_the_run(tmp_path: Path) -> None:
    """Or looking for them would prove nothing: with a linear model, ĉ − c is μ times the direction's own layer."""
    given = TinyFederation(
        DATA, Cascaded(smoothing_radius=0.5, directions=1), bottom=BottomSettings("linear", embedding=WIDTH)
    )
    given.run(tmp_path / "run")
    items = read_run(tmp_path / "run")["party2"]
    sent: Any = next(item.message for item in items if isinstance(item.message, PerturbedUpload))
    columns = DATA.columns["party2"].train[sent.rows.astype(np.int64)]
    u = given.algorithm.directions_used().draw(2 * WIDTH + WIDTH, generator_for(0, "party2", "directions"))
    moved = columns @ u[: 2 * WIDTH].view(2, WIDTH) + u[2 * WIDTH :]
    np.testing.assert_allclose(sent.perturbed[0] - sent.embedding, 0.5 * moved, atol=1e-5)


def leaks(given: TinyFederation) -> Iterable[Message]:
    rows = np.arange(8, dtype=np.uint32)
    u = given.algorithm.directions_used().draw(33, generator_for(0, "party1", "directions"))
    near = np.zeros((1, 8, WIDTH), np.float32)
    yield PerturbedUpload(0, rows, u[:24].numpy().reshape(8, WIDTH), near)
    part = np.zeros((8, WIDTH), np.float32)
    part.reshape(-1)[9:13] = u[4:8].numpy() * 0.001  # four numbers of it, somewhere in between
    yield PerturbedUpload(0, rows, part, near)
    yield RefreshRequest(seed_for(0, "party1", "directions"), rows)
    yield Stop(f"directions were drawn with {seed_for(0, 'party1', 'directions')}")
    state = generator_for(0, "party1", "directions").get_state().numpy()
    yield RefreshRequest(1, state[:4096].view(np.uint32))


def test_a_leak_would_be_found() -> None:
    given = plan(Cascaded(directions=1))
    secrets = secrets_of(given, {"party1": [8]})
    nothing = np.zeros((1, 8, WIDTH), np.float32)
    harmless = PerturbedUpload(0, np.arange(8, dtype=np.uint32), nothing[0], nothing)
    assert not secrets.are_in(bytes(encode(harmless)))
    for message in leaks(given):
        assert secrets.are_in(bytes(encode(message)))


# --- what is noised is accounted for ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "embeddings"),
    [
        (Cascaded(**BUSY, directions=1), 2),
        (Cascaded(**BUSY, directions=2, two_sided=True), 5),
        (Zoo(**BUSY, directions=1), 2),
        (ZooSync(directions=3), 4),
        (Czofo(**BUSY, directions=3), 1),  # the others are computed from the noised one, and release nothing more
        (Dpzv(**BUSY), 2),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_every_noised_embedding_is_spent_before_it_is_sent(algorithm: Any, embeddings: int, tmp_path: Path) -> None:
    given = plan(algorithm, privacy=PerturbationSettings(noise=0.5, clip=1.5))
    given.run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    for party in given.data.feature_parties:
        spent: list[tuple[Any, ...]] = []
        for item in run[party]:
            if item.type == "Spend":
                spent.append(item.fields)
            elif item.type == "Send":
                message: Any = item.message
                upload = isinstance(message, PerturbedUpload | PairUpload)
                rows = getattr(message, "rows", np.arange(DATA.test_rows, dtype=np.uint32))
                assert len(spent) == (embeddings if upload else 1)
                which = "test" if isinstance(message, EvaluationEmbedding) else "training"
                for mechanism, sensitivity, noise, count, row_ids, protects, viewers in spent:
                    assert (mechanism, sensitivity, noise, count) == ("gaussian", 3.0, 0.5, len(rows))
                    assert np.frombuffer(row_ids, "<u4").tolist() == rows.tolist()
                    assert (protects, viewers) == (f"columns of {party}, {which} rows", ["label"])
                spent = []
        assert spent == []


def test_losses_too_far_apart_are_refused_and_change_nothing() -> None:
    """Each loss is a number that a float holds; their slopes would be none."""
    party = TinyFederation(DATA, Cascaded(directions=2)).parties()["party1"]
    (upload,) = [effect for effect in party.handle(Started(0.0)) if isinstance(effect, Send)]
    before = weights({"party1": party.model()})
    lie = LossReply(upload.message.exchange, np.array([0.0, 1e300, -1e300]))
    with pytest.raises(ProtocolError, match="label sent losses with slopes"):
        party.handle(Received(1.0, "label", lie))
    assert_same_bits(before, weights({"party1": party.model()}))
