"""The work of the playground: generations in threads, step by step; models; prompts. No HTTP here.

**Generations.** A tab has one generation at a time. It ends when it is done, when it is stopped, or
when the page closes: its watcher then raises in the decoder. If the page does not read its
messages, the decoder waits.

**Segments in place.** The player's live mode moves nothing. But a trace lists the empty segments of
a fixed canvas behind all others, because the text ends at the first, and a decoder that erases
(latentmdm, mode compat) empties segments that had tokens. So while a canvas is watched, an emptied
segment keeps its place and its width (`InPlace`).

**Prompts.** Held-out problems of the model's corpus, as they are and with one line of the program
as a gap. Whether a family fills a gap of a given length, of any length, or none is found by trying.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from anyorder.apps.jobs import flags_of
from anyorder.apps.play.form import BadInput, GenerationRequest, prepared
from anyorder.bench.tasks import Problem, corpus_task, find_task
from anyorder.decode.canvas import ANSWER, Decoded
from anyorder.families.family import FAMILIES
from anyorder.model import CONFIG_FILE, SHIPPED, WEIGHTS_FILE, Model, Request, load, shipped_folder
from anyorder.report.traces import LiveSteps, TraceGroup, pack
from anyorder.trace import Trace

LiveItem = tuple[int, int, int, float, int]
"""Token, insert step, reveal step, log-probability and segment of one item."""


@dataclass
class InPlace:
    """Keeps every segment in its place; called once per step, in order."""

    end_ids: Sequence[int]
    _width: dict[int, int] = field(default_factory=dict)
    """Segment -> the number of its items at the last step."""

    def __call__(self, seen: Decoded) -> Decoded:
        """The same canvas with its segments in place; unchanged if it has none."""
        if not seen.segment:
            return seen
        columns = (seen.token_ids, seen.insert_step, seen.reveal_step, seen.log_prob, seen.segment)
        blocks: dict[int, list[LiveItem]] = {}
        for item in zip(*columns, strict=True):
            blocks.setdefault(item[-1], []).append(item)
        numbers = list(blocks)
        if not any(seen.insert_step):  # nothing was inserted: the numbers are the order
            numbers.sort()
        items = [item for number in numbers for item in self._as_wide(number, blocks[number])]
        token_ids, insert, reveal, log_prob, segment = map(list, zip(*items, strict=True))
        return replace(
            seen,
            token_ids=token_ids,
            insert_step=insert,
            reveal_step=reveal,
            log_prob=log_prob,
            segment=segment,
        )

    def _as_wide(self, number: int, block: list[LiveItem]) -> list[LiveItem]:
        before = self._width.get(number, 1)
        if len(block) == 1 and block[0][0] in self.end_ids:
            block = block * before
        self._width[number] = len(block)
        return block


KEPT = 3
FOLDER = Path("runs")
DEPTH = 2
"""Models are found up to this many folders below `runs/`."""


@dataclass(frozen=True)
class KnownModel:
    """A model that can be chosen."""

    name: str
    family: str
    shipped: bool

    @property
    def any_order(self) -> bool:
        """Whether the family can write in another order than left to right."""
        return self.family in FAMILIES and not FAMILIES[self.family].causal


class LoadedModels:
    """Loaded models by name; the least recently used one is dropped first."""

    def __init__(self, named: str | None = None, *, device: str = "cpu", kept: int = KEPT) -> None:
        self.named, self.device, self.kept = named, device, kept
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, tuple[int, Model]] = OrderedDict()

    def known(self) -> list[KnownModel]:
        """The model of the command line, then the shipped ones, then those below `runs/`."""
        # In the order of the families' table: the simplest any-order family comes first.
        places = {family: number for number, family in enumerate(FAMILIES)}
        shipped = sorted(
            _models_in(SHIPPED, 3), key=lambda each: (places.get(each[1], len(places)), each[0])
        )
        found = {name: KnownModel(name, family, True) for name, family in shipped}
        for name, family in _models_in(FOLDER, DEPTH):
            path = (FOLDER / name).as_posix()
            found.setdefault(path, KnownModel(path, family, False))
        if self.named is not None:
            model = self.get(self.named)
            first = found.pop(self.named, KnownModel(self.named, model.family.name, False))
            found = {first.name: first, **found}
        return list(found.values())

    def get(self, name: str) -> Model:
        """The model, loaded again if its weights have changed on disk."""
        with self._lock:
            stamp = _stamp(name)
            there = self._loaded.pop(name, None)
            if there is None or there[0] != stamp:
                there = stamp, load(name, device=self.device)
            self._loaded[name] = there
            while len(self._loaded) > self.kept:
                self._loaded.popitem(last=False)
            return there[1]


def _stamp(name: str) -> int:
    """When the weights were written; 0 if there are none, which `load` will report."""
    for folder in (Path(name), shipped_folder(name)):
        weights = folder / WEIGHTS_FILE
        if weights.is_file():
            return weights.stat().st_mtime_ns
    return 0


def _models_in(root: Path, depth: int) -> list[tuple[str, str]]:
    """(name, family) of the complete model folders below `root`."""
    found = []
    for level in range(1, depth + 1):
        for weights in root.glob("/".join(["*"] * level) + f"/{WEIGHTS_FILE}"):
            family = _family(weights.with_name(CONFIG_FILE))
            if family is not None:
                found.append((weights.parent.relative_to(root).as_posix(), family))
    return sorted(found)


def _family(config: Path) -> str | None:
    """The family in a config.json; None if it has none or cannot be read."""
    try:
        record = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return None
    family = record.get("family") if isinstance(record, dict) else None
    return family if isinstance(family, str) else None


WORKERS = 2
UNREAD = 64
"""Unread messages after which the decoder waits for the page."""
LOOK_AGAIN = 0.1
"""Seconds between a waiting decoder's checks of `stop`."""

Message = tuple[str, dict[str, Any]]
"""The kind of an event (begun, step, done, stopped, failed), and its content."""


class Stopped(Exception):
    """Raised in the watcher to leave the decoder."""


@dataclass
class PlayGeneration:
    """One generation."""

    wanted: GenerationRequest
    model: Model
    requests: list[Request]
    options: Any
    stop: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)
    _messages: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue)
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(UNREAD))

    async def messages(self) -> AsyncIterator[Message]:
        """The messages, until the generation ends."""
        while (message := await self._messages.get()) is not None:
            self._room.release()
            yield message

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Decode in a worker thread and send messages to the loop. `stop` ends it."""
        step = 0
        vocab = self.model.vocab
        live, in_place = LiveSteps(vocab, cuts=not self._may_change()), InPlace(vocab.end_ids)

        def watch(rows: Sequence[Decoded]) -> None:
            nonlocal step
            (seen,) = rows
            step = seen.step
            for message in live.messages(in_place(seen)):
                self._send(loop, ("step", message))
            if self.stop.wait(self.wanted.pause):
                raise Stopped

        try:
            self._send(loop, ("begun", self._beginning()))
            (trace,) = self.model.decode(self.requests, self.options, self.wanted.seed, watch)
            self._send(loop, ("done", self._result(trace)))
        except Stopped:
            self._put(loop, ("stopped", {"step": step}))
        except (ValueError, RuntimeError, MemoryError) as error:
            self._put(loop, ("failed", {"message": str(error) or type(error).__name__}))
        finally:
            # Before the stream ends, because the page may then start the next generation.
            self.finished.set()
            self._put(loop, None)

    def _may_change(self) -> bool:
        """Whether shown tokens may change: the family has no masks, or masks tokens again."""
        return self.model.family.reader is None or getattr(self.options, "remask", None) is not None

    def _send(self, loop: asyncio.AbstractEventLoop, message: Message) -> None:
        """Send a message when there is room for it; raise `Stopped` if `stop` is set."""
        while True:
            if self.stop.is_set():
                raise Stopped
            if self._room.acquire(timeout=LOOK_AGAIN):
                break
        self._put(loop, message)

    def _put(self, loop: asyncio.AbstractEventLoop, message: Message | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            loop.call_soon_threadsafe(self._messages.put_nowait, message)

    def _beginning(self) -> dict[str, Any]:
        """What the player needs before the first step."""
        request = self.requests[0]
        slots = sum(getattr(request.canvas, "free", ()))  # unset steps mean one for each slot
        return {
            "prompt": request.prompt,
            "segments": self.model.family.counts_segments,
            "planned": getattr(self.options, "steps", None) or slots or None,
        }

    def _result(self, trace: Trace) -> dict[str, Any]:
        trace = replace(trace, task_id=self.wanted.task)
        name = f"{Path(self.wanted.model).name}-{trace.policy}-seed{trace.seed}"
        return {
            "payload": pack([TraceGroup(self.wanted.title, [trace], timed=True)]),
            "text": trace.text,
            "steps": trace.steps,
            "line": trace.to_jsonl(),
            "file": "".join(c if c.isalnum() or c in "-_." else "_" for c in name) + ".jsonl",
            "command": command_for(self.wanted),
        }


def command_for(wanted: GenerationRequest) -> str:
    """The command that makes the same sample, with its run folder."""
    prompt = ["--prompt", wanted.prompt]
    if wanted.prompt.startswith("-"):  # else it would be read as a flag
        prompt = [f"--prompt={wanted.prompt}"]
    words = ["anyorder", "sample", wanted.model, *prompt, "--seed", str(wanted.seed)]
    given = {name: value for name, value in wanted.settings.items() if value is not False}
    return shlex.join([*words, *flags_of(given)])


class GenerationQueue:
    """Runs generations in a pool of threads, one at a time for each tab."""

    def __init__(self, models: LoadedModels, *, workers: int = WORKERS) -> None:
        self.models = models
        # Set in each worker, because OpenMP keeps the count per thread.
        threads = max(1, (os.cpu_count() or 1) // workers)
        self._pool = ThreadPoolExecutor(
            workers, "generation", initializer=torch.set_num_threads, initargs=(threads,)
        )
        self._lock = threading.Lock()
        self._busy: dict[str, PlayGeneration] = {}

    def prepare(self, wanted: GenerationRequest) -> PlayGeneration:
        """Load and check, without decoding; `BadInput` names the field to correct."""
        model = self.model(wanted.model)
        requests, options = prepared(model, wanted)
        return PlayGeneration(wanted, model, requests, options)

    def model(self, name: str) -> Model:
        """The model of that name; `BadInput` says why it cannot be opened."""
        try:
            return self.models.get(name)
        except (ValueError, OSError) as error:
            raise BadInput(str(error), "model") from None

    def start(self, work: PlayGeneration, loop: asyncio.AbstractEventLoop) -> None:
        """Start a generation; refused while the tab's last one runs."""
        with self._lock:
            tab = work.wanted.tab
            before = self._busy.get(tab)
            if before is not None and not before.finished.is_set():
                raise BadInput("this tab is generating: stop that first, or wait for it")
            self._busy = {
                name: each for name, each in self._busy.items() if not each.finished.is_set()
            }
            self._busy[tab] = work
        self._pool.submit(work.run, loop).add_done_callback(_raise_nothing_unseen)

    def stop(self, tab: str) -> bool:
        """Stop the tab's generation; returns whether there was one."""
        with self._lock:
            work = self._busy.get(tab)
        if work is None or work.finished.is_set():
            return False
        work.stop.set()
        return True

    def busy(self) -> int:
        """The number of unfinished generations."""
        with self._lock:
            return sum(not work.finished.is_set() for work in self._busy.values())

    def stop_all(self) -> None:
        for work in list(self._busy.values()):
            work.stop.set()

    def close(self) -> None:
        """Stop all generations and accept no more."""
        self.stop_all()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _raise_nothing_unseen(done: Future[None]) -> None:
    """Print an unexpected error of a worker, which the pool would otherwise swallow."""
    if not done.cancelled() and (error := done.exception()) is not None:
        threading.excepthook(
            threading.ExceptHookArgs((type(error), error, error.__traceback__, None))
        )


def as_event(message: Message) -> bytes:
    """One server-sent event."""
    kind, says = message
    return f"event: {kind}\ndata: {json.dumps(says, allow_nan=False)}\n\n".encode()


OFFERED = 24


def prompts_for(model: Model, count: int = OFFERED) -> list[dict[str, Any]]:
    """Name, prompt and, if the family can fill, the program with a gap."""
    problems = find_task(corpus_task(model.trained_on) or "stories", model.trained_on).problems(
        count
    )
    return [
        {"name": problem.task_id, "text": problem.prompt, "gap": with_gap(model, problem)}
        for problem in problems
    ]


def with_gap(model: Model, problem: Problem) -> str | None:
    """The prompt and its program without its middle line; None: too short, or it cannot fill."""
    lines = (problem.solution or "").splitlines(keepends=True)
    if len(lines) < 3:
        return None
    middle = len(lines) // 2
    # For a family that counts segments, the line is one segment.
    segments, line = model.family.counts_segments, lines[middle].rstrip("\n")
    length = 1 if segments else len(model.vocab.encode(line))
    for mark in (f"<fill:{length}>\n", "<fill>\n"):
        text = "".join([problem.prompt, ANSWER, *lines[:middle], mark, *lines[middle + 1 :]])
        try:
            model.prepare(text)
        except ValueError:
            continue
        return text
    return None
