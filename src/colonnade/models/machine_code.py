"""How a kernel is compiled: at the first call of any in its file, by Numba, which is loaded no sooner."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])

_kernels: dict[str, list[Callable[..., Any]]] = {}  # of each file


def compiled(function: Function) -> Function:
    """A kernel: compiled at its first call. Numba is loaded when any kernel is first called, and not by networks."""
    within = _kernels.setdefault(function.__module__, [])
    within.append(function)

    @wraps(function)
    def first(*arguments: Any) -> Any:
        names = cast(Any, function).__globals__
        if names[function.__name__] is first:
            for kernel in within:  # all, for they call one another
                names[kernel.__name__] = machine_code(kernel)
        return names[function.__name__](*arguments)

    return cast(Function, first)


def machine_code(function: Function) -> Function:
    """Numba's own, which it keeps on disk, or in this process alone if no disk may be written.

    Sums may be reassociated (they are then vectorised): the same machine gives the same bits, another one may not.
    """
    from numba import njit

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}
    kernel: Function
    try:
        kernel = njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's directory nor the user's cache can be written
        kernel = njit(**options)(function)
    return kernel


def readable(values: npt.ArrayLike, kind: type[np.generic]) -> npt.NDArray[Any]:
    """The values as contiguous memory that kernels may read alone.

    Always read-only, because Numba would compile a kernel once more for arrays that may be written to.
    """
    if type(values) is np.ndarray and values.dtype == kind and values.flags.c_contiguous and values.flags.aligned:
        view = values.view()  # as below, without what `require` costs
    else:
        view = np.require(values, kind, ("C", "ALIGNED")).view()
    view.flags.writeable = False
    return view
