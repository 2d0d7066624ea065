"""The statement tree of a sample's program, packed for the trace player.

The tree and its tokens are those of the order metrics in mode `exact` (measure/order_tree.py), so
what fills up beside the text is what CBC, RUB and OBW are computed from. Places count UTF-16 units,
as scripts in a page do, in the prompt followed by the text: a program may begin in the prompt.

    {"found": s,                            which part of the text it is (measure/syntax.py)
     "kind": [s, ...], "depth": [...],      per node, parents first; the module is node 0
     "at": [...], "size": [...],            per node: where the line that names it stands
     "owner": [...], "gap": [...], "width": [...]}

`owner`, `gap`, `width` are the Python tokens from left to right: the token's node, its distance
from the end of the one before, its length. Tokens of nobody (comments and newlines at the top) are
left out. When a token is revealed is for the reader to say: with the last of the trace's tokens
that it shares a character with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from anyorder.measure.order_tree import order_tree
from anyorder.measure.syntax import parse_answer
from anyorder.measure.syntax_statements import Statement
from anyorder.measure.syntax_tokens import NOBODY, Token
from anyorder.trace import Trace

BASIC_PLANE = 0xFFFF

# The line that names a node is cut at this length.
NAME_LIMIT = 80

_NEWLINE = re.compile(r"\r\n|\r|\n")


def pack_tree(trace: Trace, string: Callable[[str], int]) -> dict[str, Any] | None:
    """The tree of a trace's text, or None where it holds no program. `string` numbers a string."""
    parsed = parse_answer(trace.prompt, trace.text)
    if not parsed.valid or parsed.tree is None:
        return None
    statements, tokens = order_tree(parsed.tree, parsed.source, "exact")
    owned = [token for token in tokens if token.node != NOBODY]
    begin = len(trace.prompt) + parsed.offset
    units = _units(trace.prompt + trace.text)
    spans = _name_spans(parsed.source, statements, owned)
    gaps, widths, end = [], [], 0
    for token in owned:
        start, stop = units[begin + token.start], units[begin + token.end]
        gaps.append(start - end)
        widths.append(stop - start)
        end = stop
    return {
        "found": string(parsed.fallback),
        "kind": [string(statement.kind) for statement in statements],
        "depth": [statement.depth for statement in statements],
        "at": [units[begin + start] for start, _ in spans],
        "size": [units[begin + stop] - units[begin + start] for start, stop in spans],
        "owner": [token.node for token in owned],
        "gap": gaps,
        "width": widths,
    }


def _units(text: str) -> Sequence[int]:
    """Per character of a text, and for its end: how many UTF-16 units stand before it."""
    if all(ord(letter) <= BASIC_PLANE for letter in text):
        return range(len(text) + 1)
    return [0, *accumulate(1 + (ord(letter) > BASIC_PLANE) for letter in text)]


def _name_spans(
    source: str, statements: Sequence[Statement], tokens: Sequence[Token]
) -> list[tuple[int, int]]:
    """Per node: what stands of it on the line on which it begins; nothing for the module.

    From its first to its last token there, since a line may hold several statements. Decorators
    stand on lines of their own and do not name their function.
    """
    lines = _lines(source)
    places: list[list[Token]] = [[] for _ in statements]
    for token in tokens:
        places[token.node].append(token)
    spans = [(0, 0)]
    for statement in statements[1:]:
        node = statement.nodes[0]
        assert isinstance(node, ast.stmt)
        begin, stop = lines[node.lineno - 1]
        here = [token for token in places[statement.number] if begin <= token.start < stop]
        start = here[0].start if here else begin
        end = min(max((token.end for token in here), default=stop), stop)
        spans.append((start, min(end, start + NAME_LIMIT)))
    return spans


def _lines(source: str) -> list[tuple[int, int]]:
    """[start, end) of each line without its line end, cut where Python's parser cuts."""
    ends = [match.span() for match in _NEWLINE.finditer(source)]
    starts = [0, *(end for _, end in ends)]
    stops = [*(start for start, _ in ends), len(source)]
    return list(zip(starts, stops, strict=True))
