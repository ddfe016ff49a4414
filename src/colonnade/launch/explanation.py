"""An explanation between the parties of one machine: models and tables in one place, in any runtime but the network's.

It is for trials of what `explain_party` in `explanation_network.py` does between organisations. Where nothing need be
tried, `explain_model` in `explanation/explaining.py` says the same without a message.
"""

from secrets import randbits

import numpy as np
import torch

from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.explanation.account import ReleaseAccount
from colonnade.explanation.conversation import build_explaining_party
from colonnade.explanation.explaining import columns_in
from colonnade.explanation.own_columns import chosen_rows, dense_rows, groups_of
from colonnade.explanation.results import Explanation
from colonnade.explanation.seat import ExplanationSeat
from colonnade.explanation.settings import ExplainSettings
from colonnade.explanation.together import explanation_of
from colonnade.launch.explanation_seats import write_explanation_seat
from colonnade.launch.model_run import ModelRun, parties_of
from colonnade.prediction.joint_model import JointModel
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate

_SECRET_BITS = 256


def explain_between(
    model: JointModel,
    data: FederatedData,
    asked: ExplainSettings,
    account: ReleaseAccount,
    runtime: Simulate | Processes | Ray,
) -> Explanation:
    """What the parties come to when each embeds its own rows, and the label party scores them."""
    seats = seats_of(model, data, asked, tells=not account.labels_are_noised)
    senders = [name for name in seats if name != model.label_party]
    for name in senders:
        account.check(name, seats[name].most_releases)
    for name in senders:
        account.spend(name, len(seats[name].places), seats[name].most_releases)
    built = {name: build_explaining_party(seat) for name, seat in seats.items()}
    run = ModelRun(seats, built, model.label_party, asked.seed, write_explanation_seat)
    ended = run.ends_well(runtime)
    found = explanation_of(built, {name: account.epsilon(name) for name in senders}) if ended else None
    if found is None:
        raise RunError("The explanation was stopped before its end.")
    return found


def seats_of(
    model: JointModel, data: FederatedData, asked: ExplainSettings, *, tells: bool = True
) -> dict[str, ExplanationSeat]:
    """Of all parties, the label party's first."""
    label_party, parties = model.label_party, parties_of(model)
    held = getattr(data.labels, asked.part)
    places = chosen_rows(0 if held is None else len(held), asked)
    seats = {}
    for name in parties:
        own = columns_in(model, name, data) if name in model.order else None
        seats[name] = ExplanationSeat(
            *(name, label_party, parties, model.parties[name], asked),
            secret=randbits(_SECRET_BITS),
            seed=asked.seed,
            places=places.astype(np.uint32),
            rows=None if own is None else dense_rows(own, asked.part, places, name),
            groups=() if own is None else groups_of(own),
            labels=held[torch.from_numpy(places)] if name == label_party else None,
            tells=tells,
        )
    return seats
