"""Traces packed into the JSON that the trace player reads (player/, docs/player.md).

One object holds all samples of a page. Strings (pieces, prompts, task ids) are stored once, the
commonest piece first. Everything else is a number that points into that table, or a column of whole
numbers. The page decodes a sample only when somebody looks at it.

    {"format": "anyorder-traces", "version": 1,
     "strings": [...],                          the table that every "s" below points into
     "groups":  [{"run", "family", "policy"}],  what samples have in common, in words
     "trees":   [tree, ...],                    statement trees, equal ones once
     "samples": [{"group", "task": s, "sample", "prompt": s, ...columns}]}

A sample's columns have one entry per final token. A column whose entries are all equal is that one
number. A column without information is left out:

    piece     s: the token's text            insert, reveal   steps; left out: 0
    logp      thousandths of a nat, negated; -1: unknown; left out: unknown everywhere
    segment   -1 for none; left out: none    score            {segment: thousandths}
    steps     the number of the last snapshot; left out where no steps were recorded

and, where they exist: `verdict` (s), `tree` (its number), `forwards`, `ties`, `seconds` (of
samples that were decoded one at a time), `events` {"step", "slot", "piece"} (-1: a mask),
`candidates` {"step", "segment", "piece", "score", "taken"} and `ghosts` {"after", "insert",
"reveal", "delete", "piece"} (-1: deleted as a mask), each a column; ghost g of N pieces is slot
N + g (trace/events.py). A sample of text alone has one piece and no `steps`. Rounding of
log-probabilities and scores is the only loss.

The statement tree is that of the order metrics in mode `exact` (measure/order_program.py), so the
player shows the tree from which CBC, RUB and OBW are computed. Places count UTF-16 units, as
scripts in a page do, in the prompt followed by the text: a program may begin in the prompt.

    {"found": s,                            which part of the text it is (measure/syntax.py)
     "kind": [s, ...], "depth": [...],      per node, parents first; the module is node 0
     "at": [...], "size": [...],            per node: the span of the line that names it
     "owner": [...], "gap": [...], "width": [...]}

`owner`, `gap`, `width` describe the Python tokens from left to right: the token's node, its
distance from the end of the one before, its length. Tokens without a node (comments and newlines at
the top) are left out. A Python token is revealed with the last trace token that overlaps it.

Live mode sends one message per step, with the changes of the canvas since the last message:

    {"step": s,
     "replace": [[at, [[piece, logp], ...]], ...]   an open segment at `at` became these tokens
     "delete":  [at, ...]                           slots that are gone
     "insert":  [at, ...]                           new masked slots
     "show":    [[at, piece, logp], ...]            a slot shows a token
     "hide":    [at, ...]}                          a slot is masked again

Apply `replace` and `delete` first, from right to left, then the others in this order; empty keys
are left out. Places of these two count in the canvas before the step, all others in the canvas
after it. The first message is of step 0 and builds the canvas from nothing, also where a decoder
shows itself only after its first step.

Nothing here draws (player/), decodes or serves: a server calls `LiveSteps` from a `Watcher`.
"""

from __future__ import annotations

import ast
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Protocol

from anyorder.measure.order_program import NO_STATEMENT, Token, order_tree
from anyorder.measure.syntax import Statement, line_spans, parse_answer
from anyorder.trace import Ghost, Trace
from anyorder.vocab import Vocab

BASIC_PLANE = 0xFFFF

# The line that names a node is cut at this length.
NAME_LIMIT = 80


def pack_tree(trace: Trace, string: Callable[[str], int]) -> dict[str, Any] | None:
    """The tree of a trace's text; None if it holds no program. `string` numbers a string."""
    parsed = parse_answer(trace.prompt, trace.text)
    if not parsed.valid or parsed.tree is None:
        return None
    statements, tokens = order_tree(parsed.tree, parsed.source, "exact")
    owned = [token for token in tokens if token.node != NO_STATEMENT]
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
    """The UTF-16 units before each character of a text, and before its end."""
    if all(ord(letter) <= BASIC_PLANE for letter in text):
        return range(len(text) + 1)
    return [0, *accumulate(1 + (ord(letter) > BASIC_PLANE) for letter in text)]


def _name_spans(
    source: str, statements: Sequence[Statement], tokens: Sequence[Token]
) -> list[tuple[int, int]]:
    """Per node: its span on the line on which it begins; empty for the module.

    The span goes from its first to its last token there, since a line may hold several statements.
    A decorator is on another line and does not name its function.
    """
    lines = line_spans(source)
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


FORMAT = "anyorder-traces"
VERSION = 1

UNKNOWN = -1
MASKED = -1
NO_SEGMENT = -1

SampleKey = tuple[str, int]
Column = list[int] | int


@dataclass(frozen=True)
class TraceGroup:
    """Samples that belong together, usually those of one run."""

    name: str
    """The run's name in the player."""
    traces: Sequence[Trace]
    verdicts: Mapping[SampleKey, str] = field(default_factory=dict)
    """(task id, sample) -> a verdict of bench/checks.py; samples without one carry no mark."""
    timed: bool = False
    """Whether samples were decoded one at a time: the seconds of a batch belong to no sample."""
    code: bool = True
    """Whether the texts are programs, which have statement trees."""


def pack(groups: Sequence[TraceGroup], *, trees: bool = True) -> dict[str, Any]:
    """The payload of a page. `trees` adds the statement tree of every program that parses."""
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
    """The payload as JSON that is safe inside a <script> element of any page."""
    # A sampled text may hold "</script>", which would end the element: no "<" is left as it is.
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c")


class _Packer:
    """Packs samples, and collects the tables that they share."""

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
        if self._trees is not None and group.code:
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
        if trace.ghosts:
            packed["ghosts"] = self._ghosts(trace.ghosts)
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

    def _ghosts(self, ghosts: Sequence[Ghost]) -> dict[str, Any]:
        reveals = [-1 if ghost.reveal_step is None else ghost.reveal_step for ghost in ghosts]
        return {
            "after": [ghost.after for ghost in ghosts],
            "insert": _column([ghost.insert_step for ghost in ghosts]),
            "reveal": _column(reveals),
            "delete": _column([ghost.delete_step for ghost in ghosts]),
            "piece": _column(
                [MASKED if ghost.piece is None else self._string(ghost.piece) for ghost in ghosts]
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
        key = (trace.prompt, trace.text)  # equal samples share one tree
        if key not in self._trees:
            tree = pack_tree(trace, self._string)
            self._trees[key] = None if tree is None else len(self.tree_list)
            if tree is not None:
                self.tree_list.append(tree)
        return self._trees[key]

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))


def _pieces(groups: Sequence[TraceGroup]) -> Iterator[str]:
    """Every piece, the commonest first, because small numbers are short in JSON."""
    count = Counter(piece for group in groups for trace in group.traces for piece in _shown(trace))
    return (piece for piece, _ in count.most_common())


def _shown(trace: Trace) -> tuple[str, ...]:
    return (trace.text,) if trace.char_end is None else trace.pieces


def _column(values: list[int]) -> Column:
    """The list, or one number if all entries are equal."""
    return values[0] if values and values.count(values[0]) == len(values) else values


def _milli(values: Iterable[float] | None, scale: int) -> list[int]:
    """Whole thousandths, at least 0: rounding must not turn a known value into `UNKNOWN`."""
    if values is None:
        return []
    numbers = (float(value) for value in values)
    return [UNKNOWN if math.isnan(value) else max(0, round(scale * value)) for value in numbers]


def _segment_scores(trace: Trace) -> dict[str, int]:
    """The score of each segment, once; a trace repeats it at each token."""
    if trace.segment is None or trace.score is None:
        return {}
    pairs = zip(trace.segment.tolist(), trace.score.tolist(), strict=True)
    return {
        str(segment): round(1000 * score)
        for segment, score in pairs
        if segment >= 0 and not math.isnan(score)
    }


class CanvasSeen(Protocol):
    """One canvas after a step, such as `Decoded` (decode/canvas.py). Open slots hold the mask id.

    A decoder of segments adds `segment`, a list with the segment of each item. An open segment is a
    single item. One that deletes slots adds `ghosts` (trace/events.py).
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
    """The canvas before the first step, derived from the one after it."""

    token_ids: list[int]
    insert_step: list[int]
    reveal_step: list[int]
    log_prob: list[float]
    segment: list[int] | None
    step: int = 0

    @classmethod
    def of(cls, seen: CanvasSeen, mask_id: int) -> _Start:
        """Slots that were there from the start, masked unless given; an open segment once."""
        segment: Sequence[int] | None = getattr(seen, "segment", None)
        owners = [NO_SEGMENT] * len(seen.token_ids) if segment is None else segment
        places = range(len(seen.token_ids))
        items: list[tuple[float, int, int, int | None, int]] = list(
            zip(places, seen.token_ids, seen.insert_step, seen.reveal_step, owners, strict=True)
        )
        for ghost in getattr(seen, "ghosts", ()):  # the first step may delete what was there
            token = mask_id if ghost.token_id is None else ghost.token_id
            behind = ghost.after + 0.5
            items.append((behind, token, ghost.insert_step, ghost.reveal_step, NO_SEGMENT))
        ids: list[int] = []
        numbers: list[int] = []
        for _, token, insert, reveal, owner in sorted(items, key=lambda item: item[0]):
            given = token != mask_id and reveal == 0
            seen_before = owner != NO_SEGMENT and numbers[-1:] == [owner]
            if insert > 0 or (seen_before and not given):
                continue
            ids.append(token if given else mask_id)
            numbers.append(owner)
        zeros = [0] * len(ids)
        nans = [math.nan] * len(ids)
        return cls(ids, zeros, zeros, nans, None if segment is None else numbers)


@dataclass
class LiveSteps:
    """The messages of one generation. Call it once per step, in order."""

    vocab: Vocab
    cuts: bool = True
    """Whether to show nothing after an end of sequence, as in a trace's text. Set it to False if an
    end may still become another token: a trace then holds the tokens behind it too."""
    _before: list[list[_Item]] = field(default_factory=list)
    """The canvas of the last message: its segments, or its slots one by one."""
    _last: int = -1
    """The step of the last message."""

    def messages(self, seen: CanvasSeen) -> list[dict[str, Any]]:
        """The changes since the last call; the first call adds a message for step 0."""
        is_first = self._last < 0 < seen.step
        first = [self.message(_Start.of(seen, self.vocab.mask_id))] if is_first else []
        return [*first, self.message(seen)]

    def message(self, seen: CanvasSeen) -> dict[str, Any]:
        """The changes since the last call, for decoders that show step 0 themselves."""
        segment: Sequence[int] | None = getattr(seen, "segment", None)
        blocks = _blocks(self._items(seen, cut=self.cuts and segment is None), segment)
        gone = self._deleted(seen)
        found = _Changes()
        # Slots never change their order, so old blocks pair up with the last canvas in sequence.
        before = deque(self._before)
        found.remove(before, gone.pop(-1, 0))
        at = -1
        for block in blocks:
            at += len(block)  # its last item: whole blocks are deleted, never a part of one
            new = seen.insert_step[at] > self._last
            if not new and not before:
                raise _unpaired(seen, "more")
            found.add(block, None if new else before.popleft())
            found.remove(before, gone.pop(at, 0))
        if before or gone:
            raise _unpaired(seen, "fewer")
        self._before = blocks
        self._last = seen.step
        return found.message(seen.step)

    def _deleted(self, seen: CanvasSeen) -> dict[int, int]:
        """Place -> how many items behind it were on the last canvas and are gone."""
        ghosts: Sequence[Ghost] = getattr(seen, "ghosts", ())
        return dict(
            Counter(
                ghost.after
                for ghost in ghosts
                if ghost.insert_step <= self._last < ghost.delete_step <= seen.step
            )
        )

    def _items(self, seen: CanvasSeen, *, cut: bool) -> list[_Item]:
        pieces = self._pieces(seen.token_ids, cut)
        return [
            _Item(piece, UNKNOWN if math.isnan(value) else max(0, round(-1000 * value)))
            for piece, value in zip(pieces, seen.log_prob, strict=True)
        ]

    def _pieces(self, ids: Sequence[int], cut: bool) -> list[str | None]:
        """The text of each slot, None if masked. `cut`: show nothing after an end of sequence."""
        pieces: list[str | None] = [None] * len(ids)
        ended = False
        start = 0
        while start < len(ids):
            stop = start
            while stop < len(ids) and ids[stop] != self.vocab.mask_id:
                stop += 1
            # A run between masks is decoded at once: single tokens may hold parts of a character.
            run = list(ids[start:stop])
            end = self.vocab.end_of(run) if cut else len(run)
            text, spans = self.vocab.spans(run[: 0 if ended else end], begun=start > 0)
            ends = [0, *(end for _, end in spans)]
            texts = [text[a:b] for a, b in pairwise(ends)]
            pieces[start:stop] = texts + [""] * (len(run) - len(texts))
            ended = ended or end < len(run)
            start = stop + 1
        return pieces


def _unpaired(seen: CanvasSeen, how: str) -> ValueError:
    return ValueError(
        f"step {seen.step}: {how} old slots than on the last canvas; a decoder of segments must "
        "say `segment` for each item, and one that deletes slots `ghosts`"
    )


@dataclass
class _Changes:
    replace: list[Any] = field(default_factory=list)
    delete: list[int] = field(default_factory=list)
    insert: list[int] = field(default_factory=list)
    show: list[Any] = field(default_factory=list)
    hide: list[int] = field(default_factory=list)
    _old: int = 0
    _new: int = 0

    def add(self, block: list[_Item], before: list[_Item] | None) -> None:
        """Add the next block of the canvas; `before` is its last state, None if it is new."""
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

    def remove(self, before: deque[list[_Item]], items: int) -> None:
        """Take this many items, which are gone, off the canvas before the step."""
        while items > 0 and before:
            count = len(before.popleft())
            self.delete += range(self._old, self._old + count)
            self._old += count
            items -= count

    def message(self, step: int) -> dict[str, Any]:
        names = ("replace", "delete", "insert", "show", "hide")
        parts = {name: getattr(self, name) for name in names}
        return {"step": step, **{name: value for name, value in parts.items() if value}}


def _blocks(items: list[_Item], segment: Sequence[int] | None) -> list[list[_Item]]:
    """Items grouped by segment; each item alone if there are no segments."""
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
