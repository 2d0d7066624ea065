"""Which tokens of a sample count as code when placement is measured.

Appendix C of the paper computes everything on the positions of the extracted program. A position
of an unfinished canvas belongs to it if its *final* text does, which the trace knows:

    code    the sample's program, where it is found in the text:
              exact   as it stands there; or, where it begins as the prompt does, the rest of it
              lines   from the first to the last line that the two have in common, in order
                      (extraction may leave lines out, or put some before)
              none    nowhere, or there is none: then nothing of the sample counts
              text    no program was looked for: all tokens before the first end of sequence
    all     every token, those after the end of sequence too

A token belongs to a span of characters if it shares one with it. A token without characters of its
own (a later byte of a character, a special token) does if it stands inside the span or closes its
last character; never from the end of sequence on.

Where whole segments are revealed, an open one is looked at if any of its final tokens is inside:
then every place of its tentative text counts (decode/segment_moments.py).

Not here: extraction itself, and the networks. Letters: N tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import Run, Trace

BoolArray = NDArray[np.bool_]
Extent = tuple[int, int]
"""[first, after the last) character."""


def programs_looked_for(run: Run) -> bool:
    """Whether the samples' programs were looked for: then one without a program has no code."""
    programs = run.table(["program"]).column("program")
    return bool(programs.null_count < len(programs))


def find_program(trace: Trace, looked_for: bool = False) -> tuple[str, Extent]:
    """How the program was found in the text (exact, lines, text, none), and where."""
    if trace.program is None and not looked_for:
        return "text", (0, len(trace.text))
    program = (trace.program or "").strip("\r\n")
    if not program.strip():
        return "none", (0, 0)
    at = trace.text.find(program)
    if at >= 0:
        return "exact", (at, at + len(program))
    extent = _after_prompt(trace, program)
    if extent[1] > extent[0]:
        return "exact", extent
    extent = _common_lines(trace.text, program)
    return ("lines", extent) if extent[1] > extent[0] else ("none", (0, 0))


def _after_prompt(trace: Trace, program: str) -> Extent:
    """Where the program goes on in the text, if it begins as the prompt does."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(program, trace.prompt, strict=False))
    rest = program[sum(1 for _ in pairs) :].strip()
    at = trace.text.find(rest) if rest else -1
    if at < 0:
        return 0, 0
    line = trace.text[:at].rstrip(" \t")  # indentation is code
    return len(line), at + len(rest)


def _common_lines(text: str, program: str) -> Extent:
    """From the first to the last line that both have, in order; blank lines say nothing."""
    lines, shown, at = [], [], 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            lines.append(line.rstrip())
            shown.append((at, at + len(line.rstrip())))
        at += len(line)
    wanted = [line.rstrip() for line in program.splitlines() if line.strip()]
    matcher = SequenceMatcher(None, wanted, lines, autojunk=False)
    common = [block for block in matcher.get_matching_blocks() if block.size]
    if not common:
        return 0, 0
    return shown[common[0].b][0], shown[common[-1].b + common[-1].size - 1][1]


def _code(trace: Trace, eos_id: int | None, looked_for: bool) -> tuple[str, BoolArray]:
    how, (first, after) = find_program(trace, looked_for)
    if how == "text":
        return how, _before_end(trace, eos_id)
    assert trace.char_end is not None
    end = trace.char_end.astype(np.int64)
    start = np.concatenate([[0], end[:-1]]) if len(end) else end
    shares = (start < after) & (end > first) & (end > start)
    empty = (start == end) & (end > first) & (end <= after)
    return how, (shares | empty) & _before_end(trace, eos_id)


def _before_end(trace: Trace, eos_id: int | None) -> BoolArray:
    assert trace.token_ids is not None
    if eos_id is None:
        return np.ones(len(trace.token_ids), dtype=bool)
    return np.cumsum(trace.token_ids == eos_id) == 0


def _all(trace: Trace, eos_id: int | None, looked_for: bool) -> tuple[str, BoolArray]:
    assert trace.token_ids is not None
    return "all", np.ones(len(trace.token_ids), dtype=bool)


REGIONS: dict[str, Callable[[Trace, int | None, bool], tuple[str, BoolArray]]] = {
    "code": _code,
    "all": _all,
}


def tokens_inside(
    trace: Trace, region: str, eos_id: int | None, *, looked_for: bool = False
) -> tuple[str, BoolArray]:
    """How the region was found, and which of the trace's tokens are inside.  # N

    looked_for: a program was looked for in every sample, so a sample without one has no code.
    """
    if region not in REGIONS:
        raise ValueError(f"region={region!r}: choose {' or '.join(map(repr, REGIONS))}")
    if trace.token_ids is None or trace.char_end is None:
        raise ValueError(
            f"trace {trace.task_id!r} sample {trace.sample} holds strings, not token ids, and a "
            "network reads ids: import it with its ids (see docs/traces.md), or sample it again"
        )
    return REGIONS[region](trace, eos_id, looked_for)
