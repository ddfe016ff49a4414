"""Parties of one machine that have a trained model in common, ready to predict with it or to explain it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from colonnade.errors import SettingsError
from colonnade.launch.launches import launch_of, placed
from colonnade.launch.model_seats import Seated
from colonnade.launch.run_options import RunOptions
from colonnade.launch.seat_files import Life
from colonnade.party import Party
from colonnade.prediction.joint_model import JointModel
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate


@dataclass(frozen=True)
class ModelRun(Generic[Seated]):
    """A prediction or an explanation whose models and tables lie in one place."""

    seats: Mapping[str, Seated]  # the label party's first
    built: Mapping[str, Party]
    label_party: str
    seed: int
    write: Callable[[Path, Seated, Life], None]
    all_meet: bool = False  # feature parties talk to one another, too

    @property
    def parties(self) -> Mapping[str, Party]:
        return self.built

    @property
    def members(self) -> Collection[str]:
        return self.seats

    def peers_of(self, name: str) -> tuple[str, ...]:
        everybody = self.all_meet or name == self.label_party
        return tuple(one for one in self.seats if one != name) if everybody else (self.label_party,)

    def write_seat(self, folder: Path, name: str, life: Life) -> None:
        self.write(folder, self.seats[name], life)

    def ends_well(self, runtime: Simulate | Processes | Ray) -> bool:
        """Run it; whether it came to its end. Its parties are then as they are at the end."""
        launch = launch_of(self, runtime)
        with launch.ready(), placed(launch, dict, RunOptions()) as settled:
            return launch.run(settled).finished


def parties_of(model: JointModel) -> tuple[str, ...]:
    """Who takes part, the label party first. Refuse a model that one party trained alone."""
    if any(name.startswith("bottom of ") for name in model.parties[model.label_party].modules):
        raise SettingsError("The model was trained by one party on everybody's columns: leave --runtime out.")
    return (model.label_party, *(name for name in model.order if name != model.label_party))
