"""The HTTP endpoint of the label party: /predict, /healthz, /metrics, and a page that describes them (/docs).

Every refusal is one sentence and the status that fits it. Nothing in a log or a refusal is an id.
"""

import asyncio
import logging
import time
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from colonnade.errors import DataError
from colonnade.serving.keys import ApiKeys
from colonnade.serving.label_party import BusyError, ServingLabelParty
from colonnade.serving.metrics import MEDIA_TYPE

log = logging.getLogger("colonnade.serving")

MOST_BODY_BYTES = 1 << 20
BODY_SECONDS = 10.0
_encode = msgspec.json.Encoder().encode
Id = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The same as `Wanted`, which is for the page: decoded twenty times as fast."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    ids: list[Annotated[str, msgspec.Meta(min_length=1, max_length=256)]] | None = None


_ENDPOINTS = {"/predict": "POST", "/healthz": "GET", "/metrics": "GET", "/docs": "GET"}
_decode = msgspec.json.Decoder(_Asked).decode


class Wanted(BaseModel):
    """Which rows: `id` for one, or `ids` for several."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"id": "c0004"}, {"ids": ["c0004", "c0007"]}]}
    )
    id: Id | None = Field(default=None, description="One row.")
    ids: list[Id] | None = Field(default=None, description="Several rows, each of which is answered for itself.")


class Predicted(BaseModel):
    """One row's answer."""

    id: str
    prediction: str | int | float | None = Field(default=None, description="The class, or the value.")
    probabilities: dict[str, float] | None = Field(default=None, description="Of each class.")
    parties: list[str] = Field(default=[], description="The feature parties that took part.")
    degraded: bool = Field(default=False, description="Whether something stands in for a party.")
    missing: dict[str, str] | None = Field(default=None, description="For whom, and why.")
    error: str | None = Field(default=None, description="Why there is no prediction.")


class Predictions(BaseModel):
    """All answers, and the version of the model that gave them."""

    version: str
    predictions: list[Predicted]


class Problem(BaseModel):
    """What is wrong, in one sentence."""

    error: str


def application(party: ServingLabelParty, keys: ApiKeys | None, seconds: float) -> FastAPI:
    """The endpoint. `keys`: who may ask; None: everybody. `seconds`: the longest that an answer may take."""
    app = FastAPI(title="Colonnade", description="Predictions of a vertical federation.", version=party.version)
    asked = _Asking(party, keys, seconds)
    body = {"content": {"application/json": {"schema": Wanted.model_json_schema()}}, "required": True}
    key_header = {"name": "X-API-Key", "in": "header", "schema": {"type": "string"}, "description": "Your key."}

    @app.post(
        "/predict",
        response_model=Predictions,
        responses={status: {"model": Problem} for status in (400, 401, 403, 404, 408, 411, 413, 503, 504)},
        summary="Score one row, or several",
        openapi_extra={"requestBody": body, "parameters": [key_header]},
    )
    async def predict(request: Request) -> Response:
        began = time.perf_counter()
        response = await asked.answered(request)
        party.metrics.requests.labels(str(response.status_code)).inc()
        party.metrics.seconds.observe(time.perf_counter() - began)
        return response

    @app.exception_handler(HTTPException)
    async def elsewhere(request: Request, error: HTTPException) -> Response:
        """What no endpoint here takes, in the form of every other refusal."""
        known = sorted(_ENDPOINTS)
        if request.url.path in _ENDPOINTS:
            return problem(error.status_code, f"{request.url.path} is asked for with {_ENDPOINTS[request.url.path]}.")
        return problem(error.status_code, f"There is nothing at this address; there is at {', '.join(known)}.")

    @app.get("/healthz", summary="Whether it answers, and who is there")
    async def healthz() -> Response:
        present = party.present()
        parties = {name: name in present for name in party.feature_parties}
        status = "well" if all(parties.values()) else "degraded" if present else "alone"
        return reply(200 if present else 503, {"status": status, "version": party.version, "parties": parties})

    @app.get("/metrics", summary="For Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(party.metrics.text(), media_type=MEDIA_TYPE)

    return app


class _Asking:
    """Requests to /predict, from what is wrong with them to their answers."""

    def __init__(self, party: ServingLabelParty, keys: ApiKeys | None, seconds: float) -> None:
        self._party = party
        self._keys = keys
        self._seconds = seconds

    async def answered(self, request: Request) -> Response:
        size = request.headers.get("content-length", "")
        if not (size.isascii() and size.isdigit() and len(size) < 20):
            return problem(411, "Say how long the body is: Content-Length is missing.")
        if int(size) > MOST_BODY_BYTES:
            return problem(413, f"A body may have {MOST_BODY_BYTES} bytes: ask for fewer rows at once.")
        if self._keys is not None:
            bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
            if self._keys.name_of(request.headers.get("x-api-key") or bearer) is None:
                return problem(401, "The API key is missing or wrong: send it as X-API-Key.")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.body()
        except TimeoutError:
            return problem(408, f"The body was not there within {BODY_SECONDS:g} seconds.", {"Connection": "close"})
        except ClientDisconnect:
            return problem(400, "The connection ended before the body did.")  # which nobody hears
        try:
            wanted = _decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            return problem(400, f'The body is not {{"id": …}} or {{"ids": […]}} ({error}).')
        if (wanted.id is None) == (wanted.ids is None):
            return problem(400, 'Give "id" for one row or "ids" for several, and not both.')
        ids = [wanted.id] if wanted.id is not None else wanted.ids or []
        most = self._party.limits.most_ids
        if not ids:
            return problem(400, '"ids" is empty: name at least one row.')
        if len(ids) > most:
            return problem(413, f"{len(ids)} rows were asked for at once; {most} are the most. Ask several times.")
        return await self._predicted(ids, alone=wanted.id is not None)

    async def _predicted(self, ids: list[str], alone: bool) -> Response:
        try:
            async with asyncio.timeout(self._seconds):
                answers = await self._party.predict(ids)
        except BusyError:
            return problem(503, "Too many rows wait already: try again in a moment.", {"Retry-After": "1"})
        except TimeoutError:
            return problem(504, f"No answer was there within {self._seconds:g} seconds.")
        except DataError as error:
            log.error("this party's own rows could not be looked up: %s", error)
            return problem(503, "The label party cannot look its own rows up at the moment; its log says why.")
        if alone and (only := next(iter(answers))).error:
            return problem(only.status, only.error)
        return reply(200, {"version": answers.version, "predictions": answers.told()})


def reply(status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(content), status, headers, media_type="application/json")


def problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return reply(status, {"error": sentence}, headers)
