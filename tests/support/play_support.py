"""A playground on a loopback port for tests, and a small client that speaks to it."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from anyorder.apps.play import make_server
from anyorder.apps.play.work import GenerationQueue, LoadedModels

STORY = "Ana has some peaches. She gives half of them away. How many does she have now?\n"


@dataclass
class Playground:
    """A running server."""

    address: str
    queue: GenerationQueue

    @property
    def place(self) -> str:
        return urlsplit(self.address).netloc

    @property
    def path(self) -> str:
        """The first part of every path, with its slash: the token."""
        return urlsplit(self.address).path

    def raw(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one request."""
        with closing(http.client.HTTPConnection(self.place, timeout=240)) as connection:
            text = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def get(self, path: str) -> tuple[int, bytes]:
        status, _, body = self.raw("GET", self.path + path)
        return status, body

    def post(self, path: str, body: Any) -> Any:
        status, _, answer = self.raw("POST", f"{self.path}api/{path}", body)
        assert status == 200, answer
        return json.loads(answer)

    @contextmanager
    def generating(self, asked: dict[str, Any]) -> Iterator[Iterator[tuple[str, Any]]]:
        """The events of a generation, as they come; leaving closes the connection."""
        with closing(http.client.HTTPConnection(self.place, timeout=240)) as connection:
            connection.request("POST", f"{self.path}api/generate", json.dumps(asked))
            answer = connection.getresponse()
            assert answer.status == 200
            kind = answer.headers["content-type"]
            assert kind.startswith("text/event-stream"), answer.read()
            yield _events(answer)
            answer.close()

    def idle(self) -> bool:
        """Whether all work ends long before slow work would by itself."""
        return soon(lambda: self.queue.busy() == 0, 60)


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    kind = ""
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def soon(happens: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something happens within so many seconds, which are for a busy machine."""
    limit = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def asked(model: str, **changes: Any) -> dict[str, Any]:
    """A request as the page sends it."""
    request = {
        "tab": secrets.token_hex(8),
        "model": model,
        "prompt": STORY,
        "task": "stories/7",
        "seed": "0",
        "pause": 0,
        "settings": {},
    }
    return {**request, **changes}


@contextmanager
def playground(named: str | None = None) -> Iterator[Playground]:
    """A server in a thread of this process."""
    queue = GenerationQueue(LoadedModels(named))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server, address = make_server(queue, listener, secrets.token_urlsafe(16))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert soon(lambda: server.started)
            yield Playground(address, queue)
        finally:
            queue.stop_all()
            server.should_exit = True
            thread.join(timeout=240)
            queue.close()
    assert not thread.is_alive()
