"""What a serving party counts, for Prometheus. Names, counts and times; never an id, a column or a prediction."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

MEDIA_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServingMetrics:
    """Of one serving process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self.requests = Counter("colonnade_serve_requests", "HTTP requests by status", ["status"], registry=own)
        self.seconds = Histogram("colonnade_serve_seconds", "Time to an answer", buckets=_SECONDS, registry=own)
        self.rows = Counter("colonnade_serve_rows", "Rows by what became of them", ["outcome"], registry=own)
        self.batch_rows = Histogram("colonnade_serve_batch_rows", "Rows of a merged batch", buckets=_ROWS, registry=own)
        self.late = Counter(
            "colonnade_serve_late", "Batches that did not wait for a party any longer", ["party"], registry=own
        )
        self.connected = Gauge("colonnade_serve_connected", "Whether a party is there", ["party"], registry=own)
        self.cached = Counter(
            "colonnade_serve_cached", "Rows of a party that came from the cache", ["party"], registry=own
        )
        self.version = Gauge("colonnade_serve_version", "The version that answers", ["version"], registry=own)
        self.shadow_rows = Counter("colonnade_serve_shadow_rows", "Rows scored by the shadow, too", registry=own)
        self.shadow_difference = Counter(
            "colonnade_serve_shadow_difference", "Sum over rows of the largest difference of an output", registry=own
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
