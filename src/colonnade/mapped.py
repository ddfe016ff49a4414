"""Arrays that are larger than memory should hold: zeros in a file without a name, memory-mapped.

What is not looked at need not be in memory: the system writes such pages out when it wants their place. The file is
gone when the array is, also if the process is killed, so nothing private stays on the disk. Its room is reserved at
once: a disk that is full is a sentence here, and not the process's death at some later write.
"""

import mmap
import os
import tempfile
from math import prod

import numpy as np
from numpy.typing import DTypeLike, NDArray

from colonnade.errors import RunError, SettingsError


def zeros(shape: tuple[int, ...], dtype: DTypeLike, mapped_share: float, what: str) -> NDArray[np.generic]:
    """Zeros in memory, or in a file where they would take more than this share of the machine's memory."""
    size = prod(shape) * np.dtype(dtype).itemsize
    if size <= mapped_share * memory_bytes():
        return np.zeros(shape, dtype)
    return mapped_zeros(shape, dtype, what)


def mapped_zeros(shape: tuple[int, ...], dtype: DTypeLike, what: str) -> NDArray[np.generic]:
    """The same, in a file whatever the size."""
    size = prod(shape) * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    try:
        with tempfile.TemporaryFile(prefix="colonnade-") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)  # a system that cannot reserve room: the promise above is not kept there
            held = mmap.mmap(file.fileno(), size)  # which keeps the file after this is closed
    except OSError as error:
        raise RunError(
            f"{what} would take {size / 1e9:.1f} GB, and {tempfile.gettempdir()} has no room for a file of that size "
            f"({error.strerror}). Set TMPDIR to a folder on a larger disk, or raise mapped_share."
        ) from error
    return np.frombuffer(held, dtype).reshape(shape)


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_share(share: float, setting: str) -> None:
    """A share of memory from 0, which maps everything, to 1 and above, which maps what would not fit at all."""
    if not 0 <= share < float("inf"):
        raise SettingsError(f"{setting} is {share}; it must be a share of memory, 0 or more, such as 0.25.")
