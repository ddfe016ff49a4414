"""Where a party's models compute: in main memory, or on an accelerator.

A network takes tensors of main memory and gives them back there; what it keeps between forward and backward, its
parameters and what an optimiser remembers of them are where it computes. States, checkpoints and saved models hold
tensors of main memory alone, so a party may come back on another device. Random numbers are drawn in main memory: the
same ones everywhere.
"""

import os

import torch
from torch import Tensor

from colonnade.errors import SettingsError, unknown_name

AUTO = "auto"
CPU = torch.device("cpu")
CPU_ALONE = ("cpu", AUTO)
"""What may be asked of a party that computes without PyTorch."""
DEVICES = ("cpu", "cuda", "mps", AUTO)
"""What a party may choose from; auto: an accelerator if there is one."""


def check_device(name: str) -> None:
    """Refuse a name that is none, and a device that this machine, or this build of PyTorch, does not have."""
    if name not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    there = _available()
    if name not in (AUTO, *there):
        raise SettingsError(
            f'device = "{name}", but PyTorch {torch.__version__} finds none on this machine; it has '
            f'{" and ".join(there)}. Use "auto", or install a build of PyTorch for that device.'
        )


def prepared_device(name: str) -> torch.device:
    """The device of that name, "auto" being the best that there is; an accelerator is asked to repeat itself."""
    device = torch.device(_available()[-1] if name == AUTO else name)
    if device != CPU:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS promises no repetition
        torch.use_deterministic_algorithms(True, warn_only=True)
    return device


def check_has_doubles(device: torch.device, party: str) -> None:
    """Refuse a device that cannot sum clipped gradients so that one row does not drown."""
    if device.type == "mps":
        raise SettingsError(
            f'DP-SGD sums in double precision, which device = "mps" of {party} does not have. Use "cpu" or "cuda".'
        )


def _available() -> tuple[str, ...]:
    """The best comes last."""
    found = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available()}
    return ("cpu", *(name for name, is_there in found.items() if is_there))


def brought_to(device: torch.device, tensor: Tensor) -> Tensor:
    """The tensor on that device. Towards CUDA the copy goes on beside what follows, from memory that cannot move."""
    if device.type == "cuda" and tensor.device == CPU:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
