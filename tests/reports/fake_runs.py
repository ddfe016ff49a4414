"""Makes run directories as a run would leave them: seeded, with a slow party and one that goes away."""

import heapq
import json
import random
from pathlib import Path
from typing import Any


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def metric_line(exchange: int, seconds: float | None = None, **others: Any) -> dict[str, Any]:
    """A line of `metrics.jsonl` whose other values follow from the exchange, easy to check by hand."""
    line = {
        "party": "label",
        "exchange": exchange,
        "step": exchange,
        "epoch": exchange / 100,
        "wall_seconds": exchange / 1000,
        "virtual_seconds": seconds,
        "loss": 1.0,
        "metric": None,
        "bytes_up": 200 * exchange,
        "bytes_down": 100 * exchange,
    }
    return line | others


def small_run(directory: Path, accuracies: list[tuple[int, float | None, float]], **summary: Any) -> Path:
    """A run with one evaluation for each (exchange, virtual seconds, accuracy), and its summary."""
    directory.mkdir(parents=True)
    lines = [
        metric_line(exchange, seconds, metric={"accuracy": accuracy}) for exchange, seconds, accuracy in accuracies
    ]
    write_lines(directory / "metrics.jsonl", lines)
    last_exchange, last_seconds, last_accuracy = accuracies[-1]
    told = {
        "algorithm": "vafl",
        "exchanges": last_exchange,
        "wall_seconds": last_exchange / 1000,
        "virtual_seconds": last_seconds,
        "test": {"accuracy": last_accuracy},
        "headline": "accuracy",
        "status": "finished",
    }
    (directory / "summary.json").write_text(json.dumps(told | summary), encoding="utf-8")
    return directory


def full_run(directory: Path, seed: int = 1, synchronous: bool = False, exchanges: int = 400) -> Path:
    """A run with everything recorded. Party 4 is eight times slower than the others; party 2 is away once."""
    chance = random.Random(seed)
    directory.mkdir(parents=True)
    spans = _synchronous_spans(chance, exchanges) if synchronous else _asynchronous_spans(chance, exchanges)
    ends = sorted(span["end"] for span in spans if span["party"] == "label")[:exchanges]
    lines = []
    for exchange, end in enumerate(ends, start=1):
        if exchange % 4 == 0:
            progress = exchange / (160 if synchronous else 240)
            metric = {
                "accuracy": 0.95 - 0.4 * 2.718 ** (-3 * progress) + chance.gauss(0, 0.004),
                "log_loss": 0.2 + 0.5 * 2.718 ** (-3 * progress),
            }
            lines.append(
                metric_line(
                    exchange,
                    end,
                    loss=0.15 + 0.6 * 2.718 ** (-3 * progress) * chance.uniform(0.8, 1.2),
                    metric=metric if exchange % 20 == 0 else None,
                    bytes_up=exchange * 8_320,
                    bytes_down=exchange * 8_256,
                )
            )
    write_lines(directory / "metrics.jsonl", lines)
    write_lines(directory / "timeline.jsonl", spans)
    (directory / "federation.toml").write_text('[algorithm]\nname = "vafl"\n', encoding="utf-8")
    summary = _summary(spans, lines, seed, synchronous)
    (directory / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return directory


def _asynchronous_spans(chance: random.Random, exchanges: int) -> list[dict[str, Any]]:
    """Every party starts again as soon as its own exchange is done; the label party serves whoever comes."""
    spans: list[dict[str, Any]] = []
    done: list[tuple[float, str]] = []

    def work(party: str, start: float) -> None:
        if party == "party2" and 0.05 < start < 0.15:
            spans.append({"party": party, "start": start, "end": start + 0.1, "what": "away"})
            start += 0.1
        seconds = chance.uniform(0.009, 0.012) * (8 if party == "party4" else 1)
        spans.append({"party": party, "start": start, "end": start + seconds, "what": "busy"})
        heapq.heappush(done, (start + seconds, party))

    for place in range(1, 5):
        work(f"party{place}", 0.0)
    label_free = 0.0
    for _ in range(exchanges):
        arrival, party = heapq.heappop(done)
        start = max(arrival, label_free)
        label_free = start + 0.002
        spans.append({"party": "label", "start": start, "end": label_free, "what": "busy"})
        work(party, label_free + 0.001)
    return spans


def _synchronous_spans(chance: random.Random, exchanges: int) -> list[dict[str, Any]]:
    """All parties work on the same batch, and all wait for party 4."""
    spans, now = [], 0.0
    while sum(span["party"] == "label" for span in spans) < exchanges:
        done = []
        for party in ("party1", "party2", "party3", "party4"):
            seconds = chance.uniform(0.009, 0.012) * (8 if party == "party4" else 1)
            spans.append({"party": party, "start": now, "end": now + seconds, "what": "busy"})
            done.append(now + seconds)
        for place in range(4):
            start = max(done) + 0.002 * place
            spans.append({"party": "label", "start": start, "end": start + 0.002, "what": "busy"})
        now = max(done) + 0.009
    return spans


def _parties(spans: list[dict[str, Any]], end: float) -> dict[str, Any]:
    parties: dict[str, Any] = {}
    for name in ("party1", "party2", "party3", "party4", "label"):
        own = [span for span in spans if span["party"] == name]
        busy = sum(span["end"] - span["start"] for span in own if span["what"] == "busy")
        away = sum(span["end"] - span["start"] for span in own if span["what"] == "away")
        parties[name] = {
            "role": "label" if name == "label" else "feature",
            "exchanges": sum(span["what"] == "busy" for span in own),
            "steps": sum(span["what"] == "busy" for span in own),
            "busy_seconds": busy,
            "away_seconds": away,
            "idle_seconds": end - busy - away,
        }
    return parties


def _summary(spans: list[dict[str, Any]], lines: list[dict[str, Any]], seed: int, synchronous: bool) -> dict[str, Any]:
    end = max(span["end"] for span in spans)
    last = lines[-1]
    return {
        "algorithm": "split" if synchronous else "vafl",
        "runtime": "simulate",
        "seed": seed,
        "exchanges": last["exchange"],
        "epochs": last["epoch"],
        "wall_seconds": 0.71,
        "virtual_seconds": end,
        "bytes_up": last["bytes_up"],
        "bytes_down": last["bytes_down"],
        "bytes_by_message": {
            "EmbeddingUpload": last["bytes_up"],
            "GradientReply": last["bytes_down"] - 25_600,
            "StepDone": 25_600,
        },
        "evaluation_bytes": 1_048_576,
        "train_loss": last["loss"],
        "test": next(line["metric"] for line in reversed(lines) if line["metric"]),
        "headline": "accuracy",
        "staleness": {
            "mean": 0.0 if synchronous else 3.1,
            "p95": 0 if synchronous else 9,
            "max": 0 if synchronous else 27,
            "histogram": {
                "edges": [0, 1, 2, 4, 8, 16, 32, 64],
                "counts": [400, 0, 0, 0, 0, 0, 0] if synchronous else [40, 61, 180, 70, 31, 18, 0],
            },
        },
        "parties": _parties(spans, end),
        "privacy": {"claimed": None, "sound": None, "observed": None, "delta": None, "events": []},
        "counts": {"late_rows": 12, "lost_messages": 0},
        "versions": {"colonnade": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "numpy": "2.3.0"},
        "data": {
            "name": "digits",
            "rows": 1437,
            "test_rows": 360,
            "parties": {f"party{place}": {"columns": 16} for place in range(1, 5)},
        },
        "settings": {
            "batch_rows": 64,
            "optimiser": {"name": "sgd", "learning_rate": 0.05},
            "hidden": [64, 32],
            "wait_for_all": synchronous,
        },
        "status": "finished",
    }


NOISED_PRIVACY = {
    "claimed": 2.5,
    "sound": None,
    "observed": None,
    "delta": 1e-5,
    "conditions": "each row is released at most once",
    "events": [
        {
            "party": "party1",
            "mechanism": "gaussian",
            "sensitivity": 1.0,
            "noise": 0.8,
            "releases": 400,
            "rows": 1437,
            "max_releases_per_row": 19,
            "viewers": ["label"],
            "protects": "embedding",
        }
    ],
}
