"""Model completion: after the training, a feature party puts a head on its own bottom model and trains both on a few
labelled rows; the rest of its training rows are then classified.

C. Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022. Theirs is
semi-supervised; this one is plain supervised fine-tuning, a lower bound on what such a party can do.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade.attacks.view import PartyView
from colonnade.errors import SettingsError


@dataclass(frozen=True)
class Completion:
    """How the completed model is trained."""

    steps: int = 200  # over all labelled rows at once: they are few
    learning_rate: float = 0.01  # of the head; the bottom model, trained already, learns at a hundredth of it
    l2: float = 0.001

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.learning_rate > 0 or not self.l2 >= 0:
            raise SettingsError("A completion needs steps and a learning rate above 0, and l2 of at least 0.")


PLAIN = Completion()


def complete_model(
    view: PartyView,
    known_rows: NDArray[np.uint32],
    known_labels: NDArray[np.int64],
    classes: int,
    settings: Completion = PLAIN,
    seed: int = 0,
) -> NDArray[np.int64]:
    """The class of each of the party's training rows, as the completed model sees it.

    The adversary is granted its own columns and bottom model, which it has, and the labels of `known_rows`, which the
    literature grants it: it may know a few of the individuals.
    """
    if view.columns is None or view.model is None:
        raise SettingsError(
            f"The view of {view.party!r} holds no columns or no model of its own; a party that completes its model "
            "needs both."
        )
    if known_rows.size == 0 or known_rows.size != known_labels.size:
        raise SettingsError(f"{known_rows.size} rows and {known_labels.size} labels are known; give one label per row.")
    bottom = deepcopy(view.model)
    with torch.no_grad():
        before = bottom(view.columns)
    # A trained embedding may have any scale; the head should not have to learn it from a few rows.
    mean, deviation = before.mean(0), before.std(0).clamp_min(1e-6)
    head = nn.Linear(before.shape[1], classes)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        head.weight.normal_(0.0, 0.01, generator=generator)
        head.bias.zero_()
    rows, labels = view.columns[torch.from_numpy(known_rows.astype(np.int64))], torch.from_numpy(known_labels)
    groups = [
        {"params": list(head.parameters()), "lr": settings.learning_rate},
        {"params": list(bottom.parameters()), "lr": settings.learning_rate / 100},
    ]
    optimiser = torch.optim.Adam(groups, weight_decay=settings.l2)
    for _ in range(settings.steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(head((bottom(rows) - mean) / deviation), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        outputs = head((bottom(view.columns) - mean) / deviation)
    predicted: NDArray[np.int64] = outputs.argmax(1).numpy()
    return predicted
