"""Traces in a terminal: a run in a few lines, and one trace as it grew.

Tokens are shaded by the step at which they were revealed, early ones bright. Figures and pages are
another room's work.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from anyorder.apps.cache_check import Agreement
from anyorder.trace import Run, Trace

SHADES = ("bold bright_yellow", "yellow", "green", "cyan", "blue", "magenta")
MASK = "░"


def summary(run: Run) -> dict[str, Any]:
    """What `anyorder sample --json` prints."""
    traces = list(run.traces())
    compared = {} if run.card.agreement is None else {"agreement": run.card.agreement}
    return {
        "run": str(run.folder),
        "samples": len(traces),
        "seconds": round(sum(trace.seconds or 0.0 for trace in traces), 3),
        "forwards": sum(trace.forwards or 0 for trace in traces),
        **compared,
        "texts": [
            {"task_id": trace.task_id, "sample": trace.sample, "text": trace.text}
            for trace in traces
        ],
    }


def print_run(run: Run, shown: int = 3) -> None:
    """The first few samples, coloured by order, and the run in a line."""
    console = Console(highlight=False)
    traces = list(run.traces())
    for trace in traces[:shown]:
        console.print(Text(f"{trace.task_id} sample {trace.sample}", style="bold"))
        console.print(Text(trace.prompt.rstrip("\n"), style="dim"))
        console.print(shaded(trace))
        console.print()
    if len(traces) > shown:
        console.print(f"... and {len(traces) - shown} more\n")
    if console.is_terminal:
        console.print(legend())
    tokens = sum(len(trace.reveal_step) for trace in traces if trace.reveal_step is not None)
    facts = [f"{len(traces)} {'sample' if len(traces) == 1 else 'samples'}"]
    facts += [", ".join(sorted({str(trace.policy) for trace in traces}))]
    facts += [f"{sum(trace.forwards or 0 for trace in traces)} forwards"]
    facts += [f"{sum(trace.seconds or 0 for trace in traces):.1f} s"]
    facts += [f"{sum(trace.ties or 0 for trace in traces) / max(1, tokens):.0%} ties"]
    if run.card.agreement is not None:
        cache = run.card.config["options"]["cache"]
        console.print(f"cache {cache}, {Agreement(**run.card.agreement)}", soft_wrap=True)
    console.print(f"{'; '.join(facts)}; in {run.folder}", markup=False, soft_wrap=True)


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


def film(trace: Trace, frames: int = 6) -> list[tuple[int, Text]]:
    """Moments of one trace, evenly spaced over its visible reveals: (step, canvas).

    Masks are shown as blocks; the end and what follows it are left out.
    """
    assert trace.reveal_step is not None
    reveals = sorted(trace.reveal_step[: _visible(trace)].tolist())
    if not reveals:
        return [(trace.steps or 0, shaded(trace))]
    places = (round((len(reveals) - 1) * number / (frames - 1)) for number in range(frames))
    return [(step, _frame(trace, step)) for step in sorted({reveals[place] for place in places})]


def _frame(trace: Trace, step: int) -> Text:
    text = Text()
    snapshot = trace.replay(step)
    assert trace.reveal_step is not None
    visible = _visible(trace)
    masked = set(snapshot.masked.tolist())
    for slot in snapshot.slots.tolist():
        if slot >= visible:
            continue
        if slot in masked:
            text.append(MASK, style="dim")
        else:
            text.append(
                trace.pieces[slot], style=_shade(int(trace.reveal_step[slot]), trace.steps or 1)
            )
    return text


def _visible(trace: Trace) -> int:
    """The tokens that carry text: what follows is end and padding."""
    pieces = [number for number, piece in enumerate(trace.pieces) if piece]
    return pieces[-1] + 1 if pieces else 0


def _shade(step: int, steps: int) -> str:
    return SHADES[min(len(SHADES) - 1, (max(step, 1) - 1) * len(SHADES) // max(1, steps))]
