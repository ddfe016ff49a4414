"""A party as its operator's tools see it: `/healthz` for whatever watches over it, `/metrics` for Prometheus.

The party's own thread takes a picture of itself twice a second; the server's threads read the last picture and touch
nothing else of the party, so a scrape neither waits for the training nor disturbs it. Shown are names, counts, sizes
and times; never a column, a label, a weight, a loss or a key. Nobody is asked who they are: bind it to an address that
only its own organisation reaches.
"""

import json
import logging
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from colonnade.errors import ColonnadeError, RunError
from colonnade.runtimes.network.guest import Guest
from colonnade.runtimes.network.host import Host
from colonnade.runtimes.network.settings import parse_address
from colonnade.runtimes.picture import STATUSES, Picture, picture_at_the_door, picture_of_station
from colonnade.runtimes.recorder import Recorder

log = logging.getLogger("colonnade.operations")

PICTURE_SECONDS = 0.5
STALLED_SECONDS = 60.0
"""A party whose thread has not come by for so long is not well. A silent peer does not make this party unhealthy."""
_REQUEST_SECONDS = 10.0


def picture_of(carrier: Host | Guest, recorder: Recorder) -> Picture:
    """What a party is doing; to be called in its own thread."""
    refusals = carrier.refusals if isinstance(carrier, Host) else 0
    if carrier.station is None:
        return picture_at_the_door(carrier.at_the_door, refusals)
    return picture_of_station(carrier.station, recorder, refusals)


# --- the two pages ----------------------------------------------------------------------------------------------


class Operations:
    """The server and what it serves. Bound when it is made; serves while it is entered.

    `address` is host:port. `look` is called by the party's thread, in every turn.
    """

    def __init__(self, party: str, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        host, port = parse_address(address, "[party] metrics", any_port=True)
        self.party = party
        self._clock = clock
        self._began = clock()
        self._picture = Picture()
        self._turned_at: float | None = None
        self._pictured_at = -math.inf
        self._busy_seconds = 0.0
        self._last_event: float | None = None
        self._take: Callable[[], Picture] = Picture
        self._expires: Callable[[], datetime] | None = None
        self._algorithm = ""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Figures(self))
        ProcessCollector(registry=self._registry)
        try:
            self._server = _Server(host, port, self)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not a host"
            raise RunError(
                f"Metrics cannot be served at {address}: {why}. Choose another [party] metrics in this party's "
                'party.toml, or leave it out ("" serves none).'
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="operations", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> "Operations":
        self._thread.start()
        host, port = self._server.server_address[:2]
        place = f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"
        log.info("health and metrics at http://%s/healthz and /metrics", place)
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # --- the party's side ---

    def attend(
        self, take: Callable[[], Picture], expires: Callable[[], datetime], algorithm: str = ""
    ) -> Callable[[], None]:
        """Show this party from now on; returns what its thread is to call in every turn, which calls `take`.

        `expires` is asked at every scrape, in the server's thread: when the party's certificate, as it lies on the
        disk now, ends.
        """
        self._take = take
        self._expires = expires
        self._algorithm = algorithm
        return self.look

    def look(self) -> None:
        """The party has come by: take a picture, unless the last one is fresh."""
        now = self._turned_at = self._clock()
        if now - self._pictured_at < PICTURE_SECONDS:
            return
        self._pictured_at = now
        picture = self._take()
        if picture.busy_seconds != self._busy_seconds:  # it has handled something since the last picture
            self._busy_seconds = picture.busy_seconds
            self._last_event = now
        self._picture = replace(picture, last_event=self._last_event)  # a reader has the old one or this one

    def conclude(self) -> None:
        """The party's part is over: take a last picture; no more turns are to be expected."""
        self._pictured_at = -math.inf
        self.look()
        self._turned_at = math.inf

    # --- the server's side ---

    def health(self) -> tuple[int, dict[str, Any]]:
        """An HTTP status, and the body of /healthz."""
        picture, now = self._picture, self._clock()
        turned_ago = now - (self._began if self._turned_at is None else self._turned_at)
        body: dict[str, Any] = {
            "party": self.party,
            "status": picture.status,
            "connected": picture.connected,
            "absent": list(picture.absent),
            "seconds_since_last_event": None if picture.last_event is None else round(now - picture.last_event, 3),
        }
        if turned_ago <= STALLED_SECONDS:
            return 200, body
        body["fault"] = (
            f"Nothing has moved in this process for {turned_ago:.0f} seconds: one piece of work takes longer, or it "
            "hangs. Look at its log; started again, it goes on where it was."
        )
        return 503, body

    def figures(self) -> bytes:
        """The body of /metrics."""
        return generate_latest(self._registry)

    def families(self) -> Iterator[Metric]:
        """What /metrics shows, from the last picture."""
        picture, now = self._picture, self._clock()
        yield _one("colonnade_info", "Who this is.", 1, self._identity())
        status = GaugeMetricFamily("colonnade_status", "1 for what the party is doing.", labels=["status"])
        for name in STATUSES:
            status.add_metric([name], float(name == picture.status))
        yield status
        yield _counter("exchanges", "Exchanges that this party has taken part in.", picture.exchanges)
        yield _counter("steps", "Updates of this party's model.", picture.steps)
        if picture.epochs is not None:
            yield _one("colonnade_epochs", "Exchanges as epochs.", picture.epochs)
        yield from self._traffic(picture)
        if picture.staleness:
            staleness = GaugeMetricFamily(
                "colonnade_staleness_exchanges", "Age of the others' embeddings when used.", labels=["statistic"]
            )
            for name, value in picture.staleness.items():
                staleness.add_metric([name], value)
            yield staleness
        yield _one("colonnade_queue_depth", "Frames that wait to be handled.", picture.queue_depth)
        yield from self._peers(picture)
        yield _counter("busy_seconds", "Time spent handling events.", picture.busy_seconds)
        yield _counter("restarts", "How often this party was started again in this run.", picture.restarts)
        yield _counter("checkpoints", "Checkpoints written in this run.", picture.checkpoints)
        yield _counter("refusals", "Streams that were refused since this process began.", picture.refusals)
        releases = CounterMetricFamily(
            "colonnade_privacy_releases", "Noised values that were released.", labels=["mechanism", "protects"]
        )
        for key, count in picture.releases.items():
            releases.add_metric(list(key), count)
        yield releases
        # Before the first event since the process began: an alert on it must fire while a party only waits, too.
        ago = now - (self._began if picture.last_event is None else picture.last_event)
        yield _one("colonnade_seconds_since_last_event", "Since something was last handled, or since it began.", ago)
        yield from self._certificate()

    def _identity(self) -> dict[str, str]:
        version = metadata.version("colonnade")
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return {"party": self.party, "algorithm": self._algorithm, "version": version, "python": python}

    def _traffic(self, picture: Picture) -> Iterator[Metric]:
        labels = ["direction", "message"]
        frames = CounterMetricFamily("colonnade_frames", "Messages, by kind.", labels=labels)
        sizes = CounterMetricFamily("colonnade_bytes", "Their bytes.", labels=labels)
        for direction, amounts in (("sent", picture.sent), ("received", picture.received)):
            for message, amount in amounts.items():
                frames.add_metric([direction, message], amount.frames)
                sizes.add_metric([direction, message], amount.bytes)
        yield frames
        yield sizes
        yield _counter("frames_taken", "Messages that were received and handled, of all kinds.", picture.frames_taken)

    def _peers(self, picture: Picture) -> Iterator[Metric]:
        connected = GaugeMetricFamily("colonnade_connected", "1 while a peer is connected.", labels=["peer"])
        frames = GaugeMetricFamily("colonnade_kept_frames", "Sent and not acknowledged.", labels=["peer"])
        sizes = GaugeMetricFamily("colonnade_kept_bytes", "Their bytes.", labels=["peer"])
        again = CounterMetricFamily("colonnade_reconnects", "Since this process began.", labels=["peer"])
        for name, link in picture.links.items():
            connected.add_metric([name], float(link.connected))
            frames.add_metric([name], link.kept_frames)
            sizes.add_metric([name], link.kept_bytes)
            again.add_metric([name], link.reconnects)
        yield from (connected, frames, sizes, again)

    def _certificate(self) -> Iterator[Metric]:
        if self._expires is None:
            return
        try:
            ends = self._expires().timestamp()
        except ColonnadeError:
            ends = 0.0  # it is missing, broken, revoked or over: every alert on its end fires
        yield _one("colonnade_certificate_expiry_timestamp_seconds", "When it ends; 0: it will not do.", ends)


class _Figures(Collector):
    """What the registry asks, at every scrape."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def collect(self) -> Iterable[Metric]:
        return self._operations.families()


def _one(name: str, explanation: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    family = GaugeMetricFamily(name, explanation, labels=list(labels or {}))
    family.add_metric(list((labels or {}).values()), value)
    return family


def _counter(name: str, explanation: str, value: float) -> Metric:
    return CounterMetricFamily(f"colonnade_{name}", explanation, value=value)


# --- the server -------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    """Two pages, one thread per request."""

    daemon_threads = True

    def __init__(self, host: str, port: int, operations: Operations) -> None:
        self.operations = operations
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Pages)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks the name service for a name that nobody uses, and may wait long for it.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a request was not answered", exc_info=True)  # whoever asked went away


class _Pages(BaseHTTPRequestHandler):
    """Answers GET, and nothing else."""

    server: _Server
    server_version = "colonnade"
    sys_version = ""
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        operations = self.server.operations
        match self.path.partition("?")[0]:
            case "/healthz":
                status, body = operations.health()
                self._answer(status, "application/json", json.dumps(body).encode() + b"\n")
            case "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, operations.figures())
            case _:
                self._answer(404, "text/plain; charset=utf-8", b"There are /healthz and /metrics.\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """A scrape every few seconds is no news."""
