"""Direct label inference: the label party only sums embeddings, so ∂loss/∂embedding = softmax − one-hot, and the one
negative entry of a row is its label.

C. Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022; with losses instead
of gradients as in G. Wang et al., "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid
Optimization", 2023, §VI-B. The kind of reply decides how a row's gradient is read or estimated, not the algorithm.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colonnade.attacks.view import Crossing, PartyView, WireView
from colonnade.messages import (
    EmbeddingUpload,
    GradientAndBatch,
    GradientReply,
    LossAndBatch,
    LossReply,
    Message,
    PairUpload,
    PerturbedUpload,
    RowLossReply,
    SlopeReply,
    SlopesReply,
)

UPLOADS_READ = (EmbeddingUpload, PerturbedUpload, PairUpload)
REPLIES_READ = (GradientReply, GradientAndBatch, LossReply, LossAndBatch, RowLossReply, SlopeReply, SlopesReply)


class Exchange(NamedTuple):
    """An upload and its reply."""

    party: str
    upload: Any
    reply: Message


@dataclass(frozen=True, eq=False, repr=False)
class InferredLabels:
    """The class index that the attack gives each row it could say something about."""

    rows: NDArray[np.uint32]
    labels: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"InferredLabels({self.rows.size} rows)"


def infer_labels(view: PartyView | WireView, guessed_directions: np.random.Generator | None = None) -> InferredLabels:
    """The label of every row whose exchange is in the view, for a label party that only sums.

    Where losses come back, a row's gradient is estimated as Σ_j (h_j − h)(c_j − c), the slopes times the directions,
    both of which are in the messages. (The paper's factor φ/μ² is positive and changes no label.) A row seen twice has
    its estimates added up.

    Give `guessed_directions` for the paper's eavesdropper, which does not look at c_j − c and draws a
    direction at random.

    With an output for each class the label is the most negative entry; with a single output (two classes) it is 1 where
    the gradient is negative.
    """
    found = [(one.upload.rows, row_gradients(one, guessed_directions)) for one in exchanges(view.crossings())]
    if not found:
        return InferredLabels(np.zeros(0, np.uint32), np.zeros(0, np.int64))
    rows, place = np.unique(np.concatenate([rows for rows, _ in found]), return_inverse=True)
    gradients = np.concatenate([own for _, own in found])
    total = np.zeros((rows.size, gradients.shape[1]))
    np.add.at(total, place, gradients)
    labels = total.argmin(1) if total.shape[1] > 1 else (total[:, 0] < 0).astype(np.int64)
    return InferredLabels(rows, labels)


def exchanges(crossings: Iterable[Crossing]) -> list[Exchange]:
    """Uploads with their replies; one without the other tells nothing here."""
    waiting: dict[tuple[str, int], Any] = {}
    found: list[Exchange] = []
    for sender, receiver, message in crossings:
        if isinstance(message, UPLOADS_READ):
            waiting[sender, message.exchange] = message
        elif isinstance(message, REPLIES_READ):
            upload = waiting.pop((receiver, message.exchange), None)
            if upload is not None:
                found.append(Exchange(receiver, upload, message))
    return found


def row_gradients(exchange: Exchange, guessed: np.random.Generator | None = None) -> NDArray[np.float64]:
    """∂loss/∂embedding of each row, [rows, width]: read, or estimated up to a positive factor."""
    upload = exchange.upload
    match exchange.reply:
        case GradientReply(gradient=gradient) | GradientAndBatch(gradient=gradient):
            read: NDArray[np.float64] = gradient.astype(np.float64)
            return read
        case LossReply(losses=losses) | LossAndBatch(losses=losses):
            slopes = (losses[1:] - losses[0])[:, None]  # one for the whole batch
        case RowLossReply(losses=row_losses):
            slopes = row_losses[1:].astype(np.float64) - row_losses[0]
        case SlopeReply(slope=slope):
            slopes = np.array([[slope]])
        case SlopesReply(slopes=several):
            slopes = several[:, None]
    directions = _directions(upload)
    if guessed is not None:
        directions = guessed.standard_normal(directions.shape)
    estimated: NDArray[np.float64] = (slopes[:, :, None] * directions).sum(0)
    return estimated


def _directions(upload: Any) -> NDArray[np.float64]:
    """μu, or 2μu of a pair, of every point and row: [points, rows, width]."""
    if isinstance(upload, PairUpload):
        apart: NDArray[np.float64] = upload.plus.astype(np.float64) - upload.minus
        directions: NDArray[np.float64] = apart.reshape(-1, upload.rows.size, apart.shape[1])
    else:
        directions = upload.perturbed.astype(np.float64) - upload.embedding
    return directions
