"""A training that begins with weights of an earlier one: what fits is taken over, what does not is said in words.

Columns are matched by name. One that is new begins with weights of 0, and so does what the top model does with the
embedding of a party that is new: the joint model first says what it said. Each party needs its own part alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade.data.federated import Labels
from colonnade.errors import SettingsError
from colonnade.federation.plan import Facts, embedding_order

Tensors = Mapping[str, torch.Tensor]
_NAMED = 5
"""Columns that a sentence names."""


@dataclass(frozen=True)
class StartSettings:
    """`[start]`: the model that a training begins with."""

    model: str = ""
    """a run's directory, or the folder of its models; `""`: fresh weights. `colonnade run --from RUN` sets it"""
    preparation: Literal["keep", "fit"] = "keep"
    """columns of own tables that the model knows are prepared as it learnt them (`keep`), or learnt anew from these
    train rows (`fit`)"""


@dataclass(frozen=True)
class Start:
    """One party's part of a model to begin with; without tensors: a party that the model does not know."""

    tensors: Tensors = field(default_factory=dict)  # "bottom.0.weight", "top.0.weight"
    columns: tuple[str, ...] = ()  # that its bottom model takes
    order: tuple[str, ...] = ()  # whose embeddings its top model takes
    widths: Mapping[str, int] = field(default_factory=dict)
    task: str = ""
    classes: tuple[str | int | float, ...] = ()  # at the label party
    unit: tuple[float, float] = (0.0, 1.0)  # at the label party: mean and deviation of a label that is a number

    def of(self, model: str) -> dict[str, torch.Tensor]:
        """The tensors of one of its models, by their names there."""
        return {key.removeprefix(f"{model}."): one for key, one in self.tensors.items() if key.startswith(f"{model}.")}


def labels_to_start_with(labels: Labels, start: Start) -> Labels:
    """The labels in the unit of the model's outputs. SettingsError if it predicts something else."""
    if start.task != labels.task or [*start.classes] != [*labels.classes]:
        raise SettingsError(
            f"The model to start from predicts {_task(start.task, len(start.classes))}; the labels of these data are "
            f"{_task(labels.task, len(labels.classes))}, or have other names. Start without a model (leave --from out)."
        )
    if labels.task != "regression":
        return labels
    mean, deviation = start.unit

    def in_unit(part: torch.Tensor) -> torch.Tensor:
        return ((part.double() * labels.deviation + labels.mean - mean) / deviation).to(part.dtype)

    apart = None if labels.validation is None else in_unit(labels.validation)
    train, test = in_unit(labels.train), in_unit(labels.test)
    return replace(labels, train=train, test=test, validation=apart, mean=mean, deviation=deviation)


def _task(task: str, classes: int) -> str:
    return f"{classes} classes" if task == "multiclass" else {"binary": "two classes"}.get(task, "numbers")


# --- models -----------------------------------------------------------------------------------------------------


def start_bottom(module: nn.Module, start: Start, columns: Sequence[str], party: str, only_sums: bool) -> None:
    """Give a bottom model the weights to start with. `only_sums`: its outputs are added to the joint model's."""
    known = start.of("bottom")
    if not start.tensors:
        last = [one for one in module.modules() if isinstance(one, nn.Linear)][-1:]
        for layer in last if only_sums else []:
            nn.init.zeros_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        return
    what = f"The bottom model of {party}"
    if tuple(columns) != start.columns:
        key = _first_layer(module, len(columns))
        if key is None or key not in known or known[key].shape[1] != len(start.columns):
            raise SettingsError(
                f"{what} takes other columns than the model to start from ({changes(start.columns, columns)}), and "
                "only a first layer that is linear can be matched by column. Give it the same columns, or begin anew."
            )
        known[key] = _matched(known[key], start.columns, columns, party)
    _load(module, known, what, "[bottom]")


def start_top(module: nn.Module, start: Start, facts: Facts) -> None:
    """Give the top model the weights to start with; what it does with a party that is new begins at 0."""
    order, known = embedding_order(facts), start.of("top")
    gone = [party for party in start.order if party not in order]
    if gone:
        raise SettingsError(
            f"The model to start from needs {' and '.join(gone)}, which this federation has no columns of. Let "
            "everybody take part who did, or begin anew."
        )
    changed = [party for party in start.order if start.widths.get(party) != facts.widths[party]]
    if changed and start.widths:
        raise SettingsError(
            f"The embeddings of {' and '.join(changed)} have another width than in the model to start from: keep "
            "[bottom] embedding as it was."
        )
    key = _first_layer(module, sum(facts.widths[party] for party in order))
    if order != start.order and key is not None and key in known and start.widths:
        places = _places(start.order, start.widths)
        old, pieces = known[key], []
        for party in order:
            held = places.get(party)
            pieces.append(old.new_zeros(old.shape[0], facts.widths[party]) if held is None else old[:, held])
        known[key] = torch.cat(pieces, 1)
    _load(module, known, "The top model", "[top]")


def start_block(
    start: Start, columns: Sequence[str], party: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """A linear model's weights [columns, outputs] and its constant; None: zeros, of a party that is new."""
    known = start.of("bottom")
    weights = next((one for key, one in known.items() if key.endswith("weight")), None)
    if weights is None or weights.ndim != 2 or len(known) > 2 or weights.shape[1] != len(start.columns):
        if not start.tensors or (not known and not columns):
            return None
        raise SettingsError(
            f"The model to start from has no linear block of {party}: start from a model of a linear algorithm, or "
            "begin anew."
        )
    matched = _matched(weights, start.columns, columns, party).double().numpy().T.copy()
    constant = next((one for key, one in known.items() if key.endswith("bias")), torch.zeros(matched.shape[1]))
    return matched, constant.double().numpy()


def _first_layer(module: nn.Module, inputs: int) -> str | None:
    """The name of the weights that all inputs go through first, if that is a linear layer."""
    for name, one in module.named_modules():
        if isinstance(one, nn.Linear):
            return f"{name}.weight".removeprefix(".") if one.in_features == inputs else None
        if next(one.children(), None) is None and any(True for _ in one.parameters(recurse=False)):
            return None
    return None


def _matched(weights: torch.Tensor, before: Sequence[str], now: Sequence[str], party: str) -> torch.Tensor:
    """Weights [outputs, inputs] of the columns now, by name; 0 of those that are new."""
    places = {name: place for place, name in enumerate(before)}
    if now and not any(name in places for name in now):
        raise SettingsError(f"{party} has none of the columns of the model to start from: begin anew.")
    found = weights.new_zeros(weights.shape[0], len(now))
    for place, name in enumerate(now):
        if name in places:
            found[:, place] = weights[:, places[name]]
    return found


def _places(order: Sequence[str], widths: Mapping[str, int]) -> dict[str, slice]:
    ends = [*accumulate(widths[party] for party in order)]
    return {party: slice(end - widths[party], end) for party, end in zip(order, ends, strict=True)}


def _load(module: nn.Module, known: Tensors, what: str, setting: str) -> None:
    wanted = {name: tuple(one.shape) for name, one in module.state_dict().items()}
    given = {name: tuple(one.shape) for name, one in known.items()}
    if wanted != given:
        differs = next(iter(name for name in {**wanted, **given} if wanted.get(name) != given.get(name)))
        raise SettingsError(
            f"{what} differs from that of the model to start from: {differs} has the shape "
            f"{wanted.get(differs, 'none')} here and {given.get(differs, 'none')} there. Keep {setting} as it was, or "
            "begin anew."
        )
    module.load_state_dict(dict(known))


def changes(before: Sequence[str], now: Sequence[str]) -> str:
    """Which columns are new, and which are gone, in words."""
    held, holds = {*before}, {*now}
    new, gone = [name for name in now if name not in held], [name for name in before if name not in holds]
    told = [f"{word} {_some(names)}" for word, names in (("new:", new), ("gone:", gone)) if names]
    return "; ".join(told) or "in another order"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
