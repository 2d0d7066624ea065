"""The canvas filling in place: what `anyorder sample --watch` draws on the terminal.

It is drawn on standard error, as progress is, so that standard output stays what it was. A step is
shown for a moment at least; that time is not counted as decoding. Where there is no terminal, the
first sample of each batch is written as one line a step, and a message says so. Decoders know
nothing of this: they call a `Watcher` (decode/canvas.py).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from anyorder.apps.show import MASK
from anyorder.decode.canvas import Seen, Watcher
from anyorder.model import Request
from anyorder.vocab import Vocab

MASKED, OPENED, FRESH, DONE, PROMPT = "dim", "bold cyan", "bold reverse", "", "dim italic"
MASKED_AGAIN = "bold red"
LINE_END, END = "↵", "·"
OPEN_LINE = 8 * MASK + "\n"
"""An open segment, which will be a line as a rule."""
STEP_SECONDS, REST_SECONDS = 0.05, 0.6
"""How long a step, and the finished canvases of a batch, stay to be seen."""
PANEL_LINES = 14
"""Room for one sample; as many are shown at once as fit."""

BatchWatcher = Callable[[Sequence[Request]], Watcher]
"""(the samples that are decoded together) -> who watches them."""


def pieces(vocab: Vocab, token_ids: Sequence[int]) -> list[str | None]:
    """What each slot shows: None for a mask, "" for a token without text such as the end."""
    text, spans = vocab.spans(token_ids)
    shown: list[str | None] = []
    start = 0
    for token, (_, end) in zip(token_ids, spans, strict=True):
        shown.append(None if token == vocab.mask_id else text[start:end])
        start = end
    return shown


def canvas_text(vocab: Vocab, seen: Seen) -> Text:
    """One row's canvas: masks visible, what the last step did highlighted."""
    text = Text()
    mask = MASK if seen.segment is None else OPEN_LINE
    rows = zip(pieces(vocab, seen.token_ids), seen.insert_step, seen.reveal_step, strict=True)
    again = set(seen.masked_again)
    ended = False
    for place, (token, row) in enumerate(zip(seen.token_ids, rows, strict=True)):
        piece, inserted, revealed = row
        fresh = revealed == seen.step
        if piece is None:
            new = OPENED if inserted == seen.step else MASKED
            text.append(mask, style=MASKED_AGAIN if place in again else new)
        elif not piece:
            text.append(END, style=FRESH if fresh else MASKED)
        elif fresh and not piece.strip():  # white space alone cannot be seen to be new
            text.append(piece.replace("\n", LINE_END), style=FRESH).append("\n" * ("\n" in piece))
        else:
            text.append(piece, style=FRESH if fresh else MASKED if ended else DONE)
        ended = ended or token == vocab.eos_id
    return text


def caption(vocab: Vocab, seen: Seen) -> str:
    """Where a row stands."""
    masks = sum(token == vocab.mask_id for token in seen.token_ids)
    again = f" ({len(seen.masked_again)} of them again)" if seen.masked_again else ""
    return f"step {seen.step}: {len(seen.token_ids) - masks} shown, {masks} masked{again}"


@contextmanager
def watching(vocab: Vocab, total: int, *, console: Console | None = None) -> Iterator[BatchWatcher]:
    """Gives who watches each batch, `total` samples in all; cleans up behind itself."""
    console = console or Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        print(
            "no terminal here: --watch writes a line for each step of the first sample of a batch",
            file=console.file,
        )
        yield lambda requests: _lines(vocab, requests[0], console)
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        film = _Film(vocab, total, live)
        yield film.begin
        film.rest()


class _Film:
    """The samples of one batch after another, in place."""

    def __init__(self, vocab: Vocab, total: int, live: Live) -> None:
        self.vocab, self.total, self.live = vocab, total, live
        self.requests: Sequence[Request] = ()
        self.latest: dict[int, Seen] = {}
        self.begun = 0
        self.due = -math.inf

    def begin(self, requests: Sequence[Request]) -> Watcher:
        self.rest()
        self.requests, self.latest = requests, {}
        self.begun += len(requests)
        return self.show

    def show(self, rows: Sequence[Seen]) -> None:
        self.latest |= {row.row: row for row in rows}
        self._wait(STEP_SECONDS)
        self.live.update(self._frame(), refresh=True)

    def rest(self) -> None:
        """Let what is finished stay for a moment."""
        if self.latest:
            self._wait(REST_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Until the last frame has been there long enough; the next one stays for `seconds`."""
        now = time.monotonic()
        if self.due > now:
            time.sleep(self.due - now)
        self.due = max(now, self.due) + seconds

    def _frame(self) -> RenderableType:
        fit = max(1, (self.live.console.height - 2) // PANEL_LINES)
        shown = [self.latest[number] for number in sorted(self.latest)[:fit]]
        more = len(self.requests) - len(shown)
        told = f"sample {self.begun - len(self.requests) + 1} to {self.begun} of {self.total}"
        if len(self.requests) == 1:
            told = f"sample {self.begun} of {self.total}"
        if more > 0:
            told += f"; {more} more are decoded with {'these' if len(shown) > 1 else 'this one'}"
            told += " (--batch 1: one by one)"
        return Group(Text(told, style="dim"), *map(self._panel, shown))

    def _panel(self, seen: Seen) -> Panel:
        request = self.requests[seen.row]
        body = Text(request.prompt, style=PROMPT) + canvas_text(self.vocab, seen)
        return Panel(
            body,
            title=Text(f"{request.task_id} sample {request.sample}"),
            subtitle=Text(caption(self.vocab, seen)),
            title_align="left",
            subtitle_align="left",
            border_style="dim",
        )


def _lines(vocab: Vocab, request: Request, console: Console) -> Watcher:
    def watch(rows: Sequence[Seen]) -> None:
        for row in rows:
            if row.row == 0:
                parts = [MASK if piece is None else piece for piece in pieces(vocab, row.token_ids)]
                line = "".join(parts).replace("\n", LINE_END)
                name = f"{request.task_id} sample {request.sample}"
                print(f"{name} {caption(vocab, row)} | {line}", file=console.file)

    return watch
