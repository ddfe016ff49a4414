"""What an explaining party's process or actor is given, as files: its own model and rows, and what all agreed on."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from colonnade.explanation.conversation import ExplainingParty, build_explaining_party
from colonnade.explanation.ends import ColumnGroup
from colonnade.explanation.seat import ExplanationSeat
from colonnade.explanation.settings import ExplainSettings
from colonnade.files import json_of, make_folder, read_private, write_private
from colonnade.launch.model_seats import ModelSeatFiles
from colonnade.launch.seat_files import Life, write_tensors
from colonnade.prediction.saved_model import read_model
from colonnade.settings import as_values, build

FACTS = "explanation.json"
_ROWS = "rows.safetensors"


class ExplanationSeatFiles(ModelSeatFiles[ExplanationSeat]):
    """A folder's content."""

    def build(self) -> ExplainingParty:
        return build_explaining_party(self.seat)


def write_explanation_seat(folder: Path, seat: ExplanationSeat, life: Life) -> None:
    """Put a seat into a new folder that only this user may enter."""
    make_folder(folder, exist_ok=False)
    seat.model.save(folder / "model")
    held = {"rows": seat.rows, "labels": seat.labels, "places": torch.from_numpy(seat.places.astype(np.int64))}
    write_tensors(folder / _ROWS, {name: one for name, one in held.items() if one is not None})
    content = {
        "name": seat.name,
        "label_party": seat.label_party,
        "parties": seat.parties,
        "asked": asdict(seat.asked),
        "secret": str(seat.secret),
        "seed": str(seat.seed),
        "groups": [[group.name, group.places] for group in seat.groups],
        "tells": seat.tells,
        "life": as_values(life),
    }
    write_private(folder / FACTS, json.dumps(content).encode())


def read_explanation_seat(folder: Path) -> ExplanationSeatFiles:
    """What `write_explanation_seat` wrote."""
    content = json_of(read_private(folder / FACTS))
    held = load_file(folder / _ROWS)
    seat = ExplanationSeat(
        *(content["name"], content["label_party"], tuple(content["parties"])),
        model=read_model(folder / "model"),
        asked=ExplainSettings(**content["asked"]),
        secret=int(content["secret"]),
        seed=int(content["seed"]),
        places=held["places"].numpy().astype(np.uint32),
        rows=held.get("rows"),
        groups=tuple(ColumnGroup(name, tuple(places)) for name, places in content["groups"]),
        labels=held.get("labels"),
        tells=content["tells"],
    )
    return ExplanationSeatFiles(seat, build(Life, content["life"], "life"))
