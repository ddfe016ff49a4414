"""A run's summary, made from its plan, from what all parties know, and from the record it left."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.algorithms.parts.losses import headline
from colonnade.costs.disclosure import as_sentences, disclosures
from colonnade.costs.guarantees import guarantees, privacy_summary
from colonnade.data.federated import RowCounts
from colonnade.federation.plan import Facts, Plan
from colonnade.launch.run_record import RunRecord
from colonnade.prediction.carried import INCLUDED
from colonnade.reports.summary import DataSummary, Summary, over_all_senders, versions


def summarise(
    plan: Plan,
    facts: Facts,
    record: RunRecord,
    data_name: str,
    settings: dict[str, Any],
    row_counts: Mapping[str, RowCounts],
) -> Summary:
    """The summary.json of a federation, as the label party or whoever started all parties knows it."""
    recorder, counts = record.recorder, record.counts
    label = counts[facts.label_party]
    scored = [line["metric"] for line in recorder.metrics if line["metric"]]
    up, down = recorder.bytes_up_and_down()
    sizes, frames = record.bytes_by_sender(), record.frames_by_sender()
    summary: Summary = {
        "algorithm": plan.chosen.name,
        "runtime": record.runtime,
        "seed": plan.seed,
        "status": record.status,
        "exchanges": label["exchanges"],
        "epochs": label["epochs"],
        "wall_seconds": record.wall_seconds,
        "virtual_seconds": record.virtual_seconds,
        "bytes_up": up,
        "bytes_down": down,
        "bytes_by_message": over_all_senders(sizes),
        "frames_by_message": over_all_senders(frames),
        "evaluation_bytes": sum(sent.evaluation_bytes() for sent in recorder.traffic.values()),
        "retransmitted_bytes": record.retransmitted_bytes,
        "train_loss": label["train_loss"],
        "test": scored[-1] if scored else {},
        "headline": headline(facts.task, plan.training.metric),
        "staleness": label.get("staleness", {"mean": 0.0, "p95": 0, "max": 0}),
        "counts": {
            name: sum(counted.get(name, 0) for counted in counts.values())
            for name in ("late_rows", "abandoned_sums", "fall_backs")
        },
        "parties": {name: _party(name, facts, record) for name in counts},
        "expelled": dict(record.expelled),
        "privacy": _privacy(plan, facts, record),
        "learnt": as_sentences(disclosures(plan, facts, frames, sizes, record.exchanges)),
        "data": _data(facts, data_name, row_counts),
        "settings": settings,
        "versions": versions(),
    }
    if "step_cuts" in label:
        summary["step_cuts"] = label["step_cuts"]
    if "kept" in label:
        summary["validation"], summary["kept"] = label["validation"], label["kept"]
    return summary


def recorded_threshold(metrics: Sequence[Mapping[str, Any]]) -> float:
    """The decision threshold that the last evaluation was made with, where the training chose it."""
    scored = [line["metric"] for line in metrics if line["metric"]]
    return float(scored[-1].get("threshold", 0.5)) if scored else 0.5


def summarise_part(
    name: str, plan: Plan, facts: Facts, record: RunRecord, row_counts: Mapping[str, RowCounts]
) -> dict[str, Any]:
    """What a feature party of a network run knows at its end: its own part."""
    return {
        "algorithm": plan.chosen.name,
        "runtime": record.runtime,
        "party": name,
        "status": record.status,
        **record.counts[name],
        "bytes_sent": sum(record.recorder.traffic_of(name).bytes.values()),
        "wall_seconds": record.wall_seconds,
        "parties": {name: {"role": "feature", **record.times[name]}},
        "expelled": dict(record.expelled),
        "privacy": _privacy(plan, facts, record),
        "data": {"rows_by_party": {party: counts._asdict() for party, counts in row_counts.items()}},
        "versions": versions(),
    }


def _party(name: str, facts: Facts, record: RunRecord) -> dict[str, Any]:
    counted = record.counts[name]
    role = "label" if name == facts.label_party else "feature"
    times = record.times.get(name, {})
    return {"role": role, "exchanges": counted["exchanges"], "steps": counted["steps"], **times}


def _privacy(plan: Plan, facts: Facts, record: RunRecord) -> dict[str, Any]:
    figures = guarantees(plan, facts, record.released, record.randomness)
    summary = privacy_summary(plan, figures, record.privacy_events)
    if any("costs" in one for one in record.released):
        summary["conditions"] = [*summary["conditions"], INCLUDED]
    return summary


def _data(facts: Facts, name: str, row_counts: Mapping[str, RowCounts]) -> DataSummary:
    summary: DataSummary = {
        "name": name,
        "rows": facts.rows,
        "test_rows": facts.test_rows,
        "task": facts.task,
        "parties": {party: {"columns": math.prod(shape)} for party, shape in facts.shapes.items()},
        "rows_by_party": {party: counts._asdict() for party, counts in row_counts.items()},
    }
    if facts.validation_rows:
        summary["validation_rows"] = facts.validation_rows
    return summary
