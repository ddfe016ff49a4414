"""A prediction between the parties of one machine: models and tables in one place, in any runtime but the network's.

It is for trials of what `predict_party` in `prediction_network.py` does between organisations. Where nothing need be
tried, `predict_tables` in `prediction/tables.py` says the same without a message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from colonnade.alignment.settings import AlignmentSettings
from colonnade.data.settings import DataSettings, PartyData
from colonnade.errors import RunError
from colonnade.launch.model_run import ModelRun, parties_of
from colonnade.launch.prediction_seats import write_prediction_seat
from colonnade.prediction.contributions import fixed_point
from colonnade.prediction.conversation import PredictingLabelParty, build_predicting_party
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.own_rows import Wanted, id_form, read_own_rows, wanted_rows
from colonnade.prediction.seat import PredictionSeat
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate


def talk(
    model: JointModel,
    sources: Mapping[str, PartyData],
    data: DataSettings,
    alignment: AlignmentSettings,
    base: Path,
    runtime: Simulate | Processes | Ray,
    wanted: Sequence[str] | None = None,
    seed: int = 0,
) -> tuple[PredictingLabelParty, Wanted]:
    """The label party at its end, when each has answered from its own model and table, and what it asked for.

    `wanted`: ids; None: all of the first of the parties with columns, or of everybody where rows may be absent.
    """
    label_party, parties = model.label_party, parties_of(model)
    data = replace(data, rows="same")  # by ids, also of rows that were aligned for the training
    form = id_form(parties, data, alignment)
    own = {
        name: read_own_rows(name, model.parties[name], sources[name], data, form, base)
        for name in parties
        if name in model.order
    }
    if wanted is None:
        everybodys = dict.fromkeys(one for rows in own.values() for one in rows.ids)
        wanted = [*everybodys] if model.expects_absence else next(iter(own.values())).ids
    asked = wanted_rows(own.get(label_party), wanted, form)
    seats = {
        name: PredictionSeat(
            *(name, label_party, parties, model.parties[name], seed),
            columns=own[name].columns if name in own else None,
            names=None if name == label_party else own[name].names,
            asked=asked.asked if name == label_party else None,
        )
        for name in parties
    }
    built = {name: build_predicting_party(seat) for name, seat in seats.items()}
    masked = fixed_point(model.parties[label_party].description) is not None
    ended = ModelRun(seats, built, label_party, seed, write_prediction_seat, all_meet=masked).ends_well(runtime)
    party = built[label_party]
    if not ended or not isinstance(party, PredictingLabelParty):
        raise RunError("The prediction was stopped before its end.")
    return party, asked
