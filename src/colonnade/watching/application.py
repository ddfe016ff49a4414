"""The page over HTTP: files of the package, what runs say as server-sent events, and what is asked of them.

Whoever has the address has the token in it. All else is refused: another token, another host's name (a page elsewhere
that makes a browser call this address), another origin. The browser is told to load nothing from anywhere else.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from importlib import resources
from ipaddress import ip_address
from socket import gethostname
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from colonnade.errors import ColonnadeError
from colonnade.runtimes.steering import ASKS, ask
from colonnade.watching.runs import WatchedRun

LOOK_SECONDS = 0.25
_BEAT_LOOKS = 40
"""A comment line after so many looks without news: who is gone is noticed."""
_MOST_WAITING = 200
_END = ""
_MOST_BODY_BYTES = 1000
FILES = {
    "": ("index.html", "text/html"),
    "style.css": ("style.css", "text/css"),
    "uplot.css": ("uplot.css", "text/css"),
    "uplot.js": ("uplot.js", "text/javascript"),
    "main.js": ("main.js", "text/javascript"),
    "runs.js": ("runs.js", "text/javascript"),
    "lanes.js": ("lanes.js", "text/javascript"),
    "charts.js": ("charts.js", "text/javascript"),
    "figures.js": ("figures.js", "text/javascript"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",  # the token is in the address
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Door:
    """Who is let in."""

    def __init__(self, token: str, host: str, port: int = 0) -> None:
        self.token = token
        self.port = port
        self._host = host

    def refusal(self, request: Request) -> Response | None:
        """Why a request is not answered; None if it is."""
        if not secrets.compare_digest(request.path_params["token"].encode(), self.token.encode()):
            return _refused(404, "There is nothing here. Use the whole address that `colonnade watch` has printed.")
        host = request.headers.get("host", "")
        if not self._is_our_name(host):
            return _refused(403, "This page is not known under that host name.")
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "none")
        if (origin is not None and origin != f"http://{host}") or site not in ("none", "same-origin"):
            return _refused(403, "This page answers only its own requests.")
        if request.method == "POST" and origin is None:
            return _refused(403, "This page answers only its own requests.")
        return None

    def _is_our_name(self, host: str) -> bool:
        """A number is nobody's to redirect, a name may be: of names, only the usual ones."""
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        name = name.strip("[]").lower()
        if name in ("localhost", self._host.lower(), gethostname().lower()):
            return True
        with suppress(ValueError):
            return ip_address(name) is not None
        return False


class Watching:
    """All runs of a page, looked at once for everybody who looks on."""

    def __init__(self, runs: Sequence[WatchedRun]) -> None:
        self.runs = runs
        self._viewers: set[asyncio.Queue[str]] = set()
        self._told: dict[int, str] = {}  # the status of each run

    async def look_on(self) -> None:
        """Until it is cancelled: tell all viewers what is new."""
        while True:
            self._look()
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        for place, run in enumerate(self.runs):
            news = run.news()
            is_news = any(news.get(what) for what in ("samples", "metrics", "log", "facts", "reset"))
            if is_news or news["status"] != self._told.get(place):
                self._told[place] = news["status"]
                self._tell(json.dumps({"run": place, **news}))

    def _tell(self, line: str) -> None:
        for viewer in [*self._viewers]:
            try:
                viewer.put_nowait(line)
            except asyncio.QueueFull:
                self._viewers.discard(viewer)  # it does not take what it is sent: it connects again, and gets all

    def end(self) -> None:
        """The last news, and then no more: viewers are let go, and told so."""
        self._look()
        self._tell(_END)

    async def events(self) -> AsyncIterator[str]:
        """For one viewer: everything so far, then news."""
        viewer: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)
        for place, run in enumerate(self.runs):
            viewer.put_nowait(json.dumps({"run": place, "runs": len(self.runs), **run.snapshot()}))
        self._viewers.add(viewer)
        try:
            while viewer in self._viewers or not viewer.empty():
                try:
                    async with asyncio.timeout(_BEAT_LOOKS * LOOK_SECONDS):
                        line = await viewer.get()
                except TimeoutError:
                    yield ":\n\n"
                    continue
                if line == _END:
                    yield "event: end\ndata: {}\n\n"
                    return
                yield f"data: {line}\n\n"
        finally:
            self._viewers.discard(viewer)


def application(watching: Watching, door: Door) -> Starlette:
    """The page, its data and its buttons."""

    async def file(request: Request) -> Response:
        if refused := door.refusal(request):
            return refused
        found = FILES.get(request.path_params.get("name", ""))
        if found is None:
            return _refused(404, "There is no such file.")
        name, kind = found
        content = resources.files("colonnade.watching").joinpath("page", name).read_bytes()
        return Response(content, media_type=kind, headers=_HEADERS)

    async def events(request: Request) -> Response:
        if refused := door.refusal(request):
            return refused
        return StreamingResponse(watching.events(), media_type="text/event-stream", headers=_HEADERS)

    async def asked(request: Request) -> Response:
        if refused := door.refusal(request):
            return refused
        if not request.headers.get("content-length", "").isdigit():
            return _refused(411, "Say how long the body is.")
        if int(request.headers["content-length"]) > _MOST_BODY_BYTES:
            return _refused(413, "Such a request is short.")
        return _done(watching.runs, await request.body())

    app = Starlette(
        routes=[
            Route("/{token}/", file),
            Route("/{token}/events", events),
            Route("/{token}/ask", asked, methods=["POST"]),
            Route("/{token}/{name}", file),
        ]
    )
    app.router.redirect_slashes = False
    return app


def _done(runs: Sequence[WatchedRun], body: bytes) -> Response:
    """Do what a button asks for."""
    try:
        wanted: Any = json.loads(body)
        run, what = runs[int(wanted["run"])], wanted["ask"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return _refused(400, 'The body is not {"run": NUMBER, "ask": …} of a run that is here.')
    if what not in ASKS:
        return _refused(400, f"A run can be asked to: {', '.join(ASKS)}.")
    if not run.may_ask:
        return _refused(403, "One party's view cannot steer a run of all parties.")
    if run.status() not in ("running", "paused", "waiting"):
        return _refused(409, "The run does not go on now, so it cannot be asked for anything.")
    try:
        ask(run.directory, what)
    except (OSError, ColonnadeError) as error:
        return _refused(403, f"It could not be asked: {error}")
    return JSONResponse({"asked": what}, headers=_HEADERS)


def _refused(status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence + "\n", status, headers=_HEADERS)
