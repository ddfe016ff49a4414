"""Runs as other programs keep them: MLflow, TensorBoard, Weights & Biases, and sinks of your own."""

from colonnade.tracking.run import TrackedRun
from colonnade.tracking.settings import Track
from colonnade.tracking.sinks import Sink

__all__ = ["Sink", "Track", "TrackedRun"]
