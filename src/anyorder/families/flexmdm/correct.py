"""The ask-again corrector: a finished text is asked again, item by item, and repaired.

Decoding commits early: a token is revealed before its neighbours exist, and nothing takes it back.
With the rest of the text in place the same network often knows better. After decoding, in rounds of
one change each, for a text of n items (tokens, or segments in flexlatent):

    insert    where the gap head, its clock wound back to tau = 1 - 10/(n + 10), expects more than
              `missing` items, open a slot and fill it; if nothing is missing:
    delete    delete each item in turn; if the gap that it leaves expects fewer than `unwanted`
              items at tau = 1 - 1/(n + 1) and at 1 - 10/(n + 10), the item may go
    replace   mask each item in turn; if log p(best) - log p(item) exceeds `better`, replace it

Of deletions and replacements the one with the largest gain is made: log p(best) - log p(item), or
-log of the expected number. Filling is greedy (the most likely token) whatever the temperature.
Rounds end when nothing is to be changed, when a text was there before, or at the limit. Every text
on the way has a score,

    sum of log p(item | all others), each masked in turn, + log(1 - E),

where E is the expected number of missing items at the end of time: 1 - E is a lower bound of the
probability that nothing is missing, so an incomplete text of a perfect network scores -inf. The
best text is returned, the first one unless another is better. So a text in which nothing passes a
threshold stays as it is, and a possible text never becomes impossible.

This is a heuristic. It prefers likely texts, so the law of the output is no longer the data's. It
does not change prompts and frozen text, and draws no noise.

The trace gets a step for each deletion, and two for an insertion (a mask, then its token) and for a
replacement (masked again, then revealed). Steps after the best text are not part of it, but their
calls are counted.

`correct` is the loop over rounds, `Asker` what a family does in it, `History` the record of slots.
`TokenAsker` is that of flexmdm. Not here: segments (families/flexlatent/correct.py).
Letters: N canvases, L positions, P positions that are read, V vocabulary, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas, Watcher, padded
from anyorder.decode.draw import Posterior, refuse_nan, text_logits
from anyorder.decode.growing import network_time
from anyorder.decode.loop import slices
from anyorder.decode.policy import near_ties_as_ties
from anyorder.nets.denoiser import GAP_LIMIT, Inserter, Look, TrainedSchedules
from anyorder.process.schedule import Power
from anyorder.trace.events import Change, Ghost
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class Rule:
    """The thresholds, chosen on development problems (docs/flexmdm.md)."""

    missing: float = 0.25
    """Insert where more items than this are expected."""
    unwanted: float = 0.3
    """Delete an item if fewer than this are expected in its place."""
    better: float = 1.2
    """Replace an item if another one is likelier by more than this, in nats."""
    far: float = 10.0
    near: float = 1.0
    """Items that are missing on average at the two clocks."""

    def clocks(self, items: int) -> tuple[float, float]:
        """1 - tau, far and near, for a text of so many items."""
        return self.far / (items + self.far), self.near / (items + self.near)


END = 1e-3
"""1 - tau at which masked items are asked again."""
LEAST = 1e-9
"""The least expected number that counts."""
MARGIN = 1e-3
"""A later text must score higher by this: the last digits change with the shape of the batch."""
ASKED_AT_ONCE = 1 << 14
"""Positions in one call of the network."""


Content = tuple[tuple[int, ...], ...]


class Item(NamedTuple):
    """One item of a text: a token, or a segment."""

    ids: tuple[int, ...]
    frozen: bool = False
    grows: bool = True
    """Whether items may be inserted right after it."""


class Text(NamedTuple):
    """One text between two changes, behind the frozen prefix of its canvas."""

    row: int
    """Of the request."""
    items: tuple[Item, ...]
    room: int
    """How many more items it may have."""

    @property
    def content(self) -> Content:
        return tuple(item.ids for item in self.items)

    @property
    def free(self) -> list[int]:
        """The places of the items that may change."""
        return [place for place, item in enumerate(self.items) if not item.frozen]

    @property
    def gaps(self) -> list[int]:
        """The places before which an item may be inserted."""
        if self.room < 1:
            return []
        return [0, *(place for place, item in enumerate(self.items, 1) if item.grows)]

    def after(self, move: Move) -> Text:
        """The text after one more change."""
        place, items, room = move.place, list(self.items), self.room
        if move.kind != "insert":
            del items[place]
            room += 1
        if move.kind != "delete":
            items.insert(place, Item(move.ids))
            room -= 1
        return Text(self.row, tuple(items), room)


class Move(NamedTuple):
    """One change of a text."""

    kind: Literal["insert", "delete", "replace"]
    place: int
    """Of the item that changes, or of the new one."""
    times: tuple[float, ...]
    """The network's time, for each step of the trace."""
    ids: tuple[int, ...] = ()
    """What is written."""
    log_prob: tuple[float, ...] = ()
    """Of each token of it."""


class Review(NamedTuple):
    """What the network says about a text."""

    score: float
    move: Move | None
    """The change that it asks for."""
    asked: int
    """Canvases that the network read."""


class Answer(NamedTuple):
    """What the network says about one masked item."""

    own: float
    """log p of its own content; any number if it has none."""
    best: float
    """log p of the most likely content."""
    ids: tuple[int, ...]
    """That content."""
    log_prob: tuple[float, ...]
    """Of each of its tokens."""


class Asker(Protocol):
    """The part of a family: asks its network, about many canvases at a time."""

    @property
    def rule(self) -> Rule: ...

    def time(self, left: float) -> float:
        """The network's time when 1 - tau is left."""
        ...

    def missing(self, texts: Sequence[Text], left: Sequence[float]) -> list[list[float]]:
        """The expected number of missing items before each place of each text, and at its end."""
        ...

    def again(self, masked: Sequence[tuple[Text, int]]) -> list[Answer]:
        """Mask the item at one place of each text, and ask for it at the end of time."""
        ...


@dataclass
class Path:
    """The texts that one row visits."""

    text: Text
    """The last one."""
    moves: list[Move] = field(default_factory=list)
    best: int = 0
    """How many of the moves lead to the best text."""
    score: float = -math.inf
    """Of the best text."""
    asked: int = 0
    seen: set[Content] = field(default_factory=set)

    def judge(self, review: Review) -> None:
        """Take note of the last text's score."""
        self.seen.add(self.text.content)
        self.asked += review.asked
        if not self.moves or review.score > self.score + MARGIN:
            self.best, self.score = len(self.moves), review.score

    def go(self, move: Move | None) -> bool:
        """Make a change, unless it leads back to a text that was there before."""
        if move is None or (text := self.text.after(move)).content in self.seen:
            return False
        self.text = text
        self.moves.append(move)
        return True


def correct(asker: Asker, texts: Sequence[Text], rounds: int) -> list[Path]:
    """At most `rounds` changes of each text. All texts are asked together."""
    paths = [Path(text) for text in texts]
    going = paths
    for number in range(rounds + 1):
        reviews = review(asker, [path.text for path in going])
        for path, found in zip(going, reviews, strict=True):
            path.judge(found)
        if number == rounds:
            break
        going = [path for path, found in zip(going, reviews, strict=True) if path.go(found.move)]
        if not going:
            break
    return paths


def review(asker: Asker, texts: Sequence[Text]) -> list[Review]:
    """The score of each text, and the change that it needs."""
    places = [(number, place) for number, text in enumerate(texts) for place in text.free]
    answers: list[dict[int, Answer]] = [{} for _ in texts]
    found = asker.again([(texts[number], place) for number, place in places])
    for (number, place), answer in zip(places, found, strict=True):
        answers[number][place] = answer
    at_end = asker.missing(texts, [END] * len(texts))
    moves = _insertions(asker, texts)
    asked = [2 + len(each) + (move is not None) for each, move in zip(answers, moves, strict=True)]
    rest = [number for number, move in enumerate(moves) if move is None]
    unwanted = _unwanted(asker, [texts[number] for number in rest])
    for number, (wanted, count) in zip(rest, unwanted, strict=True):
        moves[number] = _change(asker, texts[number], answers[number], wanted)
        asked[number] += count
    scores = [_score(*each) for each in zip(texts, answers, at_end, strict=True)]
    return [Review(*each) for each in zip(scores, moves, asked, strict=True)]


def _score(text: Text, answers: dict[int, Answer], missing: list[float]) -> float:
    expected = sum(missing[gap] for gap in text.gaps)
    complete = math.log1p(-expected) if expected < 1 else -math.inf
    return sum(answer.own for answer in answers.values()) + complete


def _insertions(asker: Asker, texts: Sequence[Text]) -> list[Move | None]:
    """The insertion that each text needs most, with its content; None: nothing is missing."""
    left = [asker.rule.clocks(len(text.items))[0] for text in texts]
    found: list[tuple[int, int]] = []
    for number, missing in enumerate(asker.missing(texts, left)):
        open_gaps = {gap: _rounded(missing[gap]) for gap in texts[number].gaps}
        gap = max(open_gaps, key=lambda gap: open_gaps[gap], default=None)
        if gap is not None and open_gaps[gap] > asker.rule.missing:
            found.append((number, gap))
    wider = [(texts[number].after(Move("insert", gap, ())), gap) for number, gap in found]
    moves: list[Move | None] = [None] * len(texts)
    for (number, gap), answer in zip(found, asker.again(wider), strict=True):
        times = (asker.time(left[number]), asker.time(END))
        moves[number] = Move("insert", gap, times, answer.ids, answer.log_prob)
    return moves


def _unwanted(asker: Asker, texts: Sequence[Text]) -> list[tuple[dict[int, float], int]]:
    """By place, the number expected where an item was deleted, if small; and the canvases asked."""
    left: list[tuple[int, int]] = [
        (number, place) for number, text in enumerate(texts) for place in text.free
    ]
    most: dict[tuple[int, int], float] = {}
    asked = [0] * len(texts)
    for clock in range(2):
        # The far clock expects more, so that few items are asked twice.
        shorter = [texts[number].after(Move("delete", place, ())) for number, place in left]
        lefts = [asker.rule.clocks(len(texts[number].items))[clock] for number, _ in left]
        for key, missing in zip(left, asker.missing(shorter, lefts), strict=True):
            asked[key[0]] += 1
            most[key] = max(most.get(key, 0.0), missing[key[1]])
        left = [key for key in left if most[key] < asker.rule.unwanted]
    result: list[tuple[dict[int, float], int]] = [({}, count) for count in asked]
    for number, place in left:
        result[number][0][place] = most[number, place]
    return result


def _change(
    asker: Asker, text: Text, answers: dict[int, Answer], unwanted: dict[int, float]
) -> Move | None:
    """The deletion or replacement with the largest gain; None: no gain passes its threshold."""
    now = asker.time(asker.rule.clocks(len(text.items))[0])
    gains = [
        (_rounded(-math.log(max(count, LEAST))), Move("delete", place, (now,)))
        for place, count in unwanted.items()
    ]
    for place, answer in answers.items():
        if answer.best - answer.own > asker.rule.better:
            times = (now, asker.time(END))
            move = Move("replace", place, times, answer.ids, answer.log_prob)
            gains.append((_rounded(answer.best - answer.own), move))
    return max(gains, key=lambda each: each[0], default=(0.0, None))[1]


def _rounded(value: float) -> float:
    """The last digits of a network's answer must not decide."""
    return float(near_ties_as_ties(torch.tensor(value, dtype=torch.float64)))


@dataclass(eq=False)
class Slot:
    """One item in the trace, from its insertion to its end."""

    insert: int
    shown: list[tuple[int, tuple[int, ...] | None]] = field(default_factory=list)
    """What it shows from each step on; None for a mask, which it is at first."""
    log_prob: Sequence[float] = ()
    """Of the tokens that it shows now."""
    score: float = math.nan
    gone: int | None = None
    """The step that deleted it."""

    @property
    def ids(self) -> tuple[int, ...] | None:
        return self.shown[-1][1] if self.shown else None


@dataclass
class History:
    """The record of a row that changes after decoding."""

    decoded: Decoded
    slots: list[Slot]
    """All that ever were, in the order of the text."""
    mask_id: int
    segment: int | None = None
    """The number of the first item, if items are segments. A replaced token keeps its slot; a
    replaced segment, which may have another length, gets a new one."""
    step: int = field(init=False)
    times: list[float] = field(init=False)

    def __post_init__(self) -> None:
        assert self.decoded.times is not None
        self.step, self.times = self.decoded.steps, list(self.decoded.times)

    def make(self, move: Move) -> Iterator[Decoded]:
        """Make a change; yields the row after each of its steps."""
        live = [slot for slot in self.slots if slot.gone is None]
        behind = live[move.place] if move.place < len(live) else None
        first, *more = move.times
        self._step(first)
        slot = None if move.kind == "insert" else behind
        if slot is not None and (move.kind == "delete" or self.segment is not None):
            slot.gone = self.step
        elif slot is not None:
            slot.shown.append((self.step, None))
            slot.log_prob = ()
        if move.kind != "delete" and (slot is None or slot.gone is not None):
            slot = Slot(self.step)
            at = len(self.slots) if behind is None else self.slots.index(behind)
            self.slots.insert(at, slot)
        yield self.row()
        for time in more:
            assert slot is not None
            self._step(time)
            slot.shown.append((self.step, move.ids))
            slot.log_prob = move.log_prob
            yield self.row()

    def _step(self, time: float) -> None:
        self.step += 1
        self.times.append(time)

    def row(self) -> Decoded:
        """The row as it is now."""
        row = replace(
            self.decoded,
            token_ids=[],
            insert_step=[],
            reveal_step=[],
            log_prob=[],
            steps=self.step,
            segment=None if self.segment is None else [],
            score=None if self.segment is None else [],
            times=list(self.times),
        )
        changes, of_ghosts, ghosts = list[Change](), list[Change](), list[Ghost]()
        number = self.segment
        for slot in self.slots:
            before = slot.shown if slot.ids is None else slot.shown[:-1]
            if slot.gone is None:
                changes += _changes(before, len(row.token_ids))
                _write(row, slot, number, self.mask_id)
                number = None if number is None else number + 1
            else:
                of_ghosts += _changes(before, len(ghosts))
                ghosts += _ghosts(slot, len(row.token_ids) - 1)
        changes += [each._replace(slot=len(row.token_ids) + each.slot) for each in of_ghosts]
        return replace(row, changes=sorted(changes, key=lambda each: each[:2]), ghosts=ghosts)


def _changes(shown: Sequence[tuple[int, tuple[int, ...] | None]], slot: int) -> Iterator[Change]:
    # Only tokens show several things in one slot.
    return (Change(step, slot, None if ids is None else ids[0]) for step, ids in shown)


def _ghosts(slot: Slot, after: int) -> Iterator[Ghost]:
    assert slot.ids is not None and slot.gone is not None, "what is deleted has been revealed"
    reveal = slot.shown[-1][0]
    return (Ghost(after, slot.insert, reveal, slot.gone, token, None) for token in slot.ids)


def _write(row: Decoded, slot: Slot, segment: int | None, mask_id: int) -> None:
    """Add the tokens of a slot to the columns of a row."""
    ids = slot.ids or (mask_id,)
    row.token_ids.extend(ids)
    row.insert_step.extend([slot.insert] * len(ids))
    row.reveal_step.extend([slot.shown[-1][0] if slot.ids else 0] * len(ids))
    row.log_prob.extend(slot.log_prob or [math.nan] * len(ids))
    if row.segment is not None and row.score is not None:
        assert segment is not None
        row.segment.extend([segment] * len(ids))
        row.score.extend([slot.score] * len(ids))


def rows_along(
    paths: Sequence[Path], histories: Sequence[History], watch: Watcher | None
) -> list[Decoded]:
    """The rows at their best texts; the watcher sees the steps that lead there."""
    result = [history.decoded for history in histories]
    asked = [row.forwards + path.asked for row, path in zip(result, paths, strict=True)]
    steps = [
        (number, iter([row for move in path.moves[: path.best] for row in history.make(move)]))
        for number, (path, history) in enumerate(zip(paths, histories, strict=True))
    ]
    while True:
        seen = {number: row for number, each in steps if (row := next(each, None)) is not None}
        if not seen:
            break
        for number, row in seen.items():
            result[number] = replace(row, forwards=asked[number])
        if watch is not None:
            watch([result[number] for number in seen])
    return [replace(row, forwards=count) for row, count in zip(result, asked, strict=True)]


def network_times(net: TrainedSchedules, left: Sequence[float]) -> Tensor:
    """The network's times when 1 - tau is left.  # N"""
    return network_time(torch.tensor(left, dtype=torch.float64), Power(1.0), net)


@dataclass(frozen=True)
class TokenAsker:
    """Asks a network of flexmdm about texts."""

    net: Inserter
    vocab: Vocab
    prompts: Sequence[tuple[int, ...]]
    """The frozen prefix of each row of the request."""
    device: torch.device | str = "cpu"
    rule: Rule = Rule()

    def time(self, left: float) -> float:
        return float(network_times(self.net, [left])[0])

    def missing(self, texts: Sequence[Text], left: Sequence[float]) -> list[list[float]]:
        canvases = [self._canvas(text) for text in texts]
        found: list[list[float]] = [[]] * len(texts)
        for numbers, look in self._looks(canvases, left):
            expected = look.gaps.double().clamp(max=GAP_LIMIT).exp().tolist()
            for number, row in zip(numbers, expected, strict=True):
                first = len(self.prompts[texts[number].row]) - 1
                found[number] = row[first : len(canvases[number])]
        return found

    def again(self, masked: Sequence[tuple[Text, int]]) -> list[Answer]:
        canvases = [self._canvas(text, place) for text, place in masked]
        found: dict[int, Answer] = {}
        for numbers, look in self._looks(canvases, [END] * len(canvases)):
            places = [len(self.prompts[masked[n][0].row]) + masked[n][1] for n in numbers]
            states = look.states[torch.arange(len(numbers)), torch.tensor(places)]
            ids = [masked[n][0].items[masked[n][1]].ids for n in numbers]
            own = torch.tensor([each[0] if each else 0 for each in ids], device=self.device)
            for part in slices(len(states), self.vocab):
                logits = text_logits(self.net.head(states[part]), self.vocab, self._forbidden)
                posterior = Posterior(logits)
                best = posterior.best
                columns = (posterior.log_prob(own[part]), best, posterior.log_prob(best))
                refuse_nan(columns[2])
                for number, *answer in zip(
                    numbers[part], *(column.tolist() for column in columns), strict=True
                ):
                    has, token, chance = answer
                    found[number] = Answer(has, chance, (token,), (chance,))
        return [found[number] for number in range(len(masked))]

    @property
    def _forbidden(self) -> tuple[int, ...]:
        vocab = self.vocab
        specials = (vocab.mask_id, vocab.pad_id, vocab.eos_id, vocab.bos_id)
        return tuple({token for token in specials if token is not None})

    def _canvas(self, text: Text, masked: int | None = None) -> list[int]:
        ids = [*self.prompts[text.row]]
        for place, item in enumerate(text.items):
            ids.append(self.vocab.mask_id if place == masked else item.ids[0])
        return ids

    def _looks(
        self, canvases: Sequence[Sequence[int]], left: Sequence[float]
    ) -> Iterator[tuple[list[int], Look]]:
        """(numbers of some canvases, the network's answers), by length."""
        order = sorted(range(len(canvases)), key=lambda number: len(canvases[number]))
        for numbers in grouped(order, lambda number: len(canvases[number])):
            ids, length = padded([canvases[number] for number in numbers], self.vocab.pad_id)
            real = torch.arange(ids.shape[1]) < length[:, None]
            time = network_times(self.net, [left[number] for number in numbers])
            ids, real, time = (each.to(self.device) for each in (ids, real, time))
            yield numbers, self.net.look(ids, mask=real, time=time)


def grouped(order: Sequence[int], size: Callable[[int], int]) -> Iterator[list[int]]:
    """Numbers of canvases by growing size, as many at a time as one call takes."""
    group: list[int] = []
    for number in order:
        if group and (len(group) + 1) * size(number) > ASKED_AT_ONCE:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def correct_tokens(
    net: Inserter,
    vocab: Vocab,
    canvases: Sequence[GrowingCanvas],
    rows: Sequence[Decoded],
    rounds: int,
    device: torch.device | str = "cpu",
    watch: Watcher | None = None,
) -> list[Decoded]:
    """Correct decoded rows of tokens, which belong to these canvases."""
    asker = TokenAsker(net, vocab, [each.ids[: each.prompt_length] for each in canvases], device)
    texts = [_text(number, *each) for number, each in enumerate(zip(canvases, rows, strict=True))]
    histories = [History(row, _slots(row), vocab.mask_id) for row in rows]
    return rows_along(correct(asker, texts, rounds), histories, watch)


def _text(number: int, canvas: GrowingCanvas, row: Decoded) -> Text:
    grows = iter(canvas.grows[canvas.prompt_length :])
    items = tuple(
        Item((token,)) if insert else Item((token,), frozen=True, grows=next(grows))
        for token, insert in zip(row.token_ids, row.insert_step, strict=True)
    )
    return Text(number, items, canvas.room - sum(not item.frozen for item in items))


def _slots(row: Decoded) -> list[Slot]:
    columns = (row.insert_step, row.reveal_step, row.token_ids, row.log_prob)
    return [
        Slot(insert, [(reveal, (token,))], (chance,))
        for insert, reveal, token, chance in zip(*columns, strict=True)
    ]
