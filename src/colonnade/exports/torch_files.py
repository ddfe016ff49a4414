"""A party's functions as files that run without Colonnade: ONNX, TorchScript, and PyTorch's own exported programs.

Every file takes any number of rows, and is run once beside the module it was made from before it is kept.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import RunError, SettingsError
from colonnade.exports.functions import PartyFunction
from colonnade.prediction.saved_model import ModelDescription

TOLERANCE = 1e-5
"""How far outputs may differ, of their size: the same sums in another order."""
_TRACED_ROWS = 3
_CHECKED_ROWS = (1, 7)

Run = Callable[[Sequence[Tensor]], Tensor]


def onnx_file(function: PartyFunction, described: ModelDescription) -> bytes:
    """An ONNX model, checked with onnxruntime. Its metadata say whose it is and which columns it takes, in order."""
    runtime = _onnxruntime()
    with _quietly(), _or_refused(function, described.party, "ONNX"):
        made: Any = torch.onnx.export(
            function.module,
            function.example(_TRACED_ROWS),
            input_names=list(function.inputs),
            output_names=[function.output],
            dynamic_shapes=_any_rows(function),
            verbose=False,
        )
    model = made.model_proto
    about = {"party": described.party, "function": function.name, "weights_sha256": described.weights_sha256}
    if function.name == "bottom":
        about["columns"] = "\n".join(described.columns)
    for name, value in about.items():
        model.metadata_props.add(key=f"colonnade.{name}", value=value)
    content: bytes = model.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(rows: Sequence[Tensor]) -> Tensor:
        given = {name: one.numpy() for name, one in zip(function.inputs, rows, strict=True)}
        return torch.from_numpy(np.asarray(session.run(None, given)[0]))

    _check(function, run, described.party, "ONNX")
    return content


def torchscript_file(function: PartyFunction, described: ModelDescription) -> bytes:
    """A traced TorchScript module. PyTorch calls TorchScript deprecated; programs that load it are many."""
    with _quietly(), _or_refused(function, described.party, "TorchScript"):
        traced: Any = torch.jit.trace(function.module, function.example(_TRACED_ROWS))  # type: ignore[no-untyped-call]
        content: bytes = traced.save_to_buffer()

        def run(rows: Sequence[Tensor]) -> Tensor:
            outputs: Tensor = traced(*rows)
            return outputs

        _check(function, run, described.party, "TorchScript")
    return content


def exported_program(function: PartyFunction, described: ModelDescription) -> bytes:
    """What `torch.export` makes, for `torch.export.load`: the successor of TorchScript."""
    with _quietly(), _or_refused(function, described.party, "an exported program"):
        program = torch.export.export(
            function.module, function.example(_TRACED_ROWS), dynamic_shapes=_any_rows(function)
        )
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        module = program.module()
        _check(function, lambda rows: module(*rows), described.party, "an exported program")
    return buffer.getvalue()


def _any_rows(function: PartyFunction) -> Any:
    rows = torch.export.Dim("rows")
    each = tuple({0: rows} for _ in function.inputs)
    return (each,) if function.name == "top" else each  # the top model takes its inputs as *embeddings


def _onnxruntime() -> Any:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise SettingsError(f"ONNX needs the package {error.name}: pip install 'colonnade[export]'.") from None
    return onnxruntime


@contextmanager
def _quietly() -> Iterator[None]:
    """Exporters warn of one another's deprecation, log what packages they do without, and print what they refuse."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), torch.no_grad(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _or_refused(function: PartyFunction, party: str, form: str) -> Iterator[None]:
    """A module of the user's own may do what an exporter cannot follow; its error may be of any kind."""
    try:
        yield
    except (RunError, SettingsError):
        raise
    except Exception as error:
        raise SettingsError(
            f"The {function.name} model of {party} cannot be written as {form}: PyTorch's exporter does not follow "
            f"what its module does ({type(error).__name__}). Branches that depend on values and functions outside of "
            "PyTorch are the usual reason: write the module without them, or take its weights.safetensors."
        ) from None


def _check(function: PartyFunction, run: Run, party: str, form: str) -> None:
    """RunError unless the file says what the module says, for one row and for several."""
    for count in _CHECKED_ROWS:
        rows = function.example(count, seed=count)
        with torch.no_grad():
            expected: Tensor = function.module(*rows)
        found = run(rows)
        scale = 1.0 + float(expected.abs().max())
        if found.shape != expected.shape or not float((found - expected).abs().max()) <= TOLERANCE * scale:
            raise RunError(
                f"The {function.name} model of {party} gives other results as {form} than in PyTorch, so the file was "
                "not written. A module with branches that depend on values, or whose outputs depend on chance, cannot "
                "be exported so."
            )
