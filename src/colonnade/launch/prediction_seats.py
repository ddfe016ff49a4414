"""What a predicting party's process or actor is given, as files: its own model and rows, and who takes part."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from colonnade.files import json_of, make_folder, read_private, write_private
from colonnade.launch.model_seats import ModelSeatFiles
from colonnade.launch.seat_files import Life, write_tensors
from colonnade.prediction.conversation import PredictingParty, build_predicting_party
from colonnade.prediction.saved_model import read_model
from colonnade.prediction.seat import AskedRows, PredictionSeat
from colonnade.settings import as_values, build

FACTS = "prediction.json"
_ROWS = "rows.safetensors"


class PredictionSeatFiles(ModelSeatFiles[PredictionSeat]):
    """A folder's content."""

    def build(self) -> PredictingParty:
        return build_predicting_party(self.seat)


def write_prediction_seat(folder: Path, seat: PredictionSeat, life: Life) -> None:
    """Put a seat into a new folder that only this user may enter."""
    make_folder(folder, exist_ok=False)
    asked = seat.asked
    seat.model.save(folder / "model")
    arrays: dict[str, NDArray[Any] | None] = {"names": seat.names}
    if asked is not None:
        arrays |= {"asked names": asked.names, "own rows": asked.own_rows}
    tensors = {name: torch.from_numpy(held.view(np.int64)) for name, held in arrays.items() if held is not None}
    if seat.columns is not None:
        tensors["columns"] = seat.columns
    write_tensors(folder / _ROWS, tensors)
    content = {
        "name": seat.name,
        "label_party": seat.label_party,
        "parties": seat.parties,
        "secret": seat.secret,
        "life": as_values(life),
    }
    write_private(folder / FACTS, json.dumps(content).encode())


def read_prediction_seat(folder: Path) -> PredictionSeatFiles:
    """What `write_prediction_seat` wrote. Rows of one machine are known by their ids."""
    content = json_of(read_private(folder / FACTS))
    tensors = load_file(folder / _ROWS)
    arrays = {name: held.numpy() for name, held in tensors.items() if name != "columns"}
    asked = None
    if "own rows" in arrays:
        asked = AskedRows(arrays["asked names"].view(np.uint64), None, arrays["own rows"])
    names = arrays.get("names")
    seat = PredictionSeat(
        *(content["name"], content["label_party"], tuple(content["parties"])),
        model=read_model(folder / "model"),
        secret=content["secret"],
        columns=tensors.get("columns"),
        names=None if names is None else names.view(np.uint64),
        asked=asked,
    )
    return PredictionSeatFiles(seat, build(Life, content["life"], "life"))
