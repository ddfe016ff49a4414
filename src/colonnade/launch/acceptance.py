"""Whether a model that was trained anew is to be used in place of the one that it began with.

Both are scored on the same validation rows, those of the new data, which neither has learnt from in this run. The new
one is accepted if it is not worse. Between two models that are equally good, chance decides which seems better: so this
keeps a bad model out, and does not prove a better one.
"""

from typing import TypedDict

from colonnade.algorithms.parts.losses import SMALLER_IS_BETTER, headline, metrics
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError
from colonnade.federation.plan import Plan
from colonnade.prediction.joint_model import JointModel


class Acceptance(TypedDict):
    """Which metric of the validation rows both models have, and whether the new one is accepted."""

    metric: str
    before: float
    after: float
    accepted: bool


def check_comparable(data: FederatedData, start: JointModel | None) -> None:
    """Refuse what cannot be judged, before anything is trained."""
    if start is None:
        raise SettingsError("--accept-if-better compares with the model to begin with, and there is none: give --from.")
    if not data.validation_rows:
        raise SettingsError("--accept-if-better compares on validation rows, and there are none: set data.validation.")


def judged(data: FederatedData, plan: Plan, before: JointModel, after: JointModel) -> Acceptance:
    """Score both, and compare by `training.metric`."""
    metric = headline(data.labels.task, plan.training.metric)
    old, new = (_score(data, model, metric) for model in (before, after))
    accepted = new <= old if metric in SMALLER_IS_BETTER else new >= old
    return Acceptance(metric=metric, before=old, after=new, accepted=bool(accepted))


def _score(data: FederatedData, model: JointModel, metric: str) -> float:
    labels = data.labels
    rows = {party: held.validation for party, held in data.columns.items() if held.validation is not None}
    assert labels.validation is not None
    outputs, unit = model.outputs(rows), model.unit
    if labels.task == "regression":  # each model in a unit of its own
        outputs = (outputs.double() * unit.deviation + unit.mean - labels.mean) / labels.deviation
    return metrics(labels.task, outputs, labels.validation, labels.deviation, unit.threshold)[metric]
