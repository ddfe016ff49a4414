"""Traces of exchanges: both ends know one trace without a word about it, and tell names, kinds and times alone."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from parties import Organisation, Town, shared

from colonnade.errors import SettingsError
from colonnade.federation.party_file import PartySettings
from colonnade.messages import EmbeddingUpload, GradientReply, ProductRequest, ProductSum, WarmUpUpload
from colonnade.party import Effect, Event, Received, Send, Started
from colonnade.runtimes.network import spans as spans_module
from colonnade.runtimes.network.spans import Spans, ToldParty

ROWS = np.arange(2, dtype=np.uint32)
VECTORS = np.full((2, 3), 0.25, np.float32)
UPLOAD, REPLY = EmbeddingUpload(7, ROWS, VECTORS), GradientReply(7, VECTORS)


class Answering:
    """A party that answers whatever happens with the same effects."""

    def __init__(self, *effects: Effect) -> None:
        self.effects = effects

    def handle(self, event: Event) -> Sequence[Effect]:
        return self.effects


def told(party: str, event: Event, *effects: Effect, share: float = 1.0, since: float = 0.0) -> list[ReadableSpan]:
    """The spans of one event at one party."""
    exporter = InMemorySpanExporter()
    spans = Spans(party, "bank", share, exporter, at_once=True)
    spans.begin("a run", since)
    moments = iter([1000, 3000])
    assert ToldParty(Answering(*effects), spans, lambda: next(moments)).handle(event) == effects  # type: ignore[arg-type]
    return list(exporter.get_finished_spans())


def test_spans_that_fail_are_no_fault_of_the_message(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def handled(self, *_: object) -> None:
            raise ZeroDivisionError

    party = ToldParty(Answering(Send("shop", REPLY)), Broken())  # type: ignore[arg-type]
    for _ in range(2):
        assert party.handle(Received(2.0, "shop", UPLOAD)) == (Send("shop", REPLY),)
    assert len(caplog.records) == 1


def test_a_collector_that_hangs_does_not_keep_a_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "END_SECONDS", 0.05)
    over, left = threading.Event(), []

    class Hanging(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            over.wait(10)
            left.append(len(spans))
            return SpanExportResult.SUCCESS

    spans = Spans("shop", "bank", 1.0, Hanging())
    spans.begin("a run", 0.0)
    spans.handled(Received(2.0, "bank", REPLY), (), 1000, 3000)
    spans.end()
    assert not left
    over.set()


def test_an_exchange_is_one_trace_at_both_ends() -> None:
    begun = told("shop", Started(1.0), Send("bank", UPLOAD))
    answered = told("bank", Received(2.0, "shop", UPLOAD), Send("shop", REPLY))
    applied = told("shop", Received(3.0, "bank", REPLY))
    assert [span.name for span in (*begun, *answered, *applied)] == [
        "begin EmbeddingUpload",
        "handle EmbeddingUpload",
        "handle GradientReply",
    ]
    root, *others = (*begun, *answered, *applied)
    assert root.parent is None and (root.start_time, root.end_time) == (1000, 3000)
    for span in others:
        assert span.context.trace_id == root.context.trace_id
        assert span.parent is not None and span.parent.span_id == root.context.span_id


def test_the_next_upload_begins_another_trace() -> None:
    applied, begun = told("shop", Received(3.0, "bank", REPLY), Send("bank", EmbeddingUpload(8, ROWS, VECTORS)))
    assert applied.context.trace_id != begun.context.trace_id and begun.parent is None


def test_a_sum_is_its_roots_whoever_adds_to_it() -> None:
    request, total = ProductRequest("shop", 4, ROWS), ProductSum("shop", 4, np.ones((2, 1)))
    (begun,) = told("shop", Started(1.0), Send("clinic", request), Send("bank", request))
    (added,) = told("clinic", Received(2.0, "shop", request), Send("shop", total))
    assert begun.context.trace_id == added.context.trace_id


def test_spans_hold_no_number_that_was_computed() -> None:
    (span,) = told("bank", Received(2.0, "shop", UPLOAD))
    assert span.attributes == {
        "colonnade.run": "a run",
        "colonnade.party": "bank",
        "colonnade.peer": "shop",
        "colonnade.exchange_of": "shop",
        "colonnade.exchange": 7,
    }
    assert not span.events and not span.links


def test_of_what_belongs_to_no_exchange_nothing_is_told() -> None:
    assert told("bank", Received(2.0, "shop", WarmUpUpload(ROWS, VECTORS))) == []


def test_what_a_journal_repeats_is_not_told_again() -> None:
    assert told("bank", Received(2.0, "shop", UPLOAD), since=2.5) == []


def test_all_parties_tell_of_the_same_exchanges() -> None:
    def of(party: str, event: Event, *effects: Effect) -> bool:
        return bool(told(party, event, *effects, share=0.5))

    begun = [of("shop", Started(1.0), Send("bank", EmbeddingUpload(one, ROWS, VECTORS))) for one in range(20)]
    taken = [of("bank", Received(2.0, "shop", EmbeddingUpload(one, ROWS, VECTORS))) for one in range(20)]
    assert begun == taken and 3 < sum(begun) < 17


class Broken(SpanExporter):
    """A collector that is away."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise ConnectionError


def test_a_collector_that_is_away_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    spans = Spans("bank", "bank", 1.0, Broken(), at_once=True)
    spans.begin("a run", 0.0)
    party = ToldParty(Answering(), spans)  # type: ignore[arg-type]
    for moment in (1.0, 2.0):
        party.handle(Received(moment, "shop", UPLOAD))
    assert len([line for line in caplog.records if line.name.startswith("colonnade")]) == 1


@pytest.mark.parametrize("settings", [{"otel": "localhost:4318"}, {"otel": "http://localhost:4318", "otel_share": 0.0}])
def test_a_wrong_address_or_share_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"party\.otel"):
        PartySettings("bank", **settings)  # type: ignore[arg-type]


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """An address for spans, and what came there."""
    came: list[bytes] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", came
        finally:
            server.shutdown()
            thread.join()


def kept(party: Organisation) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (party.folder / "kept.jsonl").read_text(encoding="utf-8").splitlines()]


def test_organisations_that_tell_one_collector_and_sinks_of_their_own(town: Callable[..., Town]) -> None:
    one = town(shared("vafl", {"set": "iris", "parties": 2}, epochs=1, batch_size=16))
    with collector() as (address, came):
        for party in one.parties.values():
            party.own["party"] |= {"otel": address, "otel_share": 1.0}
            party.own["track"] = {"own": {"kept_lines:KeptLines": str(party.folder / "kept.jsonl")}}
            party.write_files()
        one.start()
        exchanges = one.end()["exchanges"]
    traces: dict[bytes, list[tuple[str, str]]] = {}
    for body in came:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            for span in resource.scope_spans[0].spans:
                traces.setdefault(span.trace_id, []).append((named["service.instance.id"], span.name))
    assert len(traces) >= exchanges > 0
    whole = [sorted({name for _, name in spans}) for spans in traces.values()]
    assert whole.count(["begin EmbeddingUpload", "handle EmbeddingUpload", "handle GradientReply"]) == exchanges
    assert all({party for party, _ in spans} >= {"label"} or len(spans) == 1 for spans in traces.values())

    began, *lines, summary = kept(one.label)
    assert (began["party"], lines) == ("label", one.label.metrics()) and summary == one.label.summary()
    began, *lines, summary = kept(one["party1"])
    assert (began["party"], lines) == ("party1", []) and summary == one["party1"].summary()
    assert not {"test", "train_loss", "settings"} & summary.keys()
