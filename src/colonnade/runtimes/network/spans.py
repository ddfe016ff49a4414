"""Traces of exchanges across parties, for OpenTelemetry: who worked on which exchange when, and nothing else.

Each exchange, and each sum of a linear federation, is a trace of its own. All parties know its id without a word: it
follows from the run's id, which the label party draws and tells in the handshake, from whose exchange it is, and from
its number. So nothing is added to messages, and a share of the exchanges is the same share at every party. A span has
names, kinds of messages and times; no row, no loss, no number that was computed.

The package is an extra. It is imported when a party is given a collector, and not before.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any, cast

from colonnade.errors import SettingsError
from colonnade.messages import Message
from colonnade.party import Effect, Event, Party, Received, Send

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger("colonnade.spans")

END_SECONDS = 3.0


class Spans:
    """The spans of one party. `begin` tells the run's id and from when on events are not repetitions of a journal."""

    def __init__(
        self, party: str, label_party: str, share: float, exporter: "SpanExporter", at_once: bool = False
    ) -> None:
        """`share` of the exchanges are told. `at_once`: not in batches by a thread of their own; for tests."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        self._party = party
        self._label_party = label_party
        self._below = int(share * 2**64)
        self._run = ""
        self._latest = inf
        self._ids = _ids()
        resource = Resource({"service.name": "colonnade", "service.instance.id": party})
        self._provider = TracerProvider(id_generator=self._ids, resource=resource, shutdown_on_exit=False)
        quiet = _quiet(exporter)
        self._provider.add_span_processor(SimpleSpanProcessor(quiet) if at_once else BatchSpanProcessor(quiet))
        self._tracer = self._provider.get_tracer("colonnade")

    def begin(self, run: str, now: float) -> None:
        self._run, self._latest = run, now

    def end(self) -> None:
        """Send what is left, for a few seconds at most; OpenTelemetry itself would try for longer."""
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(END_SECONDS)

    def handled(self, event: Event, effects: Sequence[Effect], began: int, ended: int) -> None:
        """What was done for an event, between two moments in nanoseconds."""
        if event.now < self._latest or not self._run:
            return  # a journal is handled again
        self._latest = event.now
        asked: tuple[str, int] | None = None
        if isinstance(event, Received):
            asked = self._conversation(event.message, event.sender)
            if asked is not None:
                self._tell(f"handle {type(event.message).__name__}", asked, event.sender, began, ended)
        told = {asked}
        for effect in effects:
            if isinstance(effect, Send):
                begun = self._conversation(effect.message, effect.to)
                if begun is not None and begun[0] == self._party and begun not in told:
                    told.add(begun)
                    self._tell(f"begin {type(effect.message).__name__}", begun, effect.to, began, ended, is_root=True)

    def _conversation(self, message: Message, peer: str) -> tuple[str, int] | None:
        """Whose exchange, or sum, a message belongs to, and which; None, if to none."""
        exchange = getattr(message, "exchange", None)
        if exchange is not None:
            return (peer if self._party == self._label_party else self._party), exchange
        root, number = getattr(message, "root", None), getattr(message, "number", None)
        return None if root is None or number is None else (root, number)

    def _tell(
        self, name: str, of: tuple[str, int], peer: str, began: int, ended: int, *, is_root: bool = False
    ) -> None:
        from opentelemetry import trace

        owner, number = of
        digest = hashlib.sha256(f"{self._run}\0{owner}\0{number}".encode()).digest()
        if int.from_bytes(digest[8:16], "big") >= self._below:
            return
        trace_id, root_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
        context = None
        if is_root:
            self._ids.next_trace, self._ids.next_span = trace_id, root_id
        else:
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            parent = trace.SpanContext(trace_id, root_id, is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        attributes: dict[str, str | int] = {
            "colonnade.run": self._run,
            "colonnade.party": self._party,
            "colonnade.peer": peer,
            "colonnade.exchange_of": owner,
            "colonnade.exchange": number,
        }
        self._tracer.start_span(name, context, start_time=began, attributes=attributes).end(ended)


class ToldParty:
    """A party whose work is told, until that fails. In everything else it is the party itself."""

    def __init__(self, party: Party, spans: Spans, clock: Callable[[], int] = time.time_ns) -> None:
        self._party = party
        self._spans = spans
        self._clock = clock
        self._is_told = True

    def handle(self, event: Event) -> Sequence[Effect]:
        began = self._clock()
        effects = self._party.handle(event)
        if self._is_told:
            try:
                self._spans.handled(event, effects, began, self._clock())
            except Exception as error:  # of somebody else's library: no peer is to be expelled for it
                self._is_told = False
                log.warning("no more spans, %s; the training goes on without them", type(error).__name__)
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._party, name)


def told_of(party: Party, spans: Spans | None) -> Party:
    """The party, its work told if somebody wants to know."""
    return party if spans is None else cast(Party, ToldParty(party, spans))


def spans_to(collector: str, share: float, party: str, label_party: str) -> Spans:
    """Spans for a collector's address, such as http://127.0.0.1:4318."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise SettingsError("party.otel needs OpenTelemetry: pip install 'colonnade[otel]'.")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return Spans(party, label_party, share, OTLPSpanExporter(f"{collector.rstrip('/')}/v1/traces", timeout=5))


def _ids() -> Any:
    """Ids as they are asked for next, drawn at random where none is."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class _Ids(RandomIdGenerator):
        next_trace: int | None = None
        next_span: int | None = None

        def generate_trace_id(self) -> int:
            found, self.next_trace = self.next_trace, None
            return found or int(super().generate_trace_id())

        def generate_span_id(self) -> int:
            found, self.next_span = self.next_span, None
            return found or int(super().generate_span_id())

    return _Ids()


def _quiet(exporter: "SpanExporter") -> "SpanExporter":
    """The same exporter, which complains once: a collector that is away is no trouble of the training."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class _Quiet(SpanExporter):
        def __init__(self) -> None:
            self._has_failed = False
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it says the same at every attempt

        def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
            try:
                result = exporter.export(spans)
            except Exception:
                result = SpanExportResult.FAILURE
            if result is not SpanExportResult.SUCCESS and not self._has_failed:
                self._has_failed = True
                log.warning("the collector of [party] otel does not take spans; the training goes on without them")
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return bool(exporter.force_flush(timeout_millis))

    return _Quiet()
