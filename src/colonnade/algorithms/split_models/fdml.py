"""FDML: every party predicts for itself, the label party adds the predictions up, weighted; a baseline.

Y. Hu, D. Niu, J. Yang, S. Zhou. "FDML: A Collaborative Machine Learning Framework for Distributed Features", KDD 2019,
as B. Gu et al. compare with it: p_i = Σ_ℓ a_ℓ α(w_ℓ, x_{i,ℓ}) with a_ℓ = d_ℓ/d (23), trained by asynchronous SGD on the
cross entropy of p_i (24) under bounded staleness. α is the prediction of a softmax (logistic, linear) regression. It is
not the joint model: the more parties, the less can a sum of separate predictions express.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from colonnade.algorithms.row import Algorithm, Conversation, Family, Paper
from colonnade.algorithms.split_models import vafl
from colonnade.algorithms.split_models.parts.asynchronous import Asynchronous
from colonnade.algorithms.training import Defaults
from colonnade.messages import EmbeddingUpload, GradientReply
from colonnade.models.layers import SumEmbeddings

label_party = vafl.label_party
feature_party = vafl.feature_party


@dataclass(frozen=True)
class Fdml(Asynchronous):
    """`[algorithm]` with name = "fdml"."""

    max_delay: int = 1000
    shared_rows: bool = True


class WeightedPrediction(nn.Module):
    """a_ℓ α(w_ℓ, x): probabilities of the classes, of the class 1, or the predicted value itself."""

    def __init__(self, shape: tuple[int, ...], share: float, task: str, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(prod(shape), outputs)
        self.share = share
        self.task = task

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(rows.flatten(1))
        if self.task == "multiclass":
            outputs = torch.softmax(outputs, 1)
        elif self.task == "binary":
            outputs = torch.sigmoid(outputs)
        return self.share * outputs


class CombinedPrediction(nn.Module):
    """p = Σ_ℓ a_ℓ α_ℓ as what the loss takes: log p, log(p/(1 − p)), or p. Nothing to learn."""

    def __init__(self, parties: int, task: str, outputs: int) -> None:
        super().__init__()
        self.sum = SumEmbeddings([outputs] * parties)
        self.task = task

    def forward(self, predictions: torch.Tensor) -> torch.Tensor:
        combined: torch.Tensor = self.sum(predictions)
        if self.task == "regression":
            return combined
        # Far from the ends, where a logarithm of float32 would be infinite.
        combined = combined.clamp(1e-6, 1 - 1e-6)
        return combined.log() if self.task == "multiclass" else torch.logit(combined)


ALGORITHM = Algorithm(
    name="fdml",
    summary="asynchronous; a weighted sum of the parties' own predictions (a baseline)",
    family=Family.SPLIT,
    settings=Fdml,
    paper=Paper(
        authors="Y. Hu, D. Niu, J. Yang, S. Zhou",
        title="FDML: A Collaborative Machine Learning Framework for Distributed Features",
        year=2019,
        venue="KDD 2019",
    ),
    defaults=Defaults(optimiser="sgd"),  # a linear model: its gradients need no scaling of their own
    conversation=Conversation(EmbeddingUpload, GradientReply, answers="gradients"),
    label_party=label_party,
    feature_party=feature_party,
    bottom=WeightedPrediction,
    top=CombinedPrediction,
)
