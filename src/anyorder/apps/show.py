"""Traces in a terminal: one trace as it grew, and canvases as they fill.

    shaded, frames_of  tokens shaded by the step that revealed them, early ones bright; a deleted
                       slot is struck out in the step that deletes it, and then gone
    print_segments     the paper's generation trace (appendix E), for traces with recorded
                       candidates: in each step one line per segment in reading order. Revealed
                       segments are grey, the committed one is highlighted, other candidates are
                       coloured by their score within the step, and segments without one are masks
    watching           `anyorder sample --watch`: canvases in place, on standard error as progress
                       is. A step stays for a moment, which does not count as decoding time. Without
                       a terminal, the first sample of each batch is written, one line per step.
                       Decoders only call a `Watcher` (decode/canvas.py)

Figures and pages are in report/.
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

from anyorder.decode.canvas import Decoded, Watcher
from anyorder.model import Request
from anyorder.trace import Candidate, Trace
from anyorder.vocab import Vocab

STRUCK = "strike red"
SHADES = ("bold bright_yellow", "yellow", "green", "cyan", "blue", "magenta")
MASK = "░"


def shaded(trace: Trace) -> Text:
    """The final text, each token in the shade of its reveal step."""
    text = Text()
    if trace.reveal_step is None:
        return text.append(trace.text)
    for piece, step in zip(trace.pieces, trace.reveal_step.tolist(), strict=True):
        text.append(piece, style=_shade(step, trace.steps or 1))
    if not trace.text.strip():
        tokens = _visible(trace)
        return Text(f"(only white space: {tokens} tokens)" if tokens else "(empty)", style="dim")
    return text


def legend() -> Text:
    text = Text("revealed ")
    for number, shade in enumerate(SHADES):
        text.append({0: "first", len(SHADES) - 1: "last"}.get(number, "·") + " ", style=shade)
    return text


def frames_of(trace: Trace, frames: int = 6) -> list[tuple[int, Text]]:
    """Canvases of one trace, evenly spaced over its visible reveals and deletions: (step, canvas).

    Masks are blocks; the end of sequence and what follows it are left out.
    """
    assert trace.reveal_step is not None
    reveals = trace.reveal_step[: _visible(trace)].tolist()
    changes = [step for step in reveals if step <= (trace.steps or 0)]  # later: never revealed
    changes = sorted(changes + [ghost.delete_step for ghost in trace.ghosts or ()])
    if not changes:
        return [(trace.steps or 0, shaded(trace))]
    places = (round((len(changes) - 1) * number / (frames - 1)) for number in range(frames))
    return [(step, _frame(trace, step)) for step in sorted({changes[place] for place in places})]


def _frame(trace: Trace, step: int) -> Text:
    text = Text()
    now, shown = _pieces_at(trace, step), _pieces_at(trace, max(0, step - 1))
    reveal, steps = trace.timing()[1].tolist(), trace.steps or 1
    visible, ghosts = _visible(trace), trace.ghosts or ()
    for slot in trace.slot_order.tolist():
        ghost = ghosts[slot - len(reveal)] if slot >= len(reveal) else None
        if (slot if ghost is None else ghost.after) >= visible:
            continue
        if ghost is not None and ghost.delete_step == step:
            text.append(shown[slot] or MASK, style=STRUCK)
        elif slot in now:
            piece, last = now[slot], reveal[slot] if ghost is None else ghost.reveal_step or 0
            # What will still change has no shade of its own: it counts as revealed now.
            style = "dim" if piece is None else _shade(min(last, step), steps)
            text.append(MASK if piece is None else piece, style=style)
    return text


def _pieces_at(trace: Trace, step: int) -> dict[int, str | None]:
    """The slots on the canvas after `step` steps: their text, or None while masked."""
    now = trace.replay(step)
    rows = zip(now.slots.tolist(), now.pieces, now.revealed.tolist(), strict=True)
    return {slot: piece if revealed else None for slot, piece, revealed in rows}


def _visible(trace: Trace) -> int:
    """The number of tokens up to the last one with text; the rest is end and padding."""
    pieces = [number for number, piece in enumerate(trace.pieces) if piece]
    return pieces[-1] + 1 if pieces else 0


def _shade(step: int, steps: int) -> str:
    return SHADES[min(len(SHADES) - 1, (max(step, 1) - 1) * len(SHADES) // max(1, steps))]


STRENGTHS = ("dim cyan", "cyan", "bold cyan")
"""Styles of candidates, from the worst third of the scores in a step to the best."""
TAKEN, REVEALED = "bold black on yellow", "grey50"
EMPTY = "(empty)"
SCORE_WIDTH = 8


def print_segments(trace: Trace, console: Console | None = None) -> None:
    """Print all steps of one trace."""
    console = console or Console(highlight=False)
    console.print(Text(f"{trace.task_id} sample {trace.sample}", style="bold"))
    console.print(Text(trace.prompt.rstrip("\n"), style="dim"))
    for step, rows in segment_frames(trace):
        console.print(Text(f"\nstep {step}"))
        for row in rows:
            console.print(row, soft_wrap=True)


def segment_frames(trace: Trace) -> Iterator[tuple[int, list[Text]]]:
    """(step, its lines) for each step with candidates."""
    name = f"trace {trace.task_id!r} sample {trace.sample}"
    if trace.candidates is None:
        raise ValueError(
            f"{name} holds no candidates: sample it again with candidates=True (latentmdm and "
            "flexlatent can record them)"
        )
    if trace.segment is None:
        raise ValueError(f"{name} holds no segments: import it with `segment`")
    by_step: dict[int, dict[int, Candidate]] = {}
    for each in trace.candidates:
        by_step.setdefault(each.step, {})[each.segment] = each
    width = max(len(str(segment)) for segment in trace.segment.tolist())
    for step, proposed in by_step.items():
        yield step, _rows(trace, step, proposed, width)


def _rows(trace: Trace, step: int, proposed: dict[int, Candidate], width: int) -> list[Text]:
    scores = sorted(each.score for each in proposed.values() if each.score is not None)
    rows = []
    for segment, shown in sorted(_canvas(trace, step - 1).items()):
        each = proposed.get(segment)
        if each is None:
            mark, score = " ", ""
            text = Text(MASK, style="dim") if shown is None else Text(_line(shown), style=REVEALED)
        else:
            mark = ">" if each.taken else " "
            score = "" if each.score is None else f"{each.score:.2f}"
            style = TAKEN if each.taken else _strength(each.score, scores)
            text = Text(_line(each.piece), style=style)
        rows.append(Text(f"{mark} {segment:>{width}} {score:>{SCORE_WIDTH}}   ").append(text))
    return rows


def _canvas(trace: Trace, step: int) -> dict[int, str | None]:
    """The segments on the canvas after `step` steps: their text, or None while open."""
    assert trace.segment is not None
    found: dict[int, str | None] = {}
    for slot, piece in _pieces_at(trace, step).items():
        # A deleted slot has no column, thus no segment.
        segment = int(trace.segment[slot]) if slot < len(trace.segment) else -1
        if segment >= 0:
            found[segment] = None if piece is None else (found.get(segment) or "") + piece
    return found


def _strength(score: float | None, scores: Sequence[float]) -> str:
    """The style of a score among those of its step."""
    if score is None or len(scores) < 2:
        return STRENGTHS[len(STRENGTHS) // 2]
    return STRENGTHS[sum(other < score for other in scores) * len(STRENGTHS) // len(scores)]


def _line(text: str) -> str:
    """A segment on one line: the last newline is dropped, others are written as \\n."""
    plain = text.removesuffix("\n").replace("\n", "\\n").replace("\t", "    ")
    return plain if plain.strip() else repr(text) if text else EMPTY


MASKED, OPENED, FRESH, DONE, PROMPT = "dim", "bold cyan", "bold reverse", "", "dim italic"
MASKED_AGAIN = "bold red"
LINE_END, END = "↵", "·"
OPEN_LINE = 8 * MASK + "\n"
"""An open segment; most segments become a line."""
STEP_SECONDS, REST_SECONDS = 0.05, 0.6
"""How long a step, and the finished canvases of a batch, stay visible."""
PANEL_LINES = 14
"""Lines for one sample; as many samples are shown as fit."""

BatchWatcher = Callable[[Sequence[Request]], Watcher]
"""(samples that are decoded together) -> their watcher."""


def pieces(vocab: Vocab, token_ids: Sequence[int]) -> list[str | None]:
    """The text of each slot: None for a mask, "" for a token without text such as the end."""
    text, spans = vocab.spans(token_ids)
    shown: list[str | None] = []
    start = 0
    for token, (_, end) in zip(token_ids, spans, strict=True):
        shown.append(None if token == vocab.mask_id else text[start:end])
        start = end
    return shown


def canvas_text(vocab: Vocab, seen: Decoded) -> Text:
    """One row's canvas, with masks and with the last step's changes highlighted."""
    text = Text()
    mask = MASK if seen.segment is None else OPEN_LINE
    rows = zip(pieces(vocab, seen.token_ids), seen.insert_step, seen.reveal_step, strict=True)
    again, struck = set(seen.masked_again), _struck(vocab, seen)
    ended = False
    text.append(struck.get(-1, ""), style=STRUCK)
    for place, (token, row) in enumerate(zip(seen.token_ids, rows, strict=True)):
        piece, inserted, revealed = row
        fresh = revealed == seen.step
        if piece is None:
            new = OPENED if inserted == seen.step else MASKED
            text.append(mask, style=MASKED_AGAIN if place in again else new)
        elif not piece:
            text.append(END, style=FRESH if fresh else MASKED)
        elif fresh and not piece.strip():  # new white space would be invisible
            text.append(piece.replace("\n", LINE_END), style=FRESH).append("\n" * ("\n" in piece))
        else:
            text.append(piece, style=FRESH if fresh else MASKED if ended else DONE)
        text.append(struck.get(place, ""), style=STRUCK)
        ended = ended or token in vocab.end_ids
    return text


def _struck(vocab: Vocab, seen: Decoded) -> dict[int, str]:
    """Place -> the text behind it that the last step deleted; -1: before all."""
    found: dict[int, str] = {}
    for ghost in seen.ghosts:
        if ghost.delete_step == seen.step:
            piece = MASK if ghost.token_id is None else vocab.decode([ghost.token_id])
            found[ghost.after] = found.get(ghost.after, "") + piece.replace("\n", LINE_END)
    return found


def caption(vocab: Vocab, seen: Decoded) -> str:
    """The step of a row, and its numbers of tokens and masks."""
    masks = sum(token == vocab.mask_id for token in seen.token_ids)
    again = f" ({len(seen.masked_again)} of them again)" if seen.masked_again else ""
    return f"step {seen.step}: {len(seen.token_ids) - masks} shown, {masks} masked{again}"


@contextmanager
def watching(vocab: Vocab, total: int, *, console: Console | None = None) -> Iterator[BatchWatcher]:
    """Yield a function that makes the watcher of a batch; `total`: samples of all batches."""
    console = console or Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        print(
            "no terminal here: --watch writes a line for each step of the first sample of a batch",
            file=console.file,
        )
        yield lambda requests: _lines(vocab, requests[0], console)
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        canvases = _LiveCanvases(vocab, total, live)
        yield canvases.begin
        canvases.rest()


class _LiveCanvases:
    """Draws the canvases of one batch after another in place."""

    def __init__(self, vocab: Vocab, total: int, live: Live) -> None:
        self.vocab, self.total, self.live = vocab, total, live
        self.requests: Sequence[Request] = ()
        self.latest: dict[int, Decoded] = {}
        self.begun = 0
        self.due = -math.inf

    def begin(self, requests: Sequence[Request]) -> Watcher:
        self.rest()
        self.requests, self.latest = requests, {}
        self.begun += len(requests)
        return self.show

    def show(self, rows: Sequence[Decoded]) -> None:
        self.latest |= {row.row: row for row in rows}
        self._wait(STEP_SECONDS)
        self.live.update(self._frame(), refresh=True)

    def rest(self) -> None:
        """Let the finished canvases stay for a moment."""
        if self.latest:
            self._wait(REST_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Wait until the last frame was visible long enough; the next one stays for `seconds`."""
        now = time.monotonic()
        if self.due > now:
            time.sleep(self.due - now)
        self.due = max(now, self.due) + seconds

    def _frame(self) -> RenderableType:
        fit = max(1, (self.live.console.height - 2) // PANEL_LINES)
        shown = [self.latest[number] for number in sorted(self.latest)[:fit]]
        more = len(self.requests) - len(shown)
        first = self.begun - len(self.requests) + 1
        line = f"sample {first} to {self.begun}" if first < self.begun else f"sample {first}"
        line += f" of {self.total}"
        if more > 0:
            line += f"; {more} more are decoded with {'these' if len(shown) > 1 else 'this one'}"
            line += " (--batch 1: one by one)"
        return Group(Text(line, style="dim"), *map(self._panel, shown))

    def _panel(self, seen: Decoded) -> Panel:
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
    def watch(rows: Sequence[Decoded]) -> None:
        for row in rows:
            if row.row == 0:
                parts = [MASK if piece is None else piece for piece in pieces(vocab, row.token_ids)]
                line = "".join(parts).replace("\n", LINE_END)
                name = f"{request.task_id} sample {request.sample}"
                print(f"{name} {caption(vocab, row)} | {line}", file=console.file)

    return watch
