"""A serving federation in one process: every party as it is, joined by links of memory, and HTTP without a socket."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

from colonnade.federation.file import read_federation
from colonnade.prediction.own_rows import id_form
from colonnade.runtimes.links import Peers
from colonnade.serving.endpoint import application
from colonnade.serving.feature_party import ServingFeatureParty
from colonnade.serving.keys import ApiKeys
from colonnade.serving.label_party import ServingLabelParty, ServingLimits
from colonnade.serving.live_rows import LiveRows
from colonnade.serving.metrics import ServingMetrics
from colonnade.serving.station import LiveStation
from colonnade.serving.versions import Versions


class Reply(NamedTuple):
    """What HTTP gave back."""

    status: int
    body: Any


class Together:
    """The parties of a run."""

    def __init__(
        self,
        run: Path,
        limits: ServingLimits | None = None,
        keys: ApiKeys | None = None,
        shadow: Path | None = None,
    ) -> None:
        federation = read_federation(run / "federation.toml")
        own = federation.party_data()
        self.label = federation.label_party
        self.features = [name for name in own if name != self.label]
        form = id_form([self.label, *self.features], federation.data, federation.alignment)
        rows = {name: LiveRows(name, own[name], federation.data, form, run) for name in own}
        self.versions = {name: Versions(run, name) for name in own}
        beside = {name: None if shadow is None else Versions(shadow, name) for name in own}
        self.party = ServingLabelParty(
            self.label,
            self.versions[self.label],
            rows[self.label],
            form,
            limits or ServingLimits(),
            ServingMetrics(),
            beside[self.label],
        )
        peers = Peers(self.features, self.label)
        self.station = LiveStation(self.label, peers, self.party.handle, self.party.notice, strangers=True)
        self.party.station = self.station
        self.answering = {
            name: ServingFeatureParty(
                name, self.label, self.versions[name], rows[name], run / f"served-{name}.jsonl", beside[name]
            )
            for name in self.features
        }
        self.stations: dict[str, LiveStation] = {}
        self.deaf: set[str] = set()  # connected, and never heard
        self.station.wake = self._soon
        self.app = application(self.party, keys, 5.0)
        self._is_due = False

    def connect(self, *names: str) -> None:
        for name in names or self.features:
            answering = self.answering[name]
            station = self.stations[name] = LiveStation(
                name, Peers([self.label], self.label), answering.handle, answering.notice, strangers=True
            )
            station.wake = self._soon
            station.connected(self.label)
            self.station.connected(name)
        self.move()

    def disconnect(self, name: str) -> None:
        del self.stations[name]
        self.station.disconnected(name)

    def _soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # somebody moves the bytes by hand
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self.move)

    def move(self) -> None:
        """Every byte that waits, until none does."""
        self._is_due = False
        busy = True
        while busy:
            busy = False
            for name, station in [*self.stations.items()]:
                if name in self.deaf:
                    continue
                for data in self.station.outgoing(name):
                    station.received(self.label, data)
                    busy = True
                busy |= station.turn()
                for data in station.outgoing(self.label):
                    self.station.received(name, data)
                    busy = True
                busy |= self.station.turn()

    # --- HTTP ---

    def ask(self, *bodies: Any, key: str = "", path: str = "/predict", method: str = "POST") -> list[Reply]:
        """Requests at the same time."""

        async def all_of_them() -> list[Reply]:
            return await asyncio.gather(*(self._call(one, key, path, method) for one in bodies))

        return asyncio.run(all_of_them())

    async def _call(self, body: Any, key: str, path: str, method: str) -> Reply:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        headers += [(b"x-api-key", key.encode())] if key else []
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode()}
        scope |= {"query_string": b"", "headers": headers, "client": ("test", 1), "server": ("test", 80)}
        sent: list[dict[str, Any]] = []
        waiting = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app({**scope, "scheme": "http"}, receive, send)  # type: ignore[arg-type]
        text = b"".join(one.get("body", b"") for one in sent[1:])
        is_json = any(value.startswith(b"application/json") for _, value in sent[0]["headers"])
        return Reply(sent[0]["status"], json.loads(text) if is_json else text.decode())
