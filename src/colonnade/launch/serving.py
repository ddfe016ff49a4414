"""Serving on one machine: a finished run's models and tables, the endpoint here, every feature party a process."""

import asyncio
import gc
import json
import logging
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.algorithms.row import Family
from colonnade.errors import SettingsError
from colonnade.federation.file import Federation, read_federation
from colonnade.launch.finished_run import joint_model_of, settings_of
from colonnade.prediction.contributions import family_of, fixed_point
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.own_rows import id_form
from colonnade.prediction.saved_model import SavedModel
from colonnade.runtimes.links import Peers
from colonnade.runtimes.processes.fork_server import Child, fork_server_for
from colonnade.runtimes.processes.sockets import socket_folder
from colonnade.serving.endpoint import application
from colonnade.serving.http_server import HttpServer, HttpSettings
from colonnade.serving.keys import ApiKeys
from colonnade.serving.label_party import ServingLabelParty, ServingLimits
from colonnade.serving.live_rows import LiveRows
from colonnade.serving.metrics import ServingMetrics
from colonnade.serving.sockets import SocketHost
from colonnade.serving.station import LiveStation
from colonnade.serving.versions import Versions
from colonnade.threads import compute_with

log = logging.getLogger("colonnade.serving")

LOOK_SECONDS = 1.0
"""How often a model's folder is looked at."""
_RESTART_SECONDS = 0.5


@dataclass(frozen=True)
class Serving:
    """How serving is asked for."""

    http: HttpSettings = field(default_factory=HttpSettings)
    keys: Path | None = None  # the file of API keys; None: nobody is asked for one
    limits: ServingLimits = field(default_factory=ServingLimits)
    seconds: float = 5.0  # the longest that an answer may take
    shadow: Path | None = None  # a run or a model's folder that is scored beside the one that answers
    show_products: bool = False  # whether products that were masked in training may be shown to the label party
    listening: Callable[[int], None] = lambda port: None  # is told the port once it is open
    stop_requested: Callable[[], bool] = lambda: False


def serve_run(run: Path, serving: Serving) -> None:
    """Serve a finished run until a stop is asked for."""
    compute_with(1)  # threads of several processes would wait for one another longer than a row takes
    federation, model = _checked(run, serving)
    label_party = model.label_party
    features = tuple(name for name in model.order if name != label_party)
    form = id_form((label_party, *features), federation.data, federation.alignment)
    own = federation.party_data().get(label_party)
    rows = None
    if label_party in model.order and own is not None:
        rows = LiveRows(label_party, own, federation.data, form, run)
    versions = Versions(run, label_party)
    shadow = None if serving.shadow is None else Versions(serving.shadow, label_party)
    party = ServingLabelParty(label_party, versions, rows, form, serving.limits, ServingMetrics(), shadow)
    station = party.station = LiveStation(
        label_party, Peers(features, label_party), party.handle, party.notice, strangers=False
    )
    with (
        socket_folder([label_party, *features]) as sockets,
        tempfile.TemporaryDirectory(prefix="colonnade-serve-") as logs,
        looking_on_hangup() as hangup,
    ):
        carrier = SocketHost(station, Path(sockets))
        order = [label_party, *features]
        beside = "" if serving.shadow is None else str(serving.shadow.absolute())
        started = {
            name: _Process(name, [str(run.absolute()), sockets, json.dumps(order), beside], Path(logs))
            for name in features
        }

        def look() -> None:
            for process in started.values():
                process.look()
            if versions.look():
                party.choose_version()

        gc.freeze()  # what is here stays: to look at it again and again would cost as much as the answers
        try:
            asyncio.run(_serve(party, carrier, serving, look, hangup))
        finally:
            gc.unfreeze()
            for process in started.values():
                process.end()


def _checked(run: Path, serving: Serving) -> tuple[Federation, JointModel]:
    federation = read_federation(settings_of(run))
    model = joint_model_of(
        run,
        "to serve here, the models of all parties are needed in one place. Between organisations each runs "
        "colonnade serve FEDERATION.toml --party PARTY.toml.",
    )
    if federation.data.set:
        raise SettingsError(
            f"The run in {run} was trained on the data set {federation.data.set!r}: there are no tables of parties."
        )
    check_servable(model.parties[model.label_party], serving.show_products)
    return federation, model


def check_servable(model: SavedModel, show_products: bool) -> None:
    """Refuse a model whose parties cannot answer one by one, and what would show more than the training did."""
    described = model.description
    if family_of(described) is Family.ALONE:
        raise SettingsError("The model was trained by one party on everybody's columns: there is nobody to ask.")
    if family_of(described) is Family.LINEAR and fixed_point(described) is not None and not show_products:
        raise SettingsError(
            "The training hid every party's products under masks, which need all parties for every row: served one by "
            "one, the label party sees each party's product of each row. If all agree to that, say --show-products."
        )


async def _serve(
    party: ServingLabelParty,
    carrier: SocketHost,
    serving: Serving,
    look: Callable[[], None],
    hangup: Callable[[], bool],
) -> None:
    await carrier.open()
    http = opened(party, serving)
    task = asyncio.create_task(http.run())
    every_turn = looking_now_and_then(look, hangup)
    try:
        while not serving.stop_requested() and not task.done():
            every_turn()
            await asyncio.sleep(0.1)
    finally:
        await http.stop(task)
        await carrier.close()


def opened(party: ServingLabelParty, serving: Serving) -> HttpServer:
    """The endpoint, with its port."""
    keys = None if serving.keys is None else ApiKeys(serving.keys)
    http = HttpServer(application(party, keys, serving.seconds), serving.http)
    serving.listening(http.port)
    return http


@contextmanager
def looking_on_hangup() -> Iterator[Callable[[], bool]]:
    """SIGHUP says: look for a new model now. Asked once for each."""
    asked: list[int] = []
    before: Any = signal.signal(signal.SIGHUP, lambda number, frame: asked.append(number))
    try:
        yield lambda: bool(asked) and asked.pop() > 0
    finally:
        signal.signal(signal.SIGHUP, before)


def looking_now_and_then(look: Callable[[], None], hangup: Callable[[], bool]) -> Callable[[], None]:
    """To be called in every turn."""
    next_look = 0.0

    def every_turn() -> None:
        nonlocal next_look
        if hangup() or time.monotonic() >= next_look:
            look()
            next_look = time.monotonic() + LOOK_SECONDS

    return every_turn


class _Process:
    """A feature party's process, started again when it has ended."""

    def __init__(self, name: str, arguments: list[str], logs: Path) -> None:
        self._name = name
        self._arguments = [name, *arguments]
        self._log = logs / f"{name}.log"
        self._child: Child | None = None
        self._started_at = 0.0

    def look(self) -> None:
        if self._child is not None and self._child.poll() is None:
            return
        if self._child is not None:
            self._tell_end()
        if time.monotonic() - self._started_at < _RESTART_SECONDS:
            return
        self._started_at = time.monotonic()
        self._child = fork_server_for("colonnade.launch.serving_process").start(self._name, self._arguments, self._log)

    def _tell_end(self) -> None:
        said = (
            self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if self._log.exists() else []
        )
        log.error("%s has ended, and is started again%s", self._name, f": {said[-1]}" if said else "")
        self._log.unlink()
        assert self._child is not None
        self._child.close()
        self._child = None

    def end(self) -> None:
        if self._child is not None:
            self._child.send(signal.SIGTERM)
            self._child.wait(5)
            self._child.close()

    @property
    def pid(self) -> int:
        return 0 if self._child is None else self._child.pid
