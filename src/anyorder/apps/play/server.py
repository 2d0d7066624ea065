"""The playground's web server: a page, its files, and four requests; and the start of it (`play`).

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
import importlib.util
import json
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from anyorder.apps.jobs import Name
from anyorder.apps.play.form import BadInput, GenerationRequest, as_json, form_of
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


def build_app(desk: GenerationQueue, token: str, port: int) -> ASGIApp:
    """The application; `token` is the first part of every path."""
    server = _Server(desk)
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
            return "pages of other sites may not ask here"
        given = request.scope["path"].partition("/")[2].partition("/")[0]
        # In constant time, so that the duration does not reveal how much of a guess is right.
        if not secrets.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return (
                "the token is missing or of another start: open the address that `anyorder play` "
                "printed last"
            )
        return None


async def _refuse(request: Request, error: BadInput) -> Response:
    return JSONResponse({"refused": {"message": str(error), "field": error.field}})


class _Server:
    """The handlers of the requests."""

    def __init__(self, desk: GenerationQueue) -> None:
        self.desk = desk

    async def file(self, request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        content = page_file(name)
        if content is None:
            return PlainTextResponse("no such page\n", status_code=404)
        return Response(content, media_type=KINDS[Path(name).suffix])

    async def models(self, request: Request) -> Response:
        known = await run_in_threadpool(self.desk.shelf.known)
        chosen = self.desk.shelf.named or next(
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
        model = self.desk.model(name)
        return {
            "model": name,
            "family": model.family.name,
            "summary": model.family.summary,
            "form": as_json(form_of(model)),
            "prompts": prompts_for(model),
        }

    async def generate(self, request: Request) -> Response:
        asked = GenerationRequest.read(await _body(request))
        work = await run_in_threadpool(self.desk.prepare, asked)
        self.desk.start(work, asyncio.get_running_loop())
        return _EventStream(work)

    async def stop(self, request: Request) -> Response:
        record = await _body(request)
        tab = record.get("tab") if isinstance(record, dict) else None
        return JSONResponse({"stopped": isinstance(tab, str) and self.desk.stop(tab)})


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


NEEDED = ("starlette", "uvicorn")
LOOPBACK = "127.0.0.1"
PATIENCE = 2
"""Seconds for open connections to end when the server stops."""


@dataclass(frozen=True)
class PlayJob:
    """What to open, and where."""

    model: Annotated[Name, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """A shipped model or a folder written by `anyorder train`, to begin with; others can be chosen
    on the page."""
    port: int = 0
    """The port on this machine's loopback address; 0: any that is free."""
    device: str = "cpu"
    """Where to decode: cpu, cuda or cuda:1."""
    no_browser: bool = False
    """Only print the address, open no browser."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ValueError(f"--port must be from 0 to 65535, not {self.port}")


def play(job: PlayJob, *, as_json: bool = False) -> None:
    """Serve until interrupted."""
    check_extra()
    from anyorder.apps.play.work import GenerationQueue, LoadedModels

    shelf = LoadedModels(job.model, device=job.device)
    if job.model is not None:
        shelf.get(job.model)  # report a wrong name here, not on the page
    desk = GenerationQueue(shelf)
    with _listening(job.port) as listener:
        token = secrets.token_urlsafe(16)
        server, address = make_server(desk, listener, token)
        if as_json:
            print(json.dumps({"address": address}), flush=True)
        else:
            print(f"The playground is at {address}\nCtrl-C ends it.", flush=True)
        if not job.no_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn passes it on after it has stopped cleanly
            print("\nended", file=sys.stderr)
        finally:
            desk.close()


def check_extra() -> None:
    """Raise ValueError with what to install if the extra is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"anyorder play needs {' and '.join(missing)}: install the extra, "
            "pip install 'anyorder[report]'"
        )


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """A socket that only this machine can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise ValueError(
                f"port {port} cannot be used ({error.strerror}): choose another --port, or leave "
                "it out for any that is free"
            ) from None
        yield listener


def make_server(desk: Any, listener: socket.socket, token: str) -> tuple[Any, str]:
    """The server for a bound socket, and the address of its page."""
    import uvicorn

    port = listener.getsockname()[1]

    class Server(uvicorn.Server):
        """Stops all generations first on a signal, so that no open stream delays the end."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            desk.stop_all()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        build_app(desk, token, port),
        log_level="warning",
        access_log=False,  # it would write the token to the terminal with every request
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
    )
    return Server(config), f"http://{LOOPBACK}:{port}/{token}/"
