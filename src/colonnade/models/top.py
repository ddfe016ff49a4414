"""The label party's top models, by name: from all parties' embeddings, side by side in one tensor, to the
outputs.

Builders return plain torch modules with arbitrary weights; call `initialise(module, seed)` before use. Any
other `torch.nn.Module` from [rows, sum of the widths] to [rows, outputs] may stand in for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from colonnade.errors import SettingsError, unknown_name
from colonnade.models.bottom import check_sizes, dense_layers
from colonnade.models.layers import Bias, SumEmbeddings

TOPS = ("concat-mlp", "concat-linear", "sum-mlp", "sum")


@dataclass(frozen=True)
class TopSettings:
    """Which top model, and how large.

    `sum` has nothing to learn but a bias: with linear bottoms it is the papers' federated logistic, softmax
    or ridge regression.

    >>> TopSettings(kind="sum-mlp", hidden=(32, 16)).hidden
    (32, 16)
    """

    kind: str = "concat-mlp"
    """`concat-mlp`, `concat-linear`, `sum-mlp` or `sum` (embeddings add up to the outputs)"""
    hidden: tuple[int, ...] = (64,)
    """units of the hidden layers of concat-mlp and sum-mlp"""

    def __post_init__(self) -> None:
        if self.kind not in TOPS:
            raise unknown_name("top model", self.kind, TOPS)
        check_sizes("top", "hidden", self.hidden)

    @property
    def only_sums(self) -> bool:
        """Whether embeddings add up to the outputs, so that bottoms must be built with `outputs` features."""
        return self.kind == "sum"


def build_top(settings: TopSettings, widths: Sequence[int], outputs: int) -> nn.Module:
    """The top model for embeddings of these widths, in the order of the parties.

    >>> build_top(TopSettings("sum"), widths=[1, 1], outputs=1)
    Sequential(
      (0): SumEmbeddings(parties=2, width=1)
      (1): Bias()
    )
    """
    check_sizes("top", "widths", tuple(widths))
    check_sizes("top", "outputs", (outputs,))
    if not widths:
        raise SettingsError("A top model was asked for without any embedding. Name at least one party that sends one.")
    if settings.kind == "sum":
        if any(width != outputs for width in widths):
            raise SettingsError(
                f"The top model 'sum' adds embeddings up to {outputs} outputs, and the embeddings have the "
                f"widths {list(widths)}. Give every bottom the width {outputs}, or choose 'sum-mlp' or "
                "'concat-linear'."
            )
        return nn.Sequential(SumEmbeddings(widths), Bias(outputs))
    if settings.kind == "sum-mlp":
        return nn.Sequential(SumEmbeddings(widths), *dense_layers(settings.hidden, (widths[0],), outputs))
    hidden = settings.hidden if settings.kind == "concat-mlp" else ()
    return nn.Sequential(*dense_layers(hidden, (sum(widths),), outputs))
