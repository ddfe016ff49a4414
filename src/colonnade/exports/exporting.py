"""A model in another program's form, by the form's name: what `colonnade export` and `colonnade.export` do."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from colonnade.errors import RunError, SettingsError, unknown_name
from colonnade.exports.coefficients import coefficients_of, write_export
from colonnade.exports.functions import PartyFunction, functions_of
from colonnade.exports.sklearn_objects import write_sklearn
from colonnade.exports.torch_files import exported_program, onnx_file, torchscript_file
from colonnade.files import make_folder
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.saved_model import ModelDescription, SavedModel

Maker = Callable[[PartyFunction, ModelDescription], bytes]

FILES: dict[str, tuple[str, Maker]] = {
    "onnx": (".onnx", onnx_file),
    "torchscript": (".pt", torchscript_file),
    "torch-export": (".pt2", exported_program),
}
"""Forms that take a folder: one file per function of a party."""
FORMS = (*FILES, "sklearn", "coefficients")


def export(model: JointModel | SavedModel | str | Path, to: str, out: str | Path, party: str = "") -> list[Path]:
    """Write a saved model in another form; returns the files.

    `model`: itself, a run directory, or a folder that `save` wrote. `to`: "onnx", "torchscript" or "torch-export", with
    a folder `out`; "coefficients", with a .csv or .json file; "sklearn", with a .json file. `party`: that one's model
    alone; default: all there are. Of a linear model all together are the whole model, one party's is its part.

    >>> import colonnade, tempfile
    >>> data = colonnade.dataset("breast_cancer", parties=2)
    >>> outcome = colonnade.train(data, "afsaga", training=colonnade.Training(epochs=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = export(outcome.model, "coefficients", f"{folder}/weights.csv")
    ...     lines = len(written[0].read_text().splitlines())
    >>> lines  # a heading, 30 columns and a constant
    32
    """
    if to not in FORMS:
        raise unknown_name("form to export to", to, FORMS)
    chosen = model_of(load_model(model) if isinstance(model, str | Path) else model, party)
    out = Path(out)
    if to == "coefficients":
        coefficients_of(chosen).write(out)
        return [out]
    if to == "sklearn":
        write_sklearn(chosen, out)
        return [out]
    parties = chosen.parties.values() if isinstance(chosen, JointModel) else [chosen]
    made = {saved.description.party: _made(saved, to) for saved in parties}  # nothing is written if one is refused
    written: list[Path] = []
    for name, files in made.items():
        written += _write(out / name if isinstance(chosen, JointModel) else out, files)
    return written


def model_of(model: JointModel | SavedModel, party: str) -> JointModel | SavedModel:
    """One party's model of a joint one; `party` empty: as it is."""
    if not party:
        return model
    if isinstance(model, JointModel):
        if party not in model.parties:
            raise unknown_name("party with a model", party, model.parties)
        return model.parties[party]
    if model.description.party != party:
        raise SettingsError(f"This is the model of {model.description.party}, and not of {party}.")
    return model


def _made(saved: SavedModel, to: str) -> dict[str, bytes]:
    ending, make = FILES[to]
    files = {
        f"{function.name.replace(' ', '-')}{ending}": make(function, saved.description)
        for function in functions_of(saved)
    }
    about = msgspec.json.format(msgspec.json.encode(saved.description), indent=1)
    return {**files, "about.json": about}


def _write(folder: Path, files: dict[str, bytes]) -> list[Path]:
    try:
        make_folder(folder)
    except OSError as error:
        raise RunError(f"The folder {folder} could not be made: {error.strerror}. Choose another with --out.") from None
    for name, content in files.items():
        write_export(folder / name, content)
    return [folder / name for name in files]
