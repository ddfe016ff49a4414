"""Inference from products: a party with one column answers w·x_i for many rows at the same w, so its answers are its
column up to one factor. Whoever can tell the factor knows the column.

B. Gu, A. Xu, Z. Huo, C. Deng, H. Huang, "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", 2021, §IV-B, Definition 5 (ε-approximate inference). A request has weights of its
own; rows that two requests share tell how the weight changed between them, so that all requests can be put together.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.attacks.view import Crossing, PartyView, PooledView, WireView
from colonnade.errors import SettingsError
from colonnade.messages import Introduction, JointStep, MaskedSum, ProductRequest, ProductSum, SharedRequest, SharedStep

Rows = NDArray[np.uint32]
Floats = NDArray[np.float64]
View = PartyView | WireView | PooledView
ONE_COLUMN = 1e-3
"""Below this misfit answers count as proportional: what masks in fixed point round away is far smaller, a second column
far larger."""


@dataclass(frozen=True, eq=False, repr=False)
class InferredColumn:
    """The value that the attack gives each row that it saw an answer for."""

    rows: Rows
    values: Floats
    misfit: float  # how far requests that share rows are from proportional: 0 for one column; NaN: none share rows

    @property
    def looks_like_one_column(self) -> bool:
        """Whether the answers are what one column gives, however many the party says it has."""
        return self.misfit < ONE_COLUMN

    def __repr__(self) -> str:
        return f"InferredColumn({self.rows.size} rows)"


# --- the column up to a factor ----------------------------------------------------------------------------------


def column_up_to_a_factor(view: View, party: str, root: str) -> InferredColumn:
    """What `party` answered in sums for `root`, put together as if it had one column; the largest magnitude is 1.

    `root` is somebody in whose tree nobody is below the party, which everybody knows: then it answers for itself alone.
    Let a request's answers be o_i = w·x_i. If x̂ is known up to a factor for some of its rows, w is Σo_i·x̂_i / Σx̂_i²,
    and o_i / w extends x̂ to its other rows. The request with the most rows comes first.
    """
    pending = [(rows, answers) for rows, answers in answers_of(view.crossings(), party, root) if answers.any()]
    if not pending:
        return InferredColumn(np.zeros(0, np.uint32), np.zeros(0), np.nan)
    largest = max(range(len(pending)), key=lambda at: (pending[at][0].size, at))  # the last one of several
    rows, answers = pending.pop(largest)
    column = np.full(1 + max(int(rows.max()), *(int(own.max()) for own, _ in pending), 0), np.nan)
    column[rows] = answers / np.abs(answers).max()
    unexplained = explained = 0.0
    compared = False
    linked = True
    while pending and linked:
        later = []
        linked = False
        for rows, answers in pending:
            answers = answers / np.abs(answers).max()
            shared = ~np.isnan(column[rows])
            known = column[rows[shared]]
            w = float(answers[shared] @ known) / float(known @ known) if known.any() else 0.0
            if w == 0.0:
                later.append((rows, answers))
                continue
            linked = True
            column[rows[~shared]] = answers[~shared] / w
            if known.size > 1:  # one row fits any weight
                compared = True
                unexplained += float(np.square(answers[shared] - w * known).sum())
                explained += float(np.square(answers[shared]).sum())
        pending = later
    found = np.flatnonzero(~np.isnan(column)).astype(np.uint32)
    misfit = np.sqrt(unexplained / explained) if compared else np.nan
    return InferredColumn(found, column[found] / np.abs(column[found]).max(), float(misfit))


def answers_of(crossings: Iterable[Crossing], party: str, root: str) -> list[tuple[Rows, Floats]]:
    """The rows of each request and what the party sent for them, one number per row.

    Masked answers are numbers too, if random ones. Where the masks that run up a second tree were seen as well, they
    are taken off. With several outputs the largest tells the most: each is the column times a weight of its own.
    """
    asked: dict[int, Rows] = {}
    sent: dict[int, NDArray[Any]] = {}
    masks: dict[int, NDArray[np.uint64]] = {}
    for sender, _, message in crossings:
        match message:
            case ProductRequest() if message.root == root:
                asked[message.number] = message.rows
            case SharedRequest() if sender == root:
                asked[message.number] = message.rows
            case SharedStep() if sender == root:
                asked[message.number] = message.next_rows
            case JointStep() if sender == root:  # products of a direction, which is a weight as good as another
                asked[message.number] = np.arange(len(message.residuals), dtype=np.uint32)
            case ProductSum() if sender == party and message.root == root:
                sent[message.number] = message.total
            case MaskedSum() if sender == party and message.root == root:
                (sent if message.tree == 1 else masks)[message.number] = message.total
    answers = []
    for number, total in sent.items():
        if number not in asked or not total.size:
            continue
        if number in masks:
            total = total - masks[number]  # wraps around, as the ring does
        values = (total.view(np.int64) if total.dtype == np.uint64 else total).astype(np.float64)
        values = values[: asked[number].size]  # a JointStep's answer has sums of the weights below the rows
        strongest = int(np.square(values).sum(0).argmax())
        answers.append((asked[number], values[:, strongest]))
    return answers


# --- the factor -------------------------------------------------------------------------------------------------


def scaled_by_known_rows(found: InferredColumn, known_rows: Rows, known_values: Floats) -> InferredColumn:
    """The adversary knows the column's values in a few rows.

    With several of them it tries itself: if leaving one out and inferring it from the others is no better than taking
    the others' mean, the answers tell nothing, and it guesses the mean.
    """
    place = {int(row): at for at, row in enumerate(found.rows)}
    usable = [at for at, row in enumerate(known_rows) if int(row) in place]
    if not usable:
        raise SettingsError(
            f"None of the {known_rows.size} known rows is among the {found.rows.size} that were answered for with more "
            "than zeros. Grant the adversary more known rows, or look at a longer training."
        )
    o, x = found.values[[place[int(known_rows[at])] for at in usable]], known_values[usable]
    cross, square = float(o @ x), float(o @ o)
    if len(usable) > 1:
        left_out_square = square - np.square(o)
        # With a single answer that is not zero, leaving it out leaves nothing to infer from.
        factors = np.divide(cross - o * x, left_out_square, out=np.zeros_like(o), where=left_out_square > 0)
        means = (x.sum() - x) / (len(usable) - 1)
        if np.square(x - factors * o).sum() >= np.square(x - means).sum():
            return replace(found, values=np.full(found.rows.size, x.mean()))
    return replace(found, values=found.values * (cross / square if square else 0.0))


def scaled_by_range(found: InferredColumn, smallest: float, largest: float) -> InferredColumn:
    """The adversary knows the smallest and the largest value, as of a standardised column or an age: the paper's case.

    The better of the two signs is taken; with a range that is symmetrical about 0 they fit equally well.
    """
    if not found.rows.size:
        return found
    wanted = np.array([smallest, largest])
    ends = np.array([found.values.min(), found.values.max()])
    fits = [(ends @ wanted) / (ends @ ends), (ends[::-1] @ wanted) / (ends @ ends)]
    errors = [np.square(fits[0] * ends - wanted).sum(), np.square(fits[1] * ends[::-1] - wanted).sum()]
    return replace(found, values=found.values * fits[int(np.argmin(errors))])


def scaled_by_introduction(found: InferredColumn, view: View, party: str) -> InferredColumn:
    """The adversary knows nothing beforehand: the largest eigenvalue in the party's Introduction
    is, of one column, the mean of x_i²; the sign is not told."""
    told = [
        m.largest_eigenvalue for sender, _, m in view.crossings() if sender == party and isinstance(m, Introduction)
    ]
    if not told or told[0] <= 0:
        raise SettingsError(
            f"{party!r} has told nobody how large its rows are, so nothing scales its answers: choose an algorithm "
            'that derives its step size from that (step = "auto", no quasi-Newton direction), or grant known rows.'
        )
    if not found.rows.size:
        return found
    return replace(found, values=found.values * np.sqrt(told[0] / np.square(found.values).mean()))
