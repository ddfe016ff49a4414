"""How a kernel is compiled: at the first call of any in its file, by Numba, which is loaded no sooner.

Parties that start together on one machine would all compile the same at once. One does, the others wait for it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from colonnade.files import alone_in

Function = TypeVar("Function", bound=Callable[..., Any])

_kernels: dict[str, list[Callable[..., Any]]] = {}  # of each file
_in_order: set[Callable[..., Any]] = set()
_compiling = threading.RLock()
_turns: list[Path] = []  # of the thread that compiles, one within the other


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


def compiled_in_order(function: Function) -> Function:
    """The same for loops over a few entries of sparse rows: vectors of four or eight take them twice as long."""
    _in_order.add(function)
    return compiled(function)


def prefetch(values: npt.NDArray[Any], index: np.unsignedinteger[Any]) -> None:
    """In a kernel: ask memory for an entry that will be read soon, and do not wait for it. Elsewhere: nothing."""


@cache
def _teach_prefetch() -> None:
    """Tell Numba what `prefetch` is in machine code."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic, overload

    def instruction(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        at = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        known = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(known, [at, number(0), number(3), number(1)])  # to be read, kept near, of data
        return context.get_dummy_value()

    @intrinsic
    def ask(typing: Any, values: Any, index: Any) -> Any:
        return types.void(values, index), instruction

    @overload(prefetch, strict=False)
    def compiled_prefetch(values: Any, index: Any) -> Any:
        return lambda values, index: ask(values, index)  # type: ignore[call-arg]


def machine_code(function: Function) -> Function:
    """Numba's own, which it keeps on disk, or in this process alone if no disk may be written.

    Sums may be reassociated (they are then vectorised): the same machine gives the same bits, another one may not.
    """
    from numba import njit

    _teach_prefetch()
    fastmath = {"contract"} if function in _in_order else {"contract", "reassoc"}
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    kernel: Function
    try:
        kernel = _compiled_once(njit(cache=True, **options)(function))
    except RuntimeError:  # neither the package's directory nor the user's cache can be written
        kernel = njit(**options)(function)
    return kernel


def _compiled_once(kernel: Any) -> Any:
    """A kernel that one process of this machine compiles, for the types of a call; others then read it from disk."""
    compile_for, place = kernel.compile, Path(kernel.stats.cache_path)

    def compile_once(types: Any) -> Any:
        with _turn_to_compile(place):
            return compile_for(types)

    kernel.compile = compile_once
    return kernel


@contextmanager
def _turn_to_compile(place: Path) -> Iterator[None]:
    """Kernels call one another: who has its turn does not wait for it again. Without a lock several compile it."""
    with _compiling, ExitStack() as held:
        if not _turns:
            with suppress(OSError):
                held.enter_context(alone_in(place))
        _turns.append(place)
        try:
            yield
        finally:
            _turns.pop()


def readable(values: npt.ArrayLike, kind: type[np.generic]) -> npt.NDArray[Any]:
    """The values as contiguous memory that kernels may read alone.

    Always read-only, because Numba would compile a kernel once more for arrays that may be written to.
    """
    if type(values) is np.ndarray and values.dtype == kind and values.flags.aligned and values.ndim:
        view = np.ascontiguousarray(values).view()  # as below, without what `require` costs
    else:
        view = np.require(values, kind, ("C", "ALIGNED")).view()
    view.flags.writeable = False
    return view
