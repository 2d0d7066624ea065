"""Traces packed into the JSON that the trace player reads (player/, docs/player.md).

One object for all samples of a page. Strings (pieces, prompts, task ids) stand once in a table, the
commonest piece first; everything else is a number that points into it, or a column of whole
numbers. A sample is decoded by the page only when it is looked at.

    {"format": "anyorder-traces", "version": 1,
     "strings": [...],                          the table that every "s" below points into
     "groups":  [{"run", "family", "policy"}],  what samples have in common, in words
     "trees":   [tree, ...],                    statement trees (trace_tree.py), equal ones once
     "samples": [{"group", "task": s, "sample", "prompt": s, ...columns}]}

A sample's columns, one entry per final token; a column whose entries are all equal is that one
number, and one that says nothing is left out:

    piece     s: the token's text            insert, reveal   steps; left out: 0
    logp      thousandths of a nat, negated; -1 where it is not known; left out: nowhere known
    segment   -1 for none; left out: none    score            {segment: thousandths}
    steps     the number of the last snapshot; left out where no steps were recorded

and, where there are any: `verdict` (s), `tree` (its number), `forwards`, `ties`, `seconds` (of
samples that were decoded one at a time), `events` {"step", "slot", "piece"} (-1: a mask) and
`candidates` {"step", "segment", "piece", "score", "taken"}, each a column. A sample of text alone
has one piece and no `steps`.

Rounding of log-probabilities and scores is the only loss. Nothing here draws: see player/.

The statement tree of a sample's program, packed for the trace player.

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

A generation as it happens: one small message per step for the trace player's live mode.

A decoder shows its whole canvas after every step; the player wants what changed. A message is

    {"step": s,
     "replace": [[at, [[piece, logp], ...]], ...]   an open segment at `at` became these tokens
     "insert":  [at, ...]                           new masked slots
     "show":    [[at, piece, logp], ...]            a slot shows a token
     "hide":    [at, ...]}                          a slot is masked again

to be applied in this order; keys with nothing in them are left out. Places of `replace` count in
the canvas before the step, all others in the canvas after it. `logp` is as in traces.py. The first
message is of step 0 and builds the canvas from nothing, also where a decoder shows itself only
after its first step.

It does not decode, and it knows no network: whoever serves the page calls it from a `Watcher`.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Protocol

from anyorder.measure.order_program import NOBODY, Token, order_tree
from anyorder.measure.syntax import Statement, parse_answer
from anyorder.trace import Trace
from anyorder.vocab import Vocab

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


FORMAT = "anyorder-traces"
VERSION = 1

UNKNOWN = -1
MASKED = -1

Key = tuple[str, int]
Column = list[int] | int


@dataclass(frozen=True)
class TraceGroup:
    """Samples that belong together, usually those of one run."""

    name: str
    """What the player calls the run."""
    traces: Sequence[Trace]
    verdicts: Mapping[Key, str] = field(default_factory=dict)
    """(task id, sample) -> a name of bench/verdicts.py; samples without one carry no mark."""
    timed: bool = False
    """Whether samples were decoded one at a time: the seconds of a batch are nobody's own."""


def pack(groups: Sequence[TraceGroup], *, trees: bool = True) -> dict[str, Any]:
    """The payload of a page. `trees` adds the statement tree of every text that parses."""
    packer = _Packer(_pieces(groups), trees)
    samples = [packer.sample(group, trace) for group in groups for trace in group.traces]
    return {
        "format": FORMAT,
        "version": VERSION,
        "strings": list(packer.strings),
        "groups": [
            {"run": run, "family": family, "policy": policy}
            for run, family, policy in packer.groups
        ],
        "trees": packer.tree_list,
        "samples": samples,
    }


def embed(payload: Mapping[str, Any]) -> str:
    """The payload as JSON that may stand inside a <script> element of any page."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c")


class _Packer:
    """The tables that samples share, grown as samples come."""

    def __init__(self, pieces: Iterable[str], trees: bool) -> None:
        self.strings: dict[str, int] = {piece: number for number, piece in enumerate(pieces)}
        self.groups: dict[tuple[str, str | None, str | None], int] = {}
        self.tree_list: list[dict[str, Any]] = []
        self._trees: dict[tuple[str, str], int | None] | None = {} if trees else None

    def sample(self, group: TraceGroup, trace: Trace) -> dict[str, Any]:
        common = (group.name, trace.family, trace.policy)
        verdict = group.verdicts.get((trace.task_id, trace.sample))
        packed: dict[str, Any] = {
            "group": self.groups.setdefault(common, len(self.groups)),
            "task": self._string(trace.task_id),
            "sample": trace.sample,
            "prompt": self._string(trace.prompt),
        }
        if verdict is not None:
            packed["verdict"] = self._string(verdict)
        for name in ("forwards", "ties"):
            if getattr(trace, name) is not None:
                packed[name] = getattr(trace, name)
        if group.timed and trace.seconds is not None:
            packed["seconds"] = round(trace.seconds, 3)
        packed.update(self._tokens(trace))
        if self._trees is not None:
            number = self._tree(trace)
            if number is not None:
                packed["tree"] = number
        return packed

    def _tokens(self, trace: Trace) -> dict[str, Any]:
        packed: dict[str, Any] = {"piece": [self._string(piece) for piece in _shown(trace)]}
        if trace.insert_step is None or trace.reveal_step is None:
            return packed
        packed["steps"] = trace.steps
        columns = {
            "insert": (trace.insert_step.tolist(), 0),
            "reveal": (trace.reveal_step.tolist(), 0),
            "logp": (_milli(trace.log_prob, -1000), UNKNOWN),
            "segment": ([] if trace.segment is None else trace.segment.tolist(), -1),
        }
        for name, (values, silent) in columns.items():
            column = _column(values)
            if column not in (silent, []):
                packed[name] = column
        if score := _segment_scores(trace):
            packed["score"] = score
        if trace.events:
            packed["events"] = self._events(trace)
        if trace.candidates:
            packed["candidates"] = self._candidates(trace)
        return packed

    def _events(self, trace: Trace) -> dict[str, Any]:
        events = trace.events or ()
        return {
            "step": _column([event.step for event in events]),
            "slot": _column([event.slot for event in events]),
            "piece": _column(
                [MASKED if event.piece is None else self._string(event.piece) for event in events]
            ),
        }

    def _candidates(self, trace: Trace) -> dict[str, Any]:
        found = trace.candidates or ()
        return {
            "step": _column([each.step for each in found]),
            "segment": _column([each.segment for each in found]),
            "piece": _column([self._string(each.piece) for each in found]),
            "score": [None if each.score is None else round(1000 * each.score) for each in found],
            "taken": _column([int(each.taken) for each in found]),
        }

    def _tree(self, trace: Trace) -> int | None:
        assert self._trees is not None
        key = (trace.prompt, trace.text)
        if key not in self._trees:
            tree = pack_tree(trace, self._string)
            self._trees[key] = None if tree is None else len(self.tree_list)
            if tree is not None:
                self.tree_list.append(tree)
        return self._trees[key]

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))


def _pieces(groups: Sequence[TraceGroup]) -> Iterator[str]:
    """Every piece, the commonest first: small numbers are short."""
    count = Counter(piece for group in groups for trace in group.traces for piece in _shown(trace))
    return (piece for piece, _ in count.most_common())


def _shown(trace: Trace) -> tuple[str, ...]:
    return (trace.text,) if trace.char_end is None else trace.pieces


def _column(values: list[int]) -> Column:
    """A list, or the one number that all its entries are."""
    return values[0] if values and values.count(values[0]) == len(values) else values


def _milli(values: Iterable[float] | None, scale: int) -> list[int]:
    """Whole thousandths; rounding may not turn a known value into the sign for none."""
    if values is None:
        return []
    numbers = (float(value) for value in values)
    return [UNKNOWN if math.isnan(value) else max(0, round(scale * value)) for value in numbers]


def _segment_scores(trace: Trace) -> dict[str, int]:
    """A segment's score stands at each of its tokens in the trace, here once."""
    if trace.segment is None or trace.score is None:
        return {}
    pairs = zip(trace.segment.tolist(), trace.score.tolist(), strict=True)
    return {
        str(segment): round(1000 * score)
        for segment, score in pairs
        if segment >= 0 and not math.isnan(score)
    }


class CanvasSeen(Protocol):
    """One canvas after a step; decode/canvas.py: Decoded is one. Open slots hold the mask id.

    `segment`, where the decoder gives it (a list, one number per item), says which items belong to
    one segment; an open segment is a single item.
    """

    @property
    def step(self) -> int: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def insert_step(self) -> Sequence[int]: ...
    @property
    def reveal_step(self) -> Sequence[int]: ...
    @property
    def log_prob(self) -> Sequence[float]: ...


@dataclass
class _Item:
    piece: str | None
    """None while it is masked."""
    logp: int


@dataclass(frozen=True)
class _Start:
    """The canvas before the first step, told from the one after it."""

    token_ids: list[int]
    insert_step: list[int]
    reveal_step: list[int]
    log_prob: list[float]
    segment: list[int] | None
    step: int = 0

    @classmethod
    def of(cls, seen: CanvasSeen, mask_id: int) -> _Start:
        """What was there from the start, masked unless it was given; an open segment once."""
        segment: Sequence[int] | None = getattr(seen, "segment", None)
        ids: list[int] = []
        numbers: list[int] = []
        for at, number in enumerate(seen.token_ids):
            if seen.insert_step[at] > 0:
                continue
            given = number != mask_id and seen.reveal_step[at] == 0
            place = at if segment is None or segment[at] < 0 else segment[at]
            if not given and segment is not None and numbers[-1:] == [place]:
                continue
            ids.append(number if given else mask_id)
            numbers.append(place)
        zeros = [0] * len(ids)
        nans = [math.nan] * len(ids)
        return cls(ids, zeros, zeros, nans, None if segment is None else numbers)


@dataclass
class LiveSteps:
    """The messages of one generation, asked for once per step, in order."""

    vocab: Vocab
    cuts: bool = True
    """Whether nothing is shown after an end of sequence, as in a trace's text. Not where an end may
    still become another token: a trace then holds all that was shown behind it."""
    _before: list[list[_Item]] = field(default_factory=list)
    """The canvas of the last message: its segments, or its slots one by one."""
    _last: int = -1
    """The step of the last message."""

    def messages(self, seen: CanvasSeen) -> list[dict[str, Any]]:
        """What changed since the last call; the first call tells of step 0 as well."""
        told = []
        if self._last < 0 < seen.step:
            told.append(self.message(_Start.of(seen, self.vocab.mask_id)))
        return [*told, self.message(seen)]

    def message(self, seen: CanvasSeen) -> dict[str, Any]:
        """The same for who shows step 0 too."""
        segment: Sequence[int] | None = getattr(seen, "segment", None)
        blocks = _blocks(self._items(seen, cut=self.cuts and segment is None), segment)
        is_new = self._new_blocks(seen, blocks)
        found = _Changes()
        before = iter(self._before)
        for block, new in zip(blocks, is_new, strict=True):
            found.add(block, None if new else next(before))
        self._before = blocks
        self._last = seen.step
        return found.message(seen.step)

    def _new_blocks(self, seen: CanvasSeen, blocks: list[list[_Item]]) -> list[bool]:
        """Which blocks were not there before: inserted since the last message."""
        flags, at = [], 0
        for block in blocks:
            flags.append(seen.insert_step[at] > self._last)
            at += len(block)
        if flags.count(False) != len(self._before):
            raise ValueError(
                f"step {seen.step}: {flags.count(False)} old slots where there were "
                f"{len(self._before)}; a decoder of segments must say `segment` for each item"
            )
        return flags

    def _items(self, seen: CanvasSeen, *, cut: bool) -> list[_Item]:
        pieces = self._pieces(seen.token_ids, cut)
        return [
            _Item(piece, UNKNOWN if math.isnan(value) else max(0, round(-1000 * value)))
            for piece, value in zip(pieces, seen.log_prob, strict=True)
        ]

    def _pieces(self, ids: Sequence[int], cut: bool) -> list[str | None]:
        """What each slot shows. `cut`: nothing after an end of sequence, as in a trace's text."""
        pieces: list[str | None] = [None] * len(ids)
        ended = False
        start = 0
        while start < len(ids):
            stop = start
            while stop < len(ids) and ids[stop] != self.vocab.mask_id:
                stop += 1
            run = list(ids[start:stop])
            kept = run.index(self.vocab.eos_id) if cut and self.vocab.eos_id in run else len(run)
            text, spans = self.vocab.spans(run[: 0 if ended else kept])
            ends = [0, *(end for _, end in spans)]
            texts = [text[a:b] for a, b in pairwise(ends)]
            pieces[start:stop] = texts + [""] * (len(run) - len(texts))
            ended = ended or kept < len(run)
            start = stop + 1
        return pieces


@dataclass
class _Changes:
    replace: list[Any] = field(default_factory=list)
    insert: list[int] = field(default_factory=list)
    show: list[Any] = field(default_factory=list)
    hide: list[int] = field(default_factory=list)
    _old: int = 0
    _new: int = 0

    def add(self, block: list[_Item], before: list[_Item] | None) -> None:
        """The next block of the canvas, and what it was."""
        if before is None:
            self.insert += range(self._new, self._new + len(block))
            before = [_Item(None, UNKNOWN)] * len(block)
        else:
            at = self._old
            self._old += len(before)
            if len(before) != len(block):
                assert len(before) == 1, "only an open segment changes its length"
                self.replace.append([at, [[item.piece, item.logp] for item in block]])
                before = block
        for at, (item, was) in enumerate(zip(block, before, strict=True), self._new):
            if item.piece != was.piece:
                if item.piece is None:
                    self.hide.append(at)
                else:
                    self.show.append([at, item.piece, item.logp])
        self._new += len(block)

    def message(self, step: int) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("replace", "insert", "show", "hide")}
        return {"step": step, **{name: value for name, value in parts.items() if value}}


def _blocks(items: list[_Item], segment: Sequence[int] | None) -> list[list[_Item]]:
    """Items of one segment together; each alone where there are no segments."""
    if segment is None:
        return [[item] for item in items]
    blocks: list[list[_Item]] = []
    last: int | None = None
    for item, number in zip(items, segment, strict=True):
        if number != last or number < 0:
            blocks.append([])
        blocks[-1].append(item)
        last = number
    return blocks
