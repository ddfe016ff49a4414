"""Models on another device: a second device is made up, and whatever mixes it with main memory is refused.

Nothing here has an accelerator. So `lazy`, of which PyTorch has no kernels here, stands for one: tensors that
say they are there hold their numbers inside, operations on them are done in main memory, and one that is given tensors
of both places fails, as it would on CUDA.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from colonnade import (
    Afsaga,
    BottomSettings,
    Cascaded,
    Centralised,
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
    algorithms,
)
from colonnade.algorithms.row import Family
from colonnade.models import device as devices
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights

AWAY, HERE = torch.device("lazy"), torch.device("cpu")


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

    @property
    def data(self) -> "Away":  # type: ignore[override]
        return self

    @data.setter
    def data(self, other: "Away") -> None:
        self.held = other.held

    def numpy(self, **how: Any) -> Any:
        raise RuntimeError("NumPy was given a tensor that is not in main memory")

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
    if not function._schema.returns:
        return None
    if name.split(".")[1].endswith("_") or "out" in kwargs:  # in place: the very tensor
        return args[0] if "out" not in kwargs else kwargs["out"]
    if torch.device(asked or HERE) != AWAY:
        return given
    return tree_map(
        lambda one: Away(one) if isinstance(one, torch.Tensor) and not isinstance(one, Away) else one, given
    )


class TwoDevices(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.done = 0  # operations on the other device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked = kwargs.get("device")
        flat = tree_flatten((args, kwargs))[0]
        if any(isinstance(one, Away) for one in flat) or (asked is not None and torch.device(asked) == AWAY):
            self.done += 1
            return performed(function, args, kwargs)
        return function(*args, **kwargs)


# --- trainings ----------------------------------------------------------------------------------------------------

MLP = BottomSettings("mlp", hidden=(5,), embedding=4)
TOP = TopSettings("concat-mlp", hidden=(5,))
EPOCH = Training(epochs=0.4, batch_size=8, precision="int8")
OWN_COLUMNS = tiny_data("multiclass", label_party_columns=True)
DP_SGD = PerturbationSettings(
    noise=0.3, inner_noise=0.1, clip=1.0, bottom_update="dp-sgd", update_clip=0.1, update_noise=0.05
)
NOISED = {"noise": 0.5, "clip": 1.0, "server_noise": 0.5}


def tiny(algorithm: Any, data: Any = None, **more: Any) -> TinyFederation:
    given: dict[str, Any] = {"bottom": MLP, "top": TOP, "training": EPOCH, **more}
    return TinyFederation(OWN_COLUMNS if data is None else data, algorithm, **given)


def with_dropout() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 4))


RUNS = {
    "vafl": tiny(Vafl(in_flight=2, warm_up=True, max_delay=4)),
    "vafl, a module": tiny(Vafl(), tiny_data(), bottom=with_dropout()),
    "vafl, DP-SGD": tiny(Vafl(), privacy=DP_SGD),
    "split": tiny(Split()),
    "cascaded": tiny(Cascaded()),
    "cascaded, wide layers": tiny(Cascaded(), training=Training(epochs=0.1, batch_size=1)),
    "zoo": tiny(Zoo()),
    "zoo, weights": tiny(Zoo(perturb="weights", directions=2)),
    "zoo-sync": tiny(ZooSync()),
    "czofo": tiny(Czofo()),
    "dpzv": tiny(Dpzv(directions=2)),
    "dpzv, private": tiny(Dpzv(server_update="private-zo", **NOISED)),
    "dpzv, DP-SGD": tiny(Dpzv(server_update="dp-sgd", **NOISED)),
    "fdml": TinyFederation(tiny_data("multiclass"), Fdml(), training=EPOCH),
    "centralised": tiny(Centralised(), training=Training(epochs=0.4, batch_size=8)),
}


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """`device = "lazy"` is there."""
    monkeypatch.setattr(devices, "DEVICES", (*devices.DEVICES, AWAY.type))
    monkeypatch.setattr(devices, "_available", lambda: ("cpu", AWAY.type))
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *how, **more: None)


def test_no_algorithm_is_left_out() -> None:
    assert {one.name for one in algorithms.which(lambda row: row.family is not Family.LINEAR)} <= set(RUNS)


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("name", RUNS)
def test_no_operation_mixes_devices(name: str, tmp_path: Path) -> None:
    federation = RUNS[name]
    here = federation.run(tmp_path / "here", trace=False)
    with TwoDevices() as mode:
        away = federation.run(tmp_path / "away", trace=False, device=AWAY.type)
    assert mode.done > 100  # operations, so the models were there
    assert_same_bits(weights(here.models), weights(away.models))
    assert not any(isinstance(tensor, Away) for tensor in weights(away.models).values())


@pytest.mark.usefixtures("two_devices")
def test_a_party_comes_back_on_another_device(tmp_path: Path) -> None:
    federation = RUNS["dpzv"]
    whole = federation.run(tmp_path / "whole", trace=False)
    with TwoDevices():
        federation.run(
            tmp_path / "run",
            trace=False,
            device={"party1": AWAY.type},
            stop_requested=StopAfter(9),
            checkpoint_seconds=0.0,
        )
    again = federation.run(tmp_path / "run", trace=False, resume=True)
    assert_same_bits(weights(whole.models), weights(again.models))


def test_a_device_that_is_not_there_is_told(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(SettingsError, match="finds none on this machine"):
            tiny(Vafl()).run(tmp_path / "run", device="cuda")
    with pytest.raises(SettingsError, match="cdua"):
        tiny(Vafl()).run(tmp_path / "run", device="cdua")
    with pytest.raises(SettingsError, match="party9"):
        tiny(Vafl()).run(tmp_path / "run", device={"party9": "cpu"})


@pytest.mark.usefixtures("two_devices")
def test_linear_algorithms_compute_in_main_memory(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has no effect"):
        tiny(Afsaga(), tiny_data()).run(tmp_path / "run", device=AWAY.type)
