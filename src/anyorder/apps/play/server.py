"""The playground's web server: a page, its files, and four requests.

Only this machine can reach the server (it binds the loopback address), and only with the printed
address, whose first part is a random token. The Host header must be ours, so that no other site can
point its name here. The page loads nothing from other sites.

    GET  /TOKEN/              the page; GET /TOKEN/NAME its scripts and styles
    GET  /TOKEN/api/models    the models to choose from
    POST /TOKEN/api/form      {"model"} -> its family, form and prompts
    POST /TOKEN/api/generate  form.GenerationRequest -> events: begun, step, ..., then done, stopped
                              or failed
    POST /TOKEN/api/stop      {"tab"} -> whether there was anything to stop

Bad input is answered with status 200 and {"refused": {"message", "field"}}, for the page to show.
Decoding is in work.py.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from anyorder.apps.play.form import BadInput, GenerationRequest, form_of
from anyorder.apps.play.work import GenerationQueue, PlayGeneration, as_event, prompts_for
from anyorder.report import player

LARGEST_BODY = 1 << 18
SAFETY = {
    # The player sets colours as style attributes, which no text of a user can reach.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HOSTS = ("127.0.0.1", "localhost")


def build_app(queue: GenerationQueue, token: str, port: int) -> ASGIApp:
    """The application; `token` is the first part of every path."""
    server = _Server(queue)
    routes = [
        Route("/", server.file),
        Route("/{name:str}", server.file),
        Mount(
            "/api",
            routes=[
                Route("/models", server.models),
                Route("/form", server.form, methods=["POST"]),
                Route("/generate", server.generate, methods=["POST"]),
                Route("/stop", server.stop, methods=["POST"]),
            ],
        ),
    ]
    app = Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        exception_handlers={BadInput: _refuse},  # type: ignore[dict-item]
    )
    return _Guard(app, token, port)


class _Guard:
    """Checks host, origin and token, and adds the safety headers to every answer.

    Plain ASGI: a layer that buffers would hide from the generation that the page has closed.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{host}:{port}" for host in HOSTS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here: uvicorn answers 403
            return
        refusal = self._refusal(Request(scope))
        answer: ASGIApp = self.app
        if refusal is not None:
            answer = PlainTextResponse(refusal + "\n", status_code=403)

        async def send_safely(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [(k.lower().encode(), v.encode()) for k, v in SAFETY.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await answer(scope, receive, send_safely)

    def _refusal(self, request: Request) -> str | None:
        if request.headers.get("host", "") not in self.hosts:
            return "this host name is not served: open the address that `anyorder play` printed"
        origin = request.headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return "pages of other sites may not send requests to this server"
        given = request.scope["path"].partition("/")[2].partition("/")[0]
        # In constant time, so that the duration does not reveal how much of a guess is right.
        if not secrets.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return (
                "the token is missing or out of date: open the address that `anyorder play` "
                "printed last"
            )
        return None


async def _refuse(request: Request, error: BadInput) -> Response:
    return JSONResponse({"refused": {"message": str(error), "field": error.field}})


class _Server:
    """The handlers of the requests."""

    def __init__(self, queue: GenerationQueue) -> None:
        self.queue = queue

    async def file(self, request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        content = page_file(name)
        if content is None:
            return PlainTextResponse("no such page\n", status_code=404)
        return Response(content, media_type=KINDS[Path(name).suffix])

    async def models(self, request: Request) -> Response:
        known = await run_in_threadpool(self.queue.models.known)
        chosen = self.queue.models.named or next(
            (each.name for each in known if each.any_order), None
        )
        return JSONResponse({"models": [asdict(each) for each in known], "chosen": chosen})

    async def form(self, request: Request) -> Response:
        record = await _body(request)
        name = record.get("model") if isinstance(record, dict) else None
        if not isinstance(name, str) or not name.strip():
            raise BadInput("choose a model, or name a folder with one", "model")
        return JSONResponse(await run_in_threadpool(self._describe, name))

    def _describe(self, name: str) -> dict[str, Any]:
        model = self.queue.model(name)
        return {
            "model": name,
            "family": model.family.name,
            "summary": model.family.summary,
            "form": [asdict(each) for each in form_of(model)],
            "prompts": prompts_for(model),
        }

    async def generate(self, request: Request) -> Response:
        wanted = GenerationRequest.read(await _body(request))
        work = await run_in_threadpool(self.queue.prepare, wanted)
        self.queue.start(work, asyncio.get_running_loop())
        return _EventStream(work)

    async def stop(self, request: Request) -> Response:
        record = await _body(request)
        tab = record.get("tab") if isinstance(record, dict) else None
        return JSONResponse({"stopped": isinstance(tab, str) and self.queue.stop(tab)})


class _EventStream(StreamingResponse):
    """The events of a generation; the generation stops when the page stops reading."""

    def __init__(self, work: PlayGeneration) -> None:
        super().__init__(self._events(work), media_type="text/event-stream")
        self.work = work

    @staticmethod
    async def _events(work: PlayGeneration) -> AsyncIterator[bytes]:
        async for message in work.messages():
            yield as_event(message)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.work.stop.set()


async def _body(request: Request) -> Any:
    """The JSON of a request of bounded size."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise BadInput(f"a request of more than {LARGEST_BODY} bytes is refused")
    try:
        # Python would accept NaN and Infinity, which are not JSON.
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):  # RecursionError: brackets nested too deep
        raise BadInput("the request is no JSON: reload the page") from None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def page_file(name: str) -> bytes | None:
    """A file of the page, or of the trace player; None for anything else."""
    built = {"player.js": player.script, "player.css": player.style}
    if name in built:
        return built[name]().encode()
    # Looked up among the known names: a name from the address never becomes part of a path.
    ours = {path.name: path for path in PAGE.iterdir() if path.suffix in KINDS}
    return ours[name].read_bytes() if name in ours else None
