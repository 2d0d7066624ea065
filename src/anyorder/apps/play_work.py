"""The work of the playground: generations in threads of their own, told step by step.

A generation belongs to a tab, and a tab has one at a time. It ends when it is done, when it is
stopped, or when nobody listens any more: the decoder is left by raising in its watcher. What it
says is bounded: a page that does not read makes the decoder wait. No HTTP here.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from anyorder.apps.play_canvas import InPlace
from anyorder.apps.play_form import Asked, BadInput, prepared
from anyorder.apps.play_models import Shelf
from anyorder.decode.canvas import Seen
from anyorder.model import Model, Request
from anyorder.report.live import LiveSteps
from anyorder.report.traces import TraceGroup, pack
from anyorder.trace import Trace

WORKERS = 2
UNREAD = 64
"""Messages that may wait for the page before the decoder waits for it."""
LOOK_AGAIN = 0.1
"""Seconds after which a decoder that waits looks whether it is still wanted."""

Message = tuple[str, dict[str, Any]]
"""The kind of an event (begun, step, done, stopped, failed), and what it says."""


class Stopped(Exception):
    """Raised in the watcher: the work is not wanted any more."""


@dataclass
class Work:
    """One generation."""

    asked: Asked
    model: Model
    requests: list[Request]
    options: Any
    stop: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)
    _told: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue)
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(UNREAD))

    async def messages(self) -> AsyncIterator[Message]:
        """What happens, until it is over."""
        while (message := await self._told.get()) is not None:
            self._room.release()
            yield message

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Decode, in a thread of its own, and tell the loop. `stop` ends it."""
        step = 0
        vocab = self.model.vocab
        live, in_place = LiveSteps(vocab, cuts=not self._may_change()), InPlace(vocab.eos_id)

        def watch(rows: Sequence[Seen]) -> None:
            nonlocal step
            (seen,) = rows
            step = seen.step
            for message in live.messages(in_place(seen)):
                self._tell(loop, ("step", message))
            if self.stop.wait(self.asked.pause):
                raise Stopped

        try:
            self._tell(loop, ("begun", self._beginning()))
            (trace,) = self.model.decode(self.requests, self.options, self.asked.seed, watch)
            self._tell(loop, ("done", self._result(trace)))
        except Stopped:
            self._say(loop, ("stopped", {"step": step}))
        except (ValueError, RuntimeError, MemoryError) as error:
            self._say(loop, ("failed", {"message": str(error) or type(error).__name__}))
        finally:
            self.finished.set()
            self._say(loop, None)

    def _may_change(self) -> bool:
        """Whether tokens do not stay once they are shown: there are no masks, or masks again."""
        return self.model.family.reader is None or getattr(self.options, "remask", None) is not None

    def _tell(self, loop: asyncio.AbstractEventLoop, message: Message) -> None:
        """Wait until there is room for the message, or until the work is not wanted."""
        while True:
            if self.stop.is_set():
                raise Stopped
            if self._room.acquire(timeout=LOOK_AGAIN):
                break
        self._say(loop, message)

    def _say(self, loop: asyncio.AbstractEventLoop, message: Message | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            loop.call_soon_threadsafe(self._told.put_nowait, message)

    def _beginning(self) -> dict[str, Any]:
        """What the player wants to know beforehand."""
        request = self.requests[0]
        slots = sum(getattr(request.canvas, "free", ()))  # one step for each, where nobody says
        return {
            "prompt": request.prompt,
            "segments": self.model.family.counts_segments,
            "planned": getattr(self.options, "steps", None) or slots or None,
        }

    def _result(self, trace: Trace) -> dict[str, Any]:
        trace = replace(trace, task_id=self.asked.task)
        name = f"{Path(self.asked.model).name}-{trace.policy}-seed{trace.seed}"
        return {
            "payload": pack([TraceGroup(self.asked.title, [trace], timed=True)]),
            "text": trace.text,
            "steps": trace.steps,
            "line": trace.to_jsonl(),
            "file": "".join(c if c.isalnum() or c in "-_." else "_" for c in name) + ".jsonl",
            "command": command_for(self.asked),
        }


def command_for(asked: Asked) -> str:
    """The command that makes the same sample, with its run folder."""
    prompt = ["--prompt", asked.prompt]
    if asked.prompt.startswith("-"):  # or it would be read as a flag
        prompt = [f"--prompt={asked.prompt}"]
    words = ["anyorder", "sample", asked.model, *prompt, "--seed", str(asked.seed)]
    for name, value in asked.settings.items():
        flag = "--" + name.replace("_", "-")
        words += [flag] if value is True else [] if value is False else [flag, str(value)]
    return shlex.join(words)


class Desk:
    """Takes requests, one generation at a time for each tab."""

    def __init__(self, shelf: Shelf, *, workers: int = WORKERS) -> None:
        self.shelf = shelf
        threads = max(1, (os.cpu_count() or 1) // workers)
        self._pool = ThreadPoolExecutor(
            workers, "generation", initializer=torch.set_num_threads, initargs=(threads,)
        )
        self._lock = threading.Lock()
        self._busy: dict[str, Work] = {}

    def prepare(self, asked: Asked) -> Work:
        """Load and check, without decoding; `BadInput` names the field to mend."""
        model = self.model(asked.model)
        requests, options = prepared(model, asked)
        return Work(asked, model, requests, options)

    def model(self, name: str) -> Model:
        """The model of that name; `BadInput` says why it cannot be opened."""
        try:
            return self.shelf.get(name)
        except (ValueError, OSError) as error:
            raise BadInput(str(error), "model") from None

    def start(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        """Begin, unless the tab has begun something before."""
        with self._lock:
            tab = work.asked.tab
            before = self._busy.get(tab)
            if before is not None and not before.finished.is_set():
                raise BadInput("this tab is generating: stop that first, or wait for it")
            self._busy = {
                name: each for name, each in self._busy.items() if not each.finished.is_set()
            }
            self._busy[tab] = work
        self._pool.submit(work.run, loop).add_done_callback(_raise_nothing_unseen)

    def stop(self, tab: str) -> bool:
        """End what the tab has begun; whether there was anything."""
        with self._lock:
            work = self._busy.get(tab)
        if work is None or work.finished.is_set():
            return False
        work.stop.set()
        return True

    def busy(self) -> int:
        """How many generations are not finished."""
        with self._lock:
            return sum(not work.finished.is_set() for work in self._busy.values())

    def stop_all(self) -> None:
        for work in list(self._busy.values()):
            work.stop.set()

    def close(self) -> None:
        """End all work; no more is taken."""
        self.stop_all()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _raise_nothing_unseen(done: Future[None]) -> None:
    """A fault of ours in a thread shall be seen on the terminal, not swallowed by the pool."""
    if not done.cancelled() and (error := done.exception()) is not None:
        threading.excepthook(
            threading.ExceptHookArgs((type(error), error, error.__traceback__, None))
        )


def as_event(message: Message) -> bytes:
    """One server-sent event."""
    kind, says = message
    return f"event: {kind}\ndata: {json.dumps(says, allow_nan=False)}\n\n".encode()
