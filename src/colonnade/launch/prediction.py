"""A prediction between the parties of one machine: models and tables in one place, in any runtime but the network's.

It is for trials of what `predict_party` in `prediction_network.py` does between organisations. Where nothing need be
tried, `predict_tables` in `prediction/tables.py` says the same without a message.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from colonnade.alignment.settings import AlignmentSettings
from colonnade.data.settings import DataSettings, PartyData
from colonnade.errors import RunError, SettingsError
from colonnade.launch.launches import launch_of, placed
from colonnade.launch.prediction_seats import PredictionSeatFiles, write_prediction_seat
from colonnade.launch.run_options import RunOptions
from colonnade.launch.seat_files import Life
from colonnade.party import Party
from colonnade.prediction.contributions import fixed_point
from colonnade.prediction.conversation import PredictingLabelParty, PredictingParty, build_predicting_party
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.own_rows import Wanted, id_form, read_own_rows, wanted_rows
from colonnade.prediction.seat import PredictionSeat
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate


@dataclass(frozen=True)
class PredictionRun:
    """A prediction whose models and tables lie in one place, ready to be run."""

    seats: Mapping[str, PredictionSeat]  # the label party's first
    built: Mapping[str, PredictingParty]
    label_party: str
    seed: int

    @property
    def parties(self) -> Mapping[str, Party]:
        return self.built

    @property
    def members(self) -> Collection[str]:
        return self.seats

    def peers_of(self, name: str) -> tuple[str, ...]:
        masked = fixed_point(self.seats[name].model.description) is not None
        everybody = masked or name == self.label_party
        return tuple(one for one in self.seats if one != name) if everybody else (self.label_party,)

    def write_seat(self, folder: Path, name: str, life: Life) -> None:
        write_prediction_seat(folder, PredictionSeatFiles(self.seats[name], life))


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
    label_party = model.label_party
    if any(name.startswith("bottom of ") for name in model.parties[label_party].modules):
        raise SettingsError("The model was trained by one party on everybody's columns: leave --runtime out.")
    data = replace(data, rows="same")  # by ids, also of rows that were aligned for the training
    parties = (label_party, *(name for name in model.order if name != label_party))
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
    launch = launch_of(PredictionRun(seats, built, label_party, seed), runtime)
    with launch.ready(), placed(launch, dict, RunOptions()) as settled:
        record = launch.run(settled)
    party = built[label_party]
    if not record.finished or not isinstance(party, PredictingLabelParty):
        raise RunError("The prediction was stopped before its end.")
    return party, asked
