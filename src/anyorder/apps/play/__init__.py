"""The playground: a page on this machine where models write while you watch.

`play` opens it. This file imports the web server only after it has checked that the extra is
installed, so that a missing package gives advice and no traceback. The server is server.py, the
form form.py, the work work.py.
"""

from __future__ import annotations

import importlib.util
import json
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anyorder.apps.jobs import Name

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

    models = LoadedModels(job.model, device=job.device)
    if job.model is not None:
        models.get(job.model)  # report a wrong name here, not on the page
    queue = GenerationQueue(models)
    with _listening(job.port) as listener:
        token = secrets.token_urlsafe(16)
        server, address = make_server(queue, listener, token)
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
            queue.close()


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


def make_server(queue: Any, listener: socket.socket, token: str) -> tuple[Any, str]:
    """The server for a bound socket, and the address of its page."""
    import uvicorn

    from anyorder.apps.play.server import build_app

    port = listener.getsockname()[1]

    class Server(uvicorn.Server):
        """Stops all generations first on a signal, so that no open stream delays the end."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            queue.stop_all()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        build_app(queue, token, port),
        log_level="warning",
        access_log=False,  # it would write the token to the terminal with every request
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
    )
    return Server(config), f"http://{LOOPBACK}:{port}/{token}/"
