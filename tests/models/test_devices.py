"""Models on another device: a second device is made up, and whatever mixes it with main memory is refused.

Nothing here has an accelerator. So `meta` stands for one: tensors that say they are there hold their numbers inside, every
operation on them is done in main memory, and one that is given tensors of both places fails, as it would on CUDA.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from colonnade import (
    BottomSettings,
    Cascaded,
    Czofo,
    Dpzv,
    Fdml,
    PerturbationSettings,
    SettingsError,
    Split,
    TopSettings,
    Training,
    Vafl,
    Zoo,
    ZooSync,
    train,
)
from colonnade.federation import building
from colonnade.models.device import check_device, prepared_device
from colonnade.testing import TinyFederation, assert_same_bits, tiny_data, weights
from colonnade.testing.hand_turned_parties import HandTurnedParties

AWAY, HERE = torch.device("meta"), torch.device("cpu")


class Away(torch.Tensor):
    """A tensor that says it is on the other device."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Away":
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=AWAY
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return performed(function, args, kwargs or {})


def performed(function: Any, args: Any, kwargs: Any) -> Any:
    """One operation, in main memory; its results are where its tensors were, or where it is asked to put them."""
    tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
    is_away = [isinstance(one, Away) for one in tensors if one.ndim]
    asked = kwargs.get("device")
    name = str(function)
    if any(is_away) and not all(is_away) and "copy_" not in name:
        raise RuntimeError(f"{name} was given tensors of two devices")
    if "_local_scalar_dense" not in name and "equal" not in name and any(isinstance(one, Away) for one in tensors):
        asked = asked or AWAY
    inside = tree_map(lambda one: one.held if isinstance(one, Away) else one, (args, kwargs))
    if "device" in inside[1]:
        inside[1]["device"] = HERE
    given = function(*inside[0], **inside[1])
    if name.split(".")[1].endswith("_") or "out" in kwargs:  # in place: the very tensor
        return args[0] if "out" not in kwargs else kwargs["out"]
    if torch.device(asked or HERE) != AWAY:
        return given
    return tree_map(lambda one: Away(one) if isinstance(one, torch.Tensor) and not isinstance(one, Away) else one, given)


class TwoDevices(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked = kwargs.get("device")
        flat = tree_flatten((args, kwargs))[0]
        if any(isinstance(one, Away) for one in flat) or (asked is not None and torch.device(asked) == AWAY):
            return performed(function, args, kwargs)
        return function(*args, **kwargs)
