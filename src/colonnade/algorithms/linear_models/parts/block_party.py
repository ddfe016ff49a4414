"""What every party of a linear federation has, whatever its schedule: its block of the model, its side of the sums, and
what it tells the others before the training."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.settings import REMEMBERED, Linear
from colonnade.algorithms.linear_models.parts.smoothness import REVISITS, ColumnsTold, Smoothness
from colonnade.algorithms.linear_models.parts.sum_schemes import SumScheme, check_scheme
from colonnade.algorithms.linear_models.parts.sums import ROWS_A_SUM, SumLimits, Sums
from colonnade.algorithms.linear_models.parts.windows import ROWS_OF_A_PASS
from colonnade.algorithms.parts.bounds import MOST_KEPT_BYTES, MOST_PRODUCT
from colonnade.algorithms.parts.randomness import seed_for
from colonnade.algorithms.parts.versions import NO_COPY, Versions
from colonnade.algorithms.seats import LinearSeat
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import Introduction
from colonnade.models.known_curvature import known_curvature
from colonnade.models.layers import SumEmbeddings, linear_bottom
from colonnade.models.linear import LinearBlock, Precondition
from colonnade.models.linear_loss import LinearLoss
from colonnade.party import Effect, Send
from colonnade.privacy.masking import OwnMasks, PairwiseMasks, check_key, generate_key
from colonnade.privacy.ring import FixedPoint
from colonnade.state import Remembering, State, custom, group, included, optional_part, part, plain

MOST_LEVERAGE = 16.0
"""Batches that a row may weigh before the metric of `precondition = "auto"` shortens it: rows up to there slow all
columns down less than a metric would slow down theirs (tried with rows of 20 to 3,000)."""

LATER_SHARE = 0.03
"""How much the most curvature that a row can have counts in the metric of the rows' own beside what it has. Chosen by
looking at breast_cancer and digits, as the two below: with a fiftieth SAGA swung on the 427 rows of the first."""

LATER_LEVERAGE = 4.0
"""Batches that a row may weigh in that metric; 16 was slower on both, 1 on digits."""

LATER_CHANCE = 3.0
"""How much more of a batch's chance is allowed for there: rows may be more curved than when they were looked at. With 1
and 2, SAGA on 427 rows in batches of 16 swung. Not of steps that become shorter after they led uphill."""

_MOST_OF_COLUMNS = 1e100  # of what is told of columns: fourth powers of numbers that a float32 holds at most


class BlockParty(Remembering):
    """A block w_m of the joint linear model, and the sums it takes part in."""

    def __init__(
        self,
        seat: LinearSeat,
        abandons: bool,
        requests_per_epoch: int,
        precondition: Precondition | None = None,  # None: as the settings say
        rows_a_sum: int | None = None,  # the most that one is made of; None: what a worker asks for
        most_product: float = MOST_PRODUCT,  # the magnitude of one party's part of a sum
        tells_columns: bool = True,
    ) -> None:
        settings: Linear = seat.settings
        check_scheme(settings.sums, seat.workers, settings.allow_two_parties)
        self.seat = seat
        self.peers = tuple(party for party in seat.parties if party != seat.name)
        self.loss = LinearLoss(seat.task, seat.outputs, settings.loss, settings.loss_scale, seat.largest_weight)
        columns = seat.columns
        chosen: Any = settings.precondition if precondition is None else precondition
        self.automatic = chosen == "auto"
        self.block = LinearBlock(
            torch.zeros(seat.rows, 0) if columns is None else columns.train,
            torch.zeros(seat.validation_rows + seat.test_rows, 0) if columns is None else columns.scored,
            seat.outputs,
            seat.training.l2,
            seat.intercept,
            chosen,
            self.loss.smoothness,
            centred=settings.intercept,
            most_leverage=MOST_LEVERAGE * seat.training.batch_size,
            l1=seat.training.l1,
        )
        self._first = self._to_start_with()
        if seat.start is not None:
            self.block.set_weights(*self._first)
        self.targets = None if seat.labels is None else seat.labels.train.double().numpy()
        given = None if seat.labels is None else seat.labels.weights
        self.weights = None if given is None else given.numpy()  # of the training rows in the loss
        self.works = columns is not None or seat.intercept
        self.tells_smoothness = False  # whether a step size is derived from what everybody tells
        self.slow = False  # whether first-order steps would not get there in the planned time (pace.py)
        self.gradient_square: Callable[[], float] = lambda: 0.0  # ‖∇_m f‖², infinite until the solver knows it
        point = FixedPoint(settings.fraction_bits, len(seat.parties))
        # The most that is told of ‖∇_m f‖² / tolerance²; fixed point holds no more.
        self.most_gradient: float = min(1e6, point.limit / 2) if settings.masked else 1e30
        self._scheme = SumScheme(settings.sums, seat.parties, settings.children_of_a_party(len(seat.parties)), point)
        self.sums = Sums(
            seat.name,
            self._scheme,
            seat.rows,
            ceil(settings.max_product_age_epochs * requests_per_epoch),
            abandons,
            self.block.products,
            self._evaluate,
            _bounds(seat, most_rows(seat) if rows_a_sum is None else rows_a_sum, most_product),
        )
        keeps = seat.validation_rows > 0 and seat.training.keep != "last"
        self.versions = Versions() if keeps else None
        pairs = settings.sums == "pairwise"
        self._private_key, self._public_key = generate_key(_entropy(seat, "mask key")) if pairs else (b"", bytes(32))
        self._meets = tells_columns or pairs  # otherwise there is nothing to tell beforehand
        self._introduced: dict[str, tuple[ColumnsTold, list[int]]] = {}  # what each party told, and its key

    # --- before the training ---

    def _to_start_with(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Zeros, or the weights of an earlier training. Columns are centred anew, so the constant is of now."""
        block, given = self.block, self.seat.start
        if given is None:
            return np.zeros((block.columns, block.outputs)), np.zeros(block.outputs)
        weights, constant = given
        if weights.shape != (block.columns, block.outputs):
            raise SettingsError(
                f"The linear block of {self.seat.name} has the shape {(block.columns, block.outputs)}, and the model "
                f"to start from {weights.shape}: its task or its columns differ. Begin anew."
            )
        return weights, constant + block.centre() @ weights if block.centred else constant

    def introduce(self) -> list[Effect]:
        """Tell everybody what they need to know of these columns, and one's key, if that is anything."""
        wanted = self.works and self.tells_smoothness
        told = ColumnsTold(0.0, 0.0)
        if wanted:
            told = ColumnsTold(self.block.longest_rows(), self.block.largest_eigenvalue())
        key = np.frombuffer(self._public_key, np.uint64)
        self._introduced[self.seat.name] = (told, key.tolist())
        if not self._meets:
            self._agree_on_masks()
            return []
        return [Send(peer, Introduction(*told, key)) for peer in self.peers]

    def meet(self, sender: str, introduction: Introduction) -> bool:
        """Take a peer's introduction; True if it was the last one."""
        told = ColumnsTold(introduction.longest_rows, introduction.largest_eigenvalue)
        if introduction.public_key.size != 4 or min(told) < 0 or max(told) > _MOST_OF_COLUMNS:
            raise ProtocolError(f"{sender} introduced itself with an impossible key or size.")
        if not self._meets:
            raise ProtocolError(f"{sender} introduced itself; in this training nobody does.")
        if sender in self._introduced:
            raise ProtocolError(f"{sender} introduced itself twice.")
        if self.seat.settings.sums == "pairwise":  # now: the last one to come is not to blame for another's key
            check_key(self._private_key, sender, introduction.public_key.tobytes())
        self._introduced[sender] = (told, introduction.public_key.tolist())
        return self._agree_on_masks()

    @property
    def ready(self) -> bool:
        return len(self._introduced) >= (len(self.seat.parties) if self._meets else 1)

    def _agree_on_masks(self) -> bool:
        if not self.ready:
            return False
        if self.seat.settings.sums == "pairwise":
            keys = {name: np.array(key, np.uint64).tobytes() for name, (_, key) in self._introduced.items()}
            self._scheme.mask_with(PairwiseMasks(self.seat.name, self._private_key, keys))
        elif self.seat.settings.sums == "two-tree":
            self._scheme.mask_with(OwnMasks(_entropy(self.seat, "own masks"), self.seat.parties))
        return True

    def weights_of(self, rows: NDArray[np.uint32]) -> NDArray[np.float64] | None:
        """What these rows weigh in the loss; None: 1, or not known here."""
        return None if self.weights is None else self.weights[rows]

    def most_curvature(self) -> float:
        """bound · Λ_m + λ: of this block's part of the objective, in the variables of its steps."""
        penalty = self.seat.training.l2 if self.block.metric is None else 0.0  # a metric's eigenvalue has it in itself
        return self.loss.smoothness * self.block.largest_eigenvalue() + penalty

    def sound_step(self, late: int, alone: bool = False) -> float:
        """1 / L_b from what everybody told of their columns; `alone`: if the others' weights stood still.

        `late`: mini-batches whose steps are made between a product and its use.
        """
        seat = self.seat
        smoothness = Smoothness.joined(told for told, _ in self._introduced.values())
        if alone:
            smoothness = replace(smoothness, whole=self._introduced[seat.name][0].largest_eigenvalue)
        keeps_residuals: bool = seat.settings.keeps_residuals
        l2, batch_size = seat.training.l2, seat.training.batch_size
        least = smoothness.of_batches(self.loss.smoothness, l2, batch_size, late, keeps_residuals)
        return 1 / least if least > 0 else 0.0

    # --- while training ---

    def follow_curvature(self, residuals: NDArray[np.float64], chance: float, caution: float) -> None:
        """Scale this block by the curvature that its rows have.

        Nothing is told anew: the metric is made as long as keeps what the party has told of its columns, so that the
        step of everybody stays what it is, and by `caution` shorter.
        `chance`: how much more of a batch's is allowed for.
        """
        loss, batch_size = self.loss, self.seat.training.batch_size
        curvatures = (1 - LATER_SHARE) * loss.curvatures(residuals) + LATER_SHARE * loss.most_curvature_of_an_output
        found = known_curvature(self.block, curvatures, LATER_LEVERAGE * batch_size)
        # The curvature of a softmax is at most twice that of its outputs apart; an intercept is a block of its own.
        spread = 2.0 if loss.task == "multiclass" else 1.0
        whole, rows = spread * (1 + self.block.has_intercept), chance * spread**2 * found.rows
        own = self._introduced[self.seat.name][0]
        promised = loss.smoothness * (own.largest_eigenvalue + own.longest_rows / batch_size)
        # What a kept residual may push along its row at the longest step that this party can come to take.
        bearable = batch_size / (REVISITS * self.sound_step(0, alone=True))
        factor = min(promised / (whole + rows / batch_size), bearable / max(rows, 1e-300)) / caution
        self.block.adopt(found.metric.lengthened(factor), found.guard, factor * whole)

    # --- evaluation ---

    def _evaluate(self, first_row: int, row_count: int, number: int) -> NDArray[np.float64]:
        """Own products of validation or test rows, for the sum of that number; of no rows, what the objective and the
        stopping rule need of this block."""
        if row_count and first_row < self.seat.validation_rows and self.versions is not None:
            return self._validate(self.versions, first_row, row_count, number)
        if row_count:
            return self.block.test_products(first_row, row_count)
        tolerance: float = self.seat.settings.tolerance
        # In units of the tolerance: in fixed point a square far below 1 would be lost.
        gradient = min(self.gradient_square() / tolerance**2, self.most_gradient) if tolerance else 0.0
        return np.array([[self.block.penalty(), gradient]])

    def _validate(self, versions: Versions, first_row: int, row_count: int, number: int) -> NDArray[np.float64]:
        """With the first rows goes a copy of the weights, with which the others are multiplied, too."""
        if first_row == 0:
            block = self.block
            held = {"weights": torch.from_numpy(block.weights()), "intercept": torch.from_numpy(block.intercept())}
            versions.offer(number, held)
            return block.test_products(first_row, row_count)
        now = self.block.weights(), self.block.intercept()
        self.go_back(versions.newest)
        products = self.block.test_products(first_row, row_count)
        self.block.set_weights(*now)
        return products

    def go_back(self, version: int) -> int:
        """Take up the weights of that version, 0 being the first; `NO_COPY`: there is none, and the last ones stay."""
        if version == 0:
            self.block.set_weights(*self._first)
            return version
        copy = None if self.versions is None else self.versions.take(version)
        if copy is None:
            return NO_COPY
        self.block.set_weights(copy["weights"].numpy(), copy["intercept"].numpy())
        return version

    # --- the model ---

    def models(self) -> dict[str, torch.nn.Module]:
        models: dict[str, torch.nn.Module] = {}
        if self.works:
            weights = torch.from_numpy(self.block.weights().T.copy())
            has_constant = self.seat.intercept or self.block.centred
            shape = (weights.shape[1],) if self.seat.columns is None else self.seat.columns.shape
            bottom = models["bottom"] = linear_bottom(shape, weights.shape[0], has_constant)
            constant = [torch.from_numpy(self.block.constant())] if has_constant else []
            with torch.no_grad():
                for parameter, learnt in zip(bottom.parameters(), [weights, *constant], strict=True):
                    parameter.copy_(learnt)
        if self.seat.is_label_party:
            models["top"] = SumEmbeddings([self.seat.outputs] * self.seat.workers)
        return models

    # --- memory ---

    def _save_introduced(self, state: State) -> None:
        state.values["introduced"] = plain(self._introduced)

    def _load_introduced(self, state: State) -> None:
        introduced = state.values["introduced"]
        # Earlier versions told three numbers; the step that followed from them is in the checkpoint, too.
        self._introduced = {name: (ColumnsTold(*told[-2:]), list(key)) for name, (told, key) in introduced.items()}
        self._agree_on_masks()  # before the sums restore which of them are used up

    MEMORY = (
        group("block", included("block"), custom("_introduced", save=_save_introduced, load=_load_introduced)),
        part("sums"),
        optional_part("versions"),
    )
    DERIVED = ("_scheme", "slow")  # a part of the sums; as the solver's pace says


def batches_per_request(seat: LinearSeat) -> int:
    """Mini-batches of one request; a synchronous schedule shares them one by one."""
    return int(getattr(seat.settings, "batches_per_request", 1))


def most_rows(seat: LinearSeat) -> int:
    """How many rows a sum has: a window of mini-batches, a piece of a full pass, or all of a joint search."""
    window = seat.training.batch_size * batches_per_request(seat)
    most = max(window, min(seat.rows, ROWS_OF_A_PASS))
    return max(most, seat.rows + REMEMBERED) if searches_every(seat) else most


def searches_every(seat: LinearSeat) -> float:
    """Epochs of mini-batches between two joint searches; 0: there are none."""
    training = seat.training
    every: float = seat.settings.searches_every(seat.rows, seat.outputs, training.l1, training.epochs)
    return every


def _bounds(seat: LinearSeat, rows: int, product: float) -> SumLimits:
    """What is kept for a peer leaves room for several of the largest sums of everybody."""
    largest_sum = max(rows, min(max(seat.test_rows, seat.validation_rows), ROWS_A_SUM)) * (8 * seat.outputs + 4)
    kept_bytes = max(MOST_KEPT_BYTES, 4 * len(seat.parties) * largest_sum)
    return SumLimits(rows, seat.test_rows, seat.outputs, product, kept_bytes, seat.validation_rows)


def _entropy(seat: LinearSeat, purpose: str) -> bytes:
    """32 bytes that only this party should know. In a simulation they follow from the seed, as everything does."""
    words: Sequence[Any] = [seed_for(seat.secret, seat.name, purpose, str(part)) for part in range(4)]
    return b"".join(int(word).to_bytes(8, "little") for word in words)
