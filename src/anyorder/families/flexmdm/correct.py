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

`correct` is the loop over rounds, `Asker` the part of a family in it, `TokenAsker` that of flexmdm.
Not here: segments (families/flexlatent/correct.py), and the record of slots (history.py).
Letters: N canvases, L positions, P positions that are read, V vocabulary, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingCanvas, Watcher, padded
from anyorder.decode.draw import Posterior, refuse_nan, role_ids, text_logits
from anyorder.decode.growing import network_time
from anyorder.decode.loop import slices
from anyorder.decode.policy import near_ties_as_ties
from anyorder.families.flexmdm.history import Move, SlotRecord, TextHistory
from anyorder.nets.denoiser import GAP_LIMIT, Inserter, Look, TrainedSchedules
from anyorder.process.schedule import Power
from anyorder.vocab import Vocab


@dataclass(frozen=True)
class CorrectionRule:
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


class TextItem(NamedTuple):
    """One item of a text: a token, or a segment."""

    ids: tuple[int, ...]
    frozen: bool = False
    grows: bool = True
    """Whether items may be inserted right after it."""


class VisitedText(NamedTuple):
    """One text between two changes, behind the frozen prefix of its canvas."""

    row: int
    """Of the request."""
    items: tuple[TextItem, ...]
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

    def after(self, move: Move) -> VisitedText:
        """The text after one more change."""
        place, items, room = move.place, list(self.items), self.room
        if move.kind != "insert":
            del items[place]
            room += 1
        if move.kind != "delete":
            items.insert(place, TextItem(move.ids))
            room -= 1
        return VisitedText(self.row, tuple(items), room)


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
    def rule(self) -> CorrectionRule: ...

    def time(self, left: float) -> float:
        """The network's time when 1 - tau is left."""
        ...

    def missing(self, texts: Sequence[VisitedText], left: Sequence[float]) -> list[list[float]]:
        """The expected number of missing items before each place of each text, and at its end."""
        ...

    def again(self, masked: Sequence[tuple[VisitedText, int]]) -> list[Answer]:
        """Mask the item at one place of each text, and ask for it at the end of time."""
        ...


@dataclass
class Visits:
    """The texts that one row visits."""

    text: VisitedText
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


def correct(asker: Asker, texts: Sequence[VisitedText], rounds: int) -> list[Visits]:
    """At most `rounds` changes of each text. All texts are asked together."""
    paths = [Visits(text) for text in texts]
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


def review(asker: Asker, texts: Sequence[VisitedText]) -> list[Review]:
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


def _score(text: VisitedText, answers: dict[int, Answer], missing: list[float]) -> float:
    expected = sum(missing[gap] for gap in text.gaps)
    complete = math.log1p(-expected) if expected < 1 else -math.inf
    return sum(answer.own for answer in answers.values()) + complete


def _insertions(asker: Asker, texts: Sequence[VisitedText]) -> list[Move | None]:
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


def _unwanted(asker: Asker, texts: Sequence[VisitedText]) -> list[tuple[dict[int, float], int]]:
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
    asker: Asker, text: VisitedText, answers: dict[int, Answer], unwanted: dict[int, float]
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


def rows_along(
    paths: Sequence[Visits], histories: Sequence[TextHistory], watch: Watcher | None
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
    rule: CorrectionRule = CorrectionRule()

    def time(self, left: float) -> float:
        return float(network_times(self.net, [left])[0])

    def missing(self, texts: Sequence[VisitedText], left: Sequence[float]) -> list[list[float]]:
        canvases = [self._canvas(text) for text in texts]
        found: list[list[float]] = [[]] * len(texts)
        for numbers, look in self._looks(canvases, left):
            expected = look.gaps.double().clamp(max=GAP_LIMIT).exp().tolist()
            for number, row in zip(numbers, expected, strict=True):
                first = len(self.prompts[texts[number].row]) - 1
                found[number] = row[first : len(canvases[number])]
        return found

    def again(self, masked: Sequence[tuple[VisitedText, int]]) -> list[Answer]:
        canvases = [self._canvas(text, place) for text, place in masked]
        found: dict[int, Answer] = {}
        for numbers, look in self._looks(canvases, [END] * len(canvases)):
            places = [len(self.prompts[masked[n][0].row]) + masked[n][1] for n in numbers]
            states = look.states[torch.arange(len(numbers)), torch.tensor(places)]
            ids = [masked[n][0].items[masked[n][1]].ids for n in numbers]
            own = torch.tensor([each[0] if each else 0 for each in ids], device=self.device)
            for part in slices(len(states), self.vocab):
                logits = text_logits(self.net.head(states[part]), self.vocab, role_ids(self.vocab))
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

    def _canvas(self, text: VisitedText, masked: int | None = None) -> list[int]:
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
    histories = [TextHistory(row, slots_of(row), vocab.mask_id) for row in rows]
    return rows_along(correct(asker, texts, rounds), histories, watch)


def _text(number: int, canvas: GrowingCanvas, row: Decoded) -> VisitedText:
    grows = iter(canvas.grows[canvas.prompt_length :])
    items = tuple(
        TextItem((token,)) if insert else TextItem((token,), frozen=True, grows=next(grows))
        for token, insert in zip(row.token_ids, row.insert_step, strict=True)
    )
    return VisitedText(number, items, canvas.room - sum(not item.frozen for item in items))


def slots_of(row: Decoded) -> list[SlotRecord]:
    """The slots of a decoded row."""
    columns = (row.insert_step, row.reveal_step, row.token_ids, row.log_prob)
    return [
        SlotRecord(insert, [(reveal, (token,))], (chance,))
        for insert, reveal, token, chance in zip(*columns, strict=True)
    ]
