"""Runs as other programs keep them: MLflow, TensorBoard, Weights & Biases, and sinks of your own."""

from colonnade.tracking.settings import Track
from colonnade.tracking.sinks import Sink, TrackedRun

__all__ = ["Sink", "Track", "TrackedRun"]
