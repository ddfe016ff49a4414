"""What an algorithm's noise keeps in fact: one training run, many canaries, the strongest adversary of the definition.

A canary is a row with a secret bit. The adversary knows everything else, plays its own part of the protocol as it likes
with valid messages, sees what the algorithm's own party sends, and guesses the bits. From how many it gets right
follows an ε that the run cannot have kept (privacy/audit_bound.py). The party under audit is the product's, unchanged.

Labels, of an algorithm with noised answers: the adversary is a feature party. It uploads embeddings that differ on both
sides for one canary of a batch and for nobody else, so that the one number it gets back is that canary's slope and the
noise. Columns, of the others: the adversary is the label party. It answers with zero gradients, so that the bottom
model stays as it was, and compares every noised embedding of a canary with the two that it could be.

The adversary guesses three times, and pays for it with its confidence: all canaries; the sixteenth of them that it is
surest of; and once more by the last digits alone, in which noise that was added carelessly shows. How many canaries
there are follows from ε: with as many as are taken, an audit could refute it. Where nothing but noise of its own stands
between a canary and the adversary, every canary is a run of the mechanism for itself, and a sharper bound holds. That
one covers the mechanism (clip, noise, how it is added and accounted for), and not what a training does to it.

Of somebody's own federation the audit has the noise, clips, models, batches, rows and epochs; its rows are canaries all
the same, since the definition is of any rows, and the adversary of those is the stronger one.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade import algorithms
from colonnade.algorithms.row import Algorithm, Claim, Conversation
from colonnade.algorithms.training import Training
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.building import build_parties
from colonnade.messages import EmbeddingUpload, GradientReply, PairUpload, PerturbedUpload, RowLossReply, SlopeReply
from colonnade.models.bottom import BottomSettings
from colonnade.models.network import network_for
from colonnade.models.top import TopSettings
from colonnade.party import Effect, Party, Received, Send, Spend, Started
from colonnade.privacy.accounting import ClaimedPrivacy, labels_hidden_state
from colonnade.privacy.audit_bound import epsilon_lower_bound, fewest_canaries, gaussian_lower_bound, largest_bound
from colonnade.privacy.gaussian import epsilon_of, mu_of
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import FORMULAS, PerturbationSettings
from colonnade.threads import computing_with


def _audits_labels(algorithm: Algorithm) -> bool:
    said = algorithm.conversation
    return said is not None and said.noised_answers and (said.upload, said.reply) == (PairUpload, SlopeReply)


def _audits_columns(algorithm: Algorithm) -> bool:
    """Of a bottom model whose gradient the adversary can make zero; not of one that the algorithm brings itself."""
    said = algorithm.conversation
    return not algorithm.brings_models and said is not None and said.reply in (GradientReply, RowLossReply)


AUDITED = tuple(row.name for fits in (_audits_labels, _audits_columns) for row in algorithms.which(fits))
GIVEN = "given"
"""Not by a formula: the noise is that of a plan."""
_WIDTH = 8
_COLUMNS = 6
_PARTY = "party1"
_SHARES = {"all": 0.9, "surest": 0.08, "digits": 0.02}
"""How the chance to be wrong is divided among the adversary's ways to guess."""
_SUREST = 16  # one in so many
_LEAST_CANARIES = 512
_EXCHANGES = 8192  # about as many as an audit makes by default: seconds
_MOST_EPOCHS = 10
_TOGETHER = "all feature parties together, which craft their uploads"
_PUSH = 3.0  # how far a crafted embedding is from the middle: far enough that every slope reaches the clip


@dataclass(frozen=True)
class Audit:
    """What to audit: the noise is the one that `formula` asks for to keep (ε, δ) over these epochs.

    Where an algorithm's own paper has no formula for noise on embeddings, the first that there is stands in for it;
    nobody claims anything by that.
    """

    algorithm: str = AUDITED[0]
    epsilon: float = 1.0
    delta: float = 1e-5
    formula: str = "paper"  # paper | sound
    rows: int = 0  # 0: as many as give canaries enough to refute ε
    batch_size: int = 8
    epochs: int = 0  # 0: ten, or fewer if there are many canaries
    clip: float = 10.0
    server_update: str = "zeroth-order"  # of labels: how the label party's model is updated; sound needs a private one
    confidence: float = 0.95
    seed: int = 0
    noise: float = 0.0  # with formula = "given", which is that of somebody's own federation

    def __post_init__(self) -> None:
        if self.algorithm not in AUDITED:
            raise unknown_name("algorithm with an audit", self.algorithm, AUDITED)
        if (self.formula == GIVEN) != (self.noise > 0) or self.formula not in (*FORMULAS, GIVEN):
            raise unknown_name("formula", self.formula, FORMULAS)
        if not self.batch_size > 0:
            raise SettingsError(f"The audit's batch_size is {self.batch_size}; it must be above 0.")
        a_canary = self.batch_size if self.of_labels else 1
        if self.rows == 0 and self.epsilon > 0 and 0 < self.delta < 1:
            object.__setattr__(self, "rows", a_canary * _canaries(self.epsilon, self.delta, self.confidence))
        if self.epochs == 0:
            exchanges = self.rows // self.batch_size
            object.__setattr__(self, "epochs", max(1, min(_MOST_EPOCHS, _EXCHANGES // max(1, exchanges))))
        for name in ("rows", "epochs", "clip", "epsilon", "delta"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"The audit's {name} is {getattr(self, name)}; it must be above 0.")
        if self.rows < 2 * self.batch_size:
            raise SettingsError(f"An audit of {self.rows} rows needs smaller batches than {self.batch_size}.")

    @property
    def of_labels(self) -> bool:
        return _audits_labels(algorithms.find(self.algorithm))


@cache
def _canaries(epsilon: float, delta: float, confidence: float) -> int:
    """Enough to refute ε; where no number is, as many as show most."""
    found = fewest_canaries(epsilon, delta, _confidence(confidence, "all"))
    return max(_LEAST_CANARIES, found or 16384)


def _confidence(confidence: float, way: str) -> float:
    return 1 - (1 - confidence) * _SHARES[way]


@dataclass(frozen=True)
class Audited:
    """What came out. ε are at `delta`; `sound` is infinite where hidden state was updated without noise."""

    audit: Audit
    protects: str
    adversary: str
    noise: float
    canaries: int
    correct: int  # of all
    surest_correct: int  # of the sixteenth that it was surest of
    digits_correct: int  # of all, by last digits alone
    claimed: float | None  # by the algorithm's own paper, if that has a formula
    claimed_otherwise: float | None  # by another reading of that formula, if it has two
    readings: str  # which two
    sound: float
    given_hidden_state: float  # the sound figure if the hidden state were known to the adversary anyhow
    observed: float  # the lower bound: the best of three ways to guess
    largest: float  # what so many canaries could show at best
    gaussian: (
        float | None
    )  # the same if every canary is a Gaussian mechanism for itself; None: they have more in common
    gaussian_largest: float | None
    scores: tuple[tuple[float, ...], tuple[float, ...]]  # of canaries with bit 0, with bit 1; in no order of rows

    def as_values(self) -> dict[str, Any]:
        """Plain JSON, which has no infinity: None stands for it."""
        values = asdict(self)
        return {name: None if value == inf else value for name, value in values.items()}


@dataclass(frozen=True)
class OwnSettings:
    """What an audit takes of somebody's own federation besides numbers."""

    algorithm: Any  # its settings
    privacy: PerturbationSettings
    bottom: BottomSettings
    top: TopSettings
    shape: tuple[int, ...]  # of the attacked party's rows
    hidden_columns: bool  # whether bottom models are updated from raw columns without noise


def run_audit(audit: Audit, own: OwnSettings | None = None) -> Audited:
    """One training run with canaries."""
    with computing_with(1):
        return _audit_labels(audit, own) if audit.of_labels else _audit_columns(audit, own)


@dataclass(frozen=True)
class _Guesses:
    """What the adversary makes of each canary: above 0 means that its bit is 1."""

    bits: NDArray[np.bool_]
    scores: NDArray[np.float64]  # by the values that it saw
    digits: NDArray[np.float64]  # by their last digits

    def right(self, scores: NDArray[np.float64], which: NDArray[np.intp] | slice = slice(None)) -> int:
        return int(((scores[which] > 0) == self.bits[which]).sum())


def _judged(
    audit: Audit,
    guesses: _Guesses,
    claimed: ClaimedPrivacy | None,
    row_mu: float,
    hidden: bool,
    noise: float,
    alone: bool,
) -> Audited:
    """How many canaries each way guesses was settled before anything was seen. `alone`: they share nothing."""
    bits, delta = guesses.bits, audit.delta
    surest = np.argsort(-np.abs(guesses.scores), kind="stable")[: max(1, bits.size // _SUREST)]
    correct, surest_correct = guesses.right(guesses.scores), guesses.right(guesses.scores, surest)
    digits_correct = guesses.right(guesses.digits)
    counted = {
        "all": (bits.size, correct),
        "surest": (surest.size, surest_correct),
        "digits": (bits.size, digits_correct),
    }
    observed = max(
        epsilon_lower_bound(bits.size, guessed, right, delta, _confidence(audit.confidence, way))
        for way, (guessed, right) in counted.items()
    )
    known = epsilon_of(row_mu, delta)
    by_paper, otherwise = (None, None) if claimed is None else claimed.epsilons(delta)
    return Audited(
        audit,
        "one row's label" if audit.of_labels else "one row's columns at a feature party",
        "a feature party that crafts its uploads"
        if audit.of_labels
        else "a label party that answers with zero gradients",
        noise,
        bits.size,
        correct,
        surest_correct,
        digits_correct,
        by_paper,
        otherwise,
        "" if claimed is None else claimed.readings,
        inf if hidden else known,
        known,
        observed,
        largest_bound(bits.size, delta, _confidence(audit.confidence, "all")),
        gaussian_lower_bound(bits.size, correct, delta, audit.confidence) if alone else None,
        gaussian_lower_bound(bits.size, bits.size, delta, audit.confidence) if alone else None,
        (tuple(sorted(guesses.scores[~bits].tolist())), tuple(sorted(guesses.scores[bits].tolist()))),
    )


def singleness(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """How near each number is to one of single precision, in bits: noise that was drawn so is, and little else is.

    >>> singleness(np.array([0.75, 0.1])).round()
    array([60., 26.])
    """
    away = np.abs(numbers - numbers.astype(np.float32).astype(np.float64))
    near: NDArray[np.float64] = -np.log2(away / np.abs(numbers).clip(1e-300) + 2.0**-60)
    return near


def _worst_row_mu(ledger: Ledger) -> float:
    """√Σ (s/σ)² of the row that was released most, over everything that was spent."""
    total = np.zeros(0)
    for kind in ledger.by_row():
        cost = kind["per_row"] * (kind["sensitivity"] / kind["noise"]) ** 2
        if cost.size > total.size:
            total = np.concatenate([total, np.zeros(cost.size - total.size)])
        total[: cost.size] += cost
    return float(np.sqrt(total.max(initial=0.0)))


def _spend(ledger: Ledger, name: str, effects: Sequence[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Spend):
            ledger.spend(name, effect.event)


# --- labels: a feature party that crafts its uploads --------------------------------------------------------------


def _audit_labels(audit: Audit, own: OwnSettings | None) -> Audited:
    batches = audit.rows // audit.batch_size  # one canary in each
    rows = batches * audit.batch_size
    coin = np.random.default_rng([audit.seed, 1])
    bits = coin.random(batches) < 0.5
    labels = torch.from_numpy(coin.integers(0, 2, rows))
    labels[:batches] = torch.from_numpy(bits.astype(np.int64))
    columns = PartyColumns(torch.zeros(rows, 1), torch.zeros(0, 1), ("x",))
    target = Labels(labels, labels[:0], "binary", (0, 1))
    data = FederatedData("canaries", "label", target, {_PARTY: columns}, "")
    training = Training(
        epochs=audit.epochs, batch_size=audit.batch_size, learning_rate=0.01, optimiser="sgd", evaluate_every_epochs=0
    )
    settings, claimed = _noised_settings(audit, rows) if own is None else _own_settings(audit, own, rows)
    bottom = BottomSettings(kind="linear", embedding=_WIDTH)
    top = TopSettings(hidden=(16,)) if own is None else own.top
    width = 1 if top.only_sums else _WIDTH
    parties = build_parties(data, settings, training, PerturbationSettings(), bottom, top, audit.seed)
    label = parties["label"]
    push = _towards_class_one(label, width)
    ledger = Ledger()
    label.handle(Started(0.0))
    scores, digits = np.zeros(batches), np.zeros(batches)
    sure = audit.clip / audit.batch_size  # the slope of the mean, but for its sign: the canary's alone, and clipped
    exchange = 0
    for _ in range(audit.epochs):
        others = batches + coin.permutation(rows - batches)
        for canary in coin.permutation(batches):
            chosen = np.concatenate([[canary], others[: audit.batch_size - 1]]).astype(np.uint32)
            others = others[audit.batch_size - 1 :]
            plus = np.zeros((chosen.size, width), np.float32)
            minus = np.zeros_like(plus)
            plus[0], minus[0] = push, -push
            effects = label.handle(Received(float(exchange), _PARTY, PairUpload(exchange, chosen, plus, minus)))
            exchange += 1
            _spend(ledger, "label", effects)
            for effect in effects:
                if isinstance(effect, Send) and isinstance(effect.message, SlopeReply):
                    # Towards class one the loss of a row of class one falls: its slope is negative.
                    slope = effect.message.slope
                    scores[canary] -= slope
                    of_zero, of_one = singleness(np.array([slope - sure, slope + sure]) / settings.noise)
                    digits[canary] += of_one - of_zero
    hidden = labels_hidden_state("label", settings.server_update) is not None
    judged = _judged(
        audit,
        _Guesses(bits, scores, digits),
        claimed,
        _worst_row_mu(ledger),
        hidden,
        settings.noise,
        alone=settings.server_update == "frozen",
    )
    return judged if own is None else replace(judged, adversary=_TOGETHER)


def _noised_settings(audit: Audit, rows: int) -> tuple[Any, ClaimedPrivacy | None]:
    """The settings with the noise that the formula asks for, and the μ that the paper would claim for it."""
    row = algorithms.find(audit.algorithm)
    claim = _conversation(row).answers_claim
    mu = mu_of(audit.epsilon, audit.delta)
    exchanges = audit.epochs * (rows // audit.batch_size)
    private = audit.server_update in ("private-zo", "dp-sgd")
    if audit.formula == "paper" and claim is not None:
        noise = claim.noise(mu, audit.clip, exchanges, rows)
    else:
        if audit.server_update not in ("frozen", "private-zo", "dp-sgd"):
            raise SettingsError(
                f"With server_update = {audit.server_update!r} the label party's model depends on the labels without "
                "noise: no noise on its answers is sound. Choose frozen, private-zo or dp-sgd."
            )
        # Every row is answered for once an epoch, and once more if the update is private: 2C/(Bσ) each.
        noise = 2 * audit.clip * (audit.epochs * (1 + private)) ** 0.5 / (audit.batch_size * mu)
    settings = row.settings(directions=1, clip=audit.clip, noise=noise, server_update=audit.server_update)
    if private:
        settings = replace(settings, server_clip=1.0, server_noise=noise / audit.clip)
    return settings, None if claim is None else claim.of(noise, audit.clip, exchanges, rows)


def _own_settings(audit: Audit, own: OwnSettings, rows: int) -> tuple[Any, ClaimedPrivacy | None]:
    """Those of the federation, and the μ that the paper would claim for its noise."""
    claim = _conversation(algorithms.find(audit.algorithm)).answers_claim
    exchanges = audit.epochs * (rows // audit.batch_size)
    return own.algorithm, None if claim is None else claim.of(audit.noise, audit.clip, exchanges, rows)


def _conversation(row: Algorithm) -> Conversation:
    assert row.conversation is not None
    return row.conversation


def _towards_class_one(label: Party, width: int) -> NDArray[np.float32]:
    """The embedding, of length `_PUSH`, that the first top model takes most for class one: the adversary knows it."""
    top = label.model()["top"]
    middle = torch.zeros(1, width, requires_grad=True)
    (slope,) = torch.autograd.grad(top(middle).sum(), middle)
    push: NDArray[np.float32] = (_PUSH * slope[0] / slope.norm()).numpy()
    return push


# --- columns: a label party that keeps the bottom model where it is ------------------------------------------------


def _audit_columns(audit: Audit, own: OwnSettings | None) -> Audited:
    rows = audit.rows // audit.batch_size * audit.batch_size
    coin = np.random.default_rng([audit.seed, 2])
    bits = coin.random(rows) < 0.5
    # Two opposite rows, so long that their embeddings are clipped: as far from each other as any can be.
    shape = (_COLUMNS,) if own is None else own.shape
    sides = coin.standard_normal((rows, *shape)) * 1000
    values = torch.from_numpy(np.where(bits.reshape(-1, *(1 for _ in shape)), sides, -sides).astype(np.float32))
    labels = torch.from_numpy(coin.integers(0, 2, rows))
    columns = PartyColumns(values, values[:0], tuple(f"x{place}" for place in range(shape[0])))
    data = FederatedData("canaries", "label", Labels(labels, labels[:0], "binary", (0, 1)), {_PARTY: columns}, "")
    training = Training(
        epochs=audit.epochs, batch_size=audit.batch_size, learning_rate=0.01, optimiser="sgd", evaluate_every_epochs=0
    )
    queries = audit.epochs * rows // audit.batch_size
    mu = mu_of(audit.epsilon, audit.delta)
    row = algorithms.find(audit.algorithm)
    claim = _conversation(row).embeddings_claim
    if own is not None:
        noise = audit.noise
    elif audit.formula == "paper":
        noise = (claim or _first_claim()).noise(mu, audit.clip, queries, audit.batch_size, rows)
    else:
        noise = 2 * audit.clip * audit.epochs**0.5 / mu
    if own is None:
        privacy = PerturbationSettings(noise=noise, clip=audit.clip)
        bottom, top, settings = (
            BottomSettings(kind="linear", embedding=_WIDTH),
            TopSettings(hidden=(16,)),
            row.settings(),
        )
    else:
        privacy, bottom, top, settings = own.privacy, own.bottom, own.top, own.algorithm
    parties = build_parties(data, settings, training, privacy, bottom, top, audit.seed)
    party = parties[_PARTY]
    network = network_for(party.model()["bottom"])
    of_one = _clipped(network.embed(torch.from_numpy(sides.astype(np.float32))), audit.clip)
    of_zero = _clipped(network.embed(torch.from_numpy(-sides.astype(np.float32))), audit.clip)
    ledger = Ledger()
    scores, digits = _compared(party, of_one, of_zero, queries, noise, ledger)
    return _judged(
        audit,
        _Guesses(bits, scores, digits),
        None if claim is None else claim.of(noise, audit.clip, queries, audit.batch_size, rows),
        _worst_row_mu(ledger),
        # The adversary holds the bottom model still. In somebody's own federation it need not.
        own is not None and own.hidden_columns,
        noise,
        alone=True,
    )


def _compared(
    party: Party, of_one: torch.Tensor, of_zero: torch.Tensor, queries: int, noise: float, ledger: Ledger
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each canary's embeddings speak for, of the two that they could be: by values, and by last digits."""
    towards = of_one - of_zero
    scores, digits = np.zeros(len(towards)), np.zeros(len(towards))
    effects = party.handle(Started(0.0))
    for exchange in range(queries):
        _spend(ledger, _PARTY, effects)
        uploads = [effect.message for effect in effects if isinstance(effect, Send)]
        if not uploads:  # no row can afford another release
            break
        (upload,) = uploads
        assert isinstance(upload, EmbeddingUpload | PerturbedUpload)
        seen = torch.from_numpy(np.array(upload.embedding))
        at = upload.rows.astype(np.int64)
        scores[at] += (seen * towards[at]).sum(1).numpy()
        for side, sign in ((of_one, 1), (of_zero, -1)):
            digits[at] += sign * singleness((seen.double() - side[at].double()).numpy() / noise).sum(1)
        reply: GradientReply | RowLossReply
        if isinstance(upload, EmbeddingUpload):
            reply = GradientReply(upload.exchange, np.zeros_like(upload.embedding))
        else:
            points = 1 + len(upload.perturbed)
            reply = RowLossReply(upload.exchange, np.zeros((points, upload.rows.size), np.float32))
        effects = party.handle(Received(float(exchange), "label", reply)) if exchange + 1 < queries else []
    return scores, digits


def _first_claim() -> Claim:
    claim = _conversation(algorithms.which(lambda row: row.claims_embeddings)[0]).embeddings_claim
    assert claim is not None
    return claim


def _clipped(embeddings: torch.Tensor, clip: float) -> torch.Tensor:
    norms = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
    clipped: torch.Tensor = embeddings * (clip / norms.clamp_min(clip))
    return clipped
