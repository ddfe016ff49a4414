"""summary.json: one object that says what a run was and what came out. Its keys are part of the interface."""

import platform
from importlib import metadata
from typing import Any


def summarise(
    *,
    algorithm: str,
    runtime: str,
    seed: int,
    status: str,
    label_party: str,
    headline: str,
    counts: dict[str, dict[str, Any]],
    metrics: list[dict[str, Any]],
    books: dict[str, dict[str, float]],
    traffic: dict[str, dict[str, int]],
    evaluation_bytes: int,
    bytes_up: int,
    bytes_down: int,
    retransmitted_bytes: int,
    wall_seconds: float,
    virtual_seconds: float | None,
    privacy_events: list[dict[str, Any]],
    data: dict[str, Any],
    settings: dict[str, Any],
    frames: dict[str, dict[str, int]] | None = None,
    privacy: dict[str, Any] | None = None,
    learnt: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Everything that is known at the end of a run, under the names that the documentation gives.

    `privacy` and `learnt` are what private_figures.py and learnt.py made of it; without them no figure is given.
    """
    label = counts[label_party]
    scored = [line["metric"] for line in metrics if line["metric"]]
    parties = {}
    for name, own in counts.items():
        role = "label" if name == label_party else "feature"
        parties[name] = {
            "role": role,
            "exchanges": own["exchanges"],
            "steps": own["steps"],
            **books.get(name, {}),
        }
    return {
        "algorithm": algorithm,
        "runtime": runtime,
        "seed": seed,
        "status": status,
        "exchanges": label["exchanges"],
        "epochs": label["epochs"],
        "wall_seconds": wall_seconds,
        "virtual_seconds": virtual_seconds,
        "bytes_up": bytes_up,
        "bytes_down": bytes_down,
        "bytes_by_message": _by_message(traffic),
        "frames_by_message": _by_message(frames or {}),
        "evaluation_bytes": evaluation_bytes,
        "retransmitted_bytes": retransmitted_bytes,
        "train_loss": label["train_loss"],
        "test": scored[-1] if scored else {},
        "headline": headline,
        "staleness": label.get("staleness", {"mean": 0.0, "p95": 0, "max": 0}),
        "counts": {name: sum(own.get(name, 0) for own in counts.values()) for name in ("late_rows", "abandoned_sums")},
        "parties": parties,
        "privacy": privacy or _privacy(privacy_events),
        "learnt": learnt or [],
        "data": data,
        "settings": settings,
        "versions": versions(),
    }


def _by_message(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """Over all senders."""
    total: dict[str, int] = {}
    for sent in counts.values():
        for kind, count in sent.items():
            total[kind] = total.get(kind, 0) + count
    return dict(sorted(total.items()))


def _privacy(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Which noised values were released, where nobody has computed what that costs."""
    said = "No value was noised: nothing in this run is differentially private (ε = ∞)."
    if events:
        said = "Values were noised; what that costs was not computed here, so nothing is claimed (ε = ∞)."
    unknown = dict.fromkeys(("claimed", "sound", "conditional", "observed", "delta", "formula"))
    return {**unknown, "conditions": [said], "unprotected": [], "figures": [], "events": events}


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    names = ("colonnade", "torch", "numpy")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
