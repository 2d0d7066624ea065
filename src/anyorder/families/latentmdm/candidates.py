"""Candidates for open segments: how they are written, and which of them a step takes.

Writing (`Candidates`; paper, Section 4.2). In every step each open slot has a tentative segment,
drawn token by token from its condition. Conditions change from step to step, but most candidates
change little. So the last candidate is kept as a guess, and under a new condition

    verify   one pass reads the whole guess; position j draws x_j given the guess before j
    accept   the guess up to the first x_j that differs from it, and that x_j instead
    extend   the same with the rest of the guess, then token by token, until EOS or L_seg

The noise of a draw is a function of row, slot and position alone, so the result is exactly what
writing every candidate from scratch would give. A candidate may stay unfinished, if only its first
token is needed or it can no longer be chosen; a later step can continue it.

All segments of all rows are verified and extended together, and the host reads the device once per
round. EOS closes a segment; the mask, padding, BOS and other ends of a text are never drawn.

Choosing (`SegmentSelector`; paper, appendix E). The score decides what is written first:

    nothing   (left_to_right, random)   choose, then write what is taken
    opening   (first)                   the first token of all, then the rest of what is taken
    segment   (average, minimum)        all candidates, as long as they can still be taken

In a row that takes k, a candidate is given up once the most that it can still reach (Score.bound)
is below the k-th best finished one; this changes no choice and no tie. With a slot temperature T
the choice is Gumbel-top-k over score / T: segments are drawn one after another, each with a
probability proportional to exp(score / T).

One segment may lead (`SegmentSelector.leads_above`; the tail rule first): the leftmost one that is
empty with more than that probability is taken before the others. That probability, p(first token is
EOS), is known once the first tokens are. It is the model's own, before temperature and filters, as
in all scores: greedy drawing would make every likely end a certain one. The choice does not look at
what was drawn, and the leader is drawn like all others: an order without scores stays exact. What
the leader decides, if it is empty, is not taken in that step.

Not here: conditions, canvases, and how many segments a step takes (decode.py of latentmdm and
flexlatent).
Letters: B rows, L positions, S slot numbers, T positions of a segment (L_seg), N segments, M places
in segments that a round asks about, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from anyorder.decode.draw import Draw, Posterior, pick, refuse_nan, role_ids, text_logits
from anyorder.decode.loop import HEAD_BUDGET, StepView
from anyorder.decode.policy import (
    Items,
    Policy,
    Ranking,
    Written,
    near_ties_as_ties,
    take,
    tie_noise,
)
from anyorder.nets.denoiser import SegmentCoder, SegmentDrafter
from anyorder.process.noise import Stream, uniform
from anyorder.trace.trace import Proposal
from anyorder.vocab import Vocab

Worth = Callable[[Tensor], Tensor]
"""Indices of segments being written (N') -> whether to continue each of them (N' bool)."""


@dataclass(frozen=True)
class DraftGoal:
    """How far candidates are written."""

    upto: int | None = None
    """Tokens to write of each; None: to the end."""
    worth: Worth | None = None
    """Called after every round of tokens; None: continue all."""
    step: int | None = None
    """Makes the noise fresh in every step; None: one number per row, slot and position."""


WHOLE = DraftGoal()


def never_written(vocab: Vocab) -> tuple[int, ...]:
    """The ids that no segment has.

    EOS closes segments, also where it has another role. Slots say where a text ends, so a further
    end inside a segment would cut off the segments behind it.
    """
    return tuple(sorted({*role_ids(vocab), *vocab.end_ids} - {vocab.eos_id}))


def check_frozen(segments: Iterable[Sequence[int]], most: int) -> None:
    """Refuse frozen segments with more tokens than the network's."""
    longest = max(map(len, segments), default=0)
    if longest > most:
        raise ValueError(
            f"a frozen segment has {longest} tokens, and the network's have at most {most}: break "
            "it up"
        )


class Candidates:
    """The candidates of all slots of all rows.

    `length` counts a candidate's tokens, its closing EOS included; 0: there is none yet. The first
    `checked` tokens are right under the conditions of the last `refresh`, and have their `log_prob`
    (untempered); the others are a guess. Under these conditions a segment is empty with probability
    exp(`log_empty`), whatever was drawn.
    """

    def __init__(
        self,
        net: SegmentCoder,
        vocab: Vocab,
        draw: Draw,
        keys: Tensor,
        slots: int,
        *,
        may_be_empty: bool = True,
        reuse: bool = True,
    ) -> None:
        """For rows with these noise keys (B).

        Unless a segment `may_be_empty`, EOS is never its first token. Without `reuse`, a refresh
        discards the guesses.
        """
        self.net, self.vocab, self.draw, self.reuse = net, vocab, draw, reuse
        self.may_be_empty = may_be_empty
        self.never = never_written(vocab)
        self.key = keys  # B
        shape = (len(keys), slots, net.segment_length)
        self.tokens = torch.full(shape, vocab.pad_id, device=keys.device)  # B S T
        self.log_prob = torch.zeros(shape, dtype=torch.float64, device=keys.device)  # B S T
        self.length = torch.zeros(shape[:2], dtype=torch.int64, device=keys.device)  # B S
        self.checked = torch.zeros_like(self.length)  # B S
        self.log_empty = torch.zeros(shape[:2], dtype=torch.float64, device=keys.device)  # B S

    def refresh(
        self, row: Tensor, slot: Tensor, conditions: Tensor, goal: DraftGoal = WHOLE
    ) -> None:
        """Bring the candidates of these slots (row N, slot number N) to new conditions (N D)."""
        self.checked[row, slot] = 0
        if not self.reuse:
            self.length[row, slot] = 0
        self.extend(row, slot, conditions, goal)

    def extend(
        self, row: Tensor, slot: Tensor, conditions: Tensor, goal: DraftGoal = WHOLE
    ) -> None:
        """Continue candidates under the conditions that they have been checked with."""
        if not len(row):
            return
        _Drafts(self, row, slot, self.net.write(conditions), goal).write()
        refuse_nan(self.log_prob[row, slot])

    def whole(self, row: Tensor, slot: Tensor) -> Tensor:
        """Whether candidates are finished and checked to their end.  # N"""
        length = self.length[row, slot]
        return (self.checked[row, slot] == length) & self.ends(row, slot, length)

    def ends(self, row: Tensor, slot: Tensor, length: Tensor) -> Tensor:
        """Whether segments are closed by their last token, or full.  # N"""
        last = self.tokens[row, slot, (length - 1).clamp(min=0)]
        full = length == self.tokens.shape[2]
        return full | ((last == self.vocab.eos_id) & (length > 0))

    @property
    def empty(self) -> Tensor:
        """Whether a slot's segment is EOS alone.  # B S"""
        return (self.length == 1) & (self.tokens[:, :, 0] == self.vocab.eos_id)

    def content(self, row: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Ids (N T) and lengths (N) of segments without their closing EOS; padded."""
        tokens, length = self.tokens[row, slot], self.length[row, slot]
        last = tokens.gather(1, (length - 1).clamp(min=0)[:, None])[:, 0]
        length = length - ((last == self.vocab.eos_id) & (length > 0)).long()
        beyond = torch.arange(tokens.shape[1], device=tokens.device) >= length[:, None]
        return tokens.masked_fill(beyond, self.vocab.pad_id), length

    def put(self, row: Tensor, slot: Tensor, ids: Tensor, length: Tensor) -> None:
        """Store given segments: ids N T' of `length` (N) tokens, 0 for empty ones."""
        self.tokens[row, slot, : ids.shape[1]] = ids
        room = self.tokens.shape[2]
        # A full segment has no place for EOS: its last token is written again.
        at = length.clamp(max=room - 1)
        last = self.tokens[row, slot, at]
        self.tokens[row, slot, at] = last.where(length == room, self.vocab.eos_id)
        self.length[row, slot] = self.checked[row, slot] = (length + 1).clamp(max=room)
        self.log_prob[row, slot] = torch.nan

    def proposals(
        self, row: Tensor, slot: Tensor, about: tuple[Tensor, ...], step: int
    ) -> Iterator[tuple[int, Proposal]]:
        """The candidates of slots (N) as proposals, each with the number of its request.

        `about` are the numbers of the requests, the scores, and what is taken (N each).
        """
        columns = (slot, *self.content(row, slot), *about)
        for number, ids, length, owner, score, taken in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield owner, Proposal(step, number, ids[:length], score, taken)

    def keep(self, rows: Tensor) -> None:
        """Forget the other rows."""
        for name in ("key", "tokens", "log_prob", "length", "checked", "log_empty"):
            setattr(self, name, getattr(self, name)[rows])


@dataclass(frozen=True)
class _DraftQuery:
    """One round's query to the network: the next places of every unfinished segment."""

    checked: Tensor  # N, tokens that are certain, hence the first place asked about
    held: Tensor  # N, tokens that the writer has read
    length: Tensor  # N, tokens of the guess
    counts: Tensor  # N, places asked about
    most_read: int
    """The most tokens that the writer must read of one segment."""
    ragged: bool
    """Whether it must read fewer of another segment."""
    owner: Tensor  # M, the segment of each place
    place: Tensor  # M, counted from `checked`


class _Drafts:
    """Segments being written together, round by round; finished ones drop out."""

    def __init__(
        self, store: Candidates, row: Tensor, slot: Tensor, writer: SegmentDrafter, goal: DraftGoal
    ) -> None:
        self.store, self.writer, self.goal = store, writer, goal
        self.row, self.slot = row, slot  # N
        self.index = torch.arange(len(row), device=row.device)  # N, for `worth`
        self.begun = False
        self.guessed = False
        """Whether the last round read guesses, some of which may have been wrong."""

    def write(self) -> None:
        while (ask := self._ask()) is not None:
            states = self._states(ask)
            tokens, log_prob, log_end = self._draw(states, ask)
            if not self.begun:
                self._note_empty(ask, log_end)
            self._accept(ask, tokens, log_prob)
            self.guessed = ask.most_read > int(self.begun)  # one token was certain, unless first
            self.begun = True

    def _ask(self) -> _DraftQuery | None:
        """Drop finished segments, and plan the next round; None when nothing is left."""
        store, goal = self.store, self.goal
        checked, length = store.checked[self.row, self.slot], store.length[self.row, self.slot]
        # A guess that is not closed needs one token more than it has.
        end = length + (~store.ends(self.row, self.slot, length)).long()
        if goal.upto is not None:
            end = end.clamp(max=goal.upto)
        counts = (end - checked).clamp(min=0)
        if goal.worth is not None and self.begun:
            counts = counts * goal.worth(self.index)
        # The last checked token came out of the previous round: the writer has not read it yet.
        held = (checked - 1).clamp(min=0) if self.begun else torch.zeros_like(checked)
        reads = checked + counts - 1 - held
        table = torch.stack([counts, reads, held]).T.tolist()  # the round's one synchronisation
        going = [index for index, (asked, _, _) in enumerate(table) if asked]
        if not going:
            return None
        if len(going) < len(table):
            rows = torch.tensor(going, device=counts.device)
            self.row, self.slot, self.index = self.row[rows], self.slot[rows], self.index[rows]
            self.writer = self.writer.keep(rows)
            checked, length, counts, held = (x[rows] for x in (checked, length, counts, held))
        if self.guessed:
            # The writer's cache still holds the tokens of guesses that were refused.
            self.writer.cut(held)
        # A call pads all rows to one width, and the cache has room for T tokens behind the longest
        # row too: guesses that do not fit wait for the next round.
        room = store.tokens.shape[2] - max(table[index][2] for index in going)
        counts = counts.clamp(max=room)
        total = sum(min(table[index][0], room) for index in going)
        read = [min(table[index][1], room) for index in going]
        owner = torch.arange(len(going), device=counts.device)
        owner = owner.repeat_interleave(counts, output_size=total)
        place = torch.arange(total, device=counts.device) - (counts.cumsum(0) - counts)[owner]
        ragged = min(read) < max(read)
        return _DraftQuery(checked, held, length, counts, max(read), ragged, owner, place)

    def _states(self, ask: _DraftQuery) -> Tensor:
        """The writer's states at all places.  # M D"""
        ahead = torch.arange(ask.most_read, device=self.row.device)
        column = ask.place
        states: list[Tensor] = []
        if ask.most_read:
            position = (ask.held[:, None] + ahead).clamp(max=self.store.tokens.shape[2] - 1)
            ids = self.store.tokens[self.row[:, None], self.slot[:, None], position]  # N R
            reads = ask.checked + ask.counts - 1 - ask.held
            real = ahead < reads[:, None] if ask.ragged else None
            states = [self.writer.read(ids, real)]
        if not self.begun:  # after reading: the writer can then do both in one pass
            states.insert(0, self.writer.first()[:, None])
            column = column + ask.checked[ask.owner]
        return torch.cat(states, dim=1)[ask.owner, column]

    def _draw(self, states: Tensor, ask: _DraftQuery) -> tuple[Tensor, ...]:
        """A token for every place, its untempered log-probability, and that of EOS.  # M each"""
        store, step = self.store, self.goal.step
        position = ask.checked[ask.owner] + ask.place
        noise = position  # a placeholder: greedy decoding reads no noise
        if store.draw.temperature > 0:
            row, slot = self.row[ask.owner], self.slot[ask.owner]
            fresh = () if step is None else (step,)
            noise = uniform(0, int(Stream.TOKEN), store.key[row], slot, position, *fresh)
        piece = max(1, HEAD_BUDGET // store.vocab.size)
        pieces = zip(*(each.split(piece) for each in (states, position, noise)), strict=True)
        columns = zip(*(self._draw_piece(*each) for each in pieces), strict=True)
        return tuple(torch.cat(column) for column in columns)

    def _draw_piece(self, states: Tensor, position: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        vocab, draw = self.store.vocab, self.store.draw
        logits = text_logits(self.store.net.head(states), vocab, self.store.never)
        if not self.store.may_be_empty:
            logits[:, vocab.eos_id].masked_fill_(position == 0, -torch.inf)
        posterior = Posterior(logits)
        tokens = posterior.best if draw.temperature == 0 else pick(logits, draw, noise)
        ends = torch.full_like(tokens, vocab.eos_id)
        return tokens, posterior.log_prob(tokens), posterior.log_prob(ends)

    def _note_empty(self, ask: _DraftQuery, log_end: Tensor) -> None:
        """Store how probable it is that the segments are empty, if their first places are asked."""
        at = (self.row, self.slot)
        first = log_end[ask.counts.cumsum(0) - ask.counts]  # N
        self.store.log_empty[at] = first.where(ask.checked == 0, self.store.log_empty[at])

    def _accept(self, ask: _DraftQuery, tokens: Tensor, log_prob: Tensor) -> None:
        """Accept the guess up to the first draw that differs from it, and that draw instead."""
        store, owner = self.store, ask.owner
        position = ask.checked[owner] + ask.place
        where = (self.row[owner], self.slot[owner], position)
        guess = store.tokens[where]
        # Behind the guess the table holds leftovers of older ones: agreeing with them is harmless.
        differs = torch.where(tokens == guess, ask.counts[owner], ask.place)
        first = ask.counts.scatter_reduce(0, owner, differs, "amin")  # N; counts: none differs
        # All places are written, accepted or not: selecting some would synchronise with the device,
        # and nothing beyond `checked` is trusted.
        store.tokens[where] = torch.where(ask.place <= first[owner], tokens, guess)
        store.log_prob[where] = log_prob
        checked = ask.checked + torch.minimum(first + 1, ask.counts)
        store.checked[self.row, self.slot] = checked
        over = store.tokens[self.row, self.slot, checked - 1] == store.vocab.eos_id
        if self.begun:
            over = over | (first == 0)  # a guess that is wrong twice in a row is given up
        length = torch.where(over, checked, torch.maximum(checked, ask.length))
        store.length[self.row, self.slot] = length


@dataclass(frozen=True)
class SegmentChoice:
    """The segments that one step takes."""

    taken: Tensor
    """B L; their candidates are finished."""
    scores: Tensor
    """B L; NaN where nothing was ranked, or a candidate was given up."""
    ties: Tensor
    """B: how many choices the tie rule made."""


def decided_by(ends: Tensor, goes_on: Tensor) -> Tensor:
    """The segments that are empty if these ends are: themselves and those behind them.  # B L

    This stops where the text evidently goes on, at the next frozen segment with content (B L).
    """
    count = ends.long().cumsum(dim=1)
    return count > count.masked_fill(~goes_on, 0).cummax(dim=1).values


@dataclass(frozen=True)
class _Leader:
    """A segment that is taken before the others because it is almost certainly empty."""

    itself: Tensor  # B L, at most one in a row
    decides: Tensor  # B L, the others that are empty if it is


@dataclass(frozen=True)
class _DraftPlaces:
    """Segments of some rows."""

    row: Tensor  # N
    position: Tensor  # N
    slot: Tensor  # N, the number of each

    @classmethod
    def where(cls, chosen: Tensor, view: StepView) -> _DraftPlaces:
        row, position = chosen.nonzero(as_tuple=True)
        return cls(row, position, view.slot[row, position])


@dataclass(frozen=True)
class SegmentSelector:
    """Chooses among open segments by their candidates."""

    candidates: Candidates
    policy: Policy
    slot_temperature: float = 0.0
    """0 takes the best."""
    complete: bool = False
    """Write every candidate to its end, chosen or not, so that a trace can show them."""
    fresh_noise: bool = False
    """Draw tokens with fresh noise in every step."""
    reshuffles: bool = False
    """Redraw a random order in each step, so that slots inserted late are not favoured."""
    leads_above: float | None = None
    """Take the leftmost segment that is empty with more than this probability before the others;
    None: no segment leads."""

    def choose(
        self, view: StepView, eligible: Tensor, counts: Tensor, goes_on: Tensor | None = None
    ) -> SegmentChoice:
        """Take the `counts` (B) first of the eligible segments (B L), by conditions (B L D).

        Frozen content (`goes_on`, B L) shows that an empty segment before it ends no text.
        """
        if not self.complete:
            eligible = eligible & (counts > 0)[:, None]
        places = _DraftPlaces.where(eligible, view)
        goal = self._before_the_choice(view, places, counts, goes_on)
        if goal is not None:
            conditions = view.states[places.row, places.position]
            self.candidates.refresh(places.row, places.slot, conditions, goal)
        ranking, scores = self._rank(view, places, eligible)
        leader = self._leader(view, places, goes_on)
        if leader is not None:
            ranking = replace(
                ranking,
                scores=ranking.scores.masked_fill(leader.itself, torch.inf),
                eligible=ranking.eligible & ~leader.decides,
            )
        taken, ties = take(ranking, counts)
        self._finish(view, taken, checked=goal is not None)
        reads_nothing = self.policy.score.reads == "nothing"
        return SegmentChoice(taken, scores, torch.zeros_like(ties) if reads_nothing else ties)

    def _before_the_choice(
        self, view: StepView, places: _DraftPlaces, counts: Tensor, goes_on: Tensor | None
    ) -> DraftGoal | None:
        """How far candidates are written before the choice; None: not at all."""
        step = view.step if self.fresh_noise else None
        score = self.policy.score
        unbounded = score.reads == "segment" and score.bound is None
        if self.complete or unbounded:
            return DraftGoal(step=step)
        opening = DraftGoal(upto=1, step=step)
        goals = {
            "nothing": None if self.leads_above is None else opening,
            "opening": opening,
            "segment": DraftGoal(worth=self._can_win(view, places, counts, goes_on), step=step),
        }
        return goals[score.reads]

    def _leader(
        self, view: StepView, places: _DraftPlaces, goes_on: Tensor | None
    ) -> _Leader | None:
        """Who leads, once the first tokens of all candidates are drawn; None: nobody ever does."""
        if self.leads_above is None:
            return None
        sure = torch.zeros_like(view.slot, dtype=torch.bool)  # B L
        log_empty = self.candidates.log_empty[places.row, places.slot]
        sure[places.row, places.position] = log_empty > log(self.leads_above)
        itself = sure & (sure.long().cumsum(dim=1) == 1)
        decided = decided_by(itself, torch.zeros_like(sure) if goes_on is None else goes_on)
        return _Leader(itself, decided & ~itself)

    def _finish(self, view: StepView, taken: Tensor, *, checked: bool) -> None:
        """Write the taken segments to their ends, unless the choice needed that already."""
        if self.complete or self.policy.score.reads == "segment":
            return
        places = _DraftPlaces.where(taken, view)
        goal = DraftGoal(step=view.step if self.fresh_noise else None)
        write = self.candidates.extend if checked else self.candidates.refresh
        write(places.row, places.slot, view.states[places.row, places.position], goal)

    def _can_win(
        self, view: StepView, places: _DraftPlaces, counts: Tensor, goes_on: Tensor | None
    ) -> Worth:
        """Whether a candidate can still be among the first `counts` of its row."""
        last = (counts - 1).clamp(0, view.slot.shape[1] - 1)[:, None]  # B 1

        def worth(index: Tensor) -> Tensor:
            scores, known = self._scores(view, places)
            values = self._compared(view, places, scores)
            board = values.new_full(view.slot.shape, -torch.inf)
            board[places.row, places.position] = values.where(known, -torch.inf)
            leader = self._leader(view, places, goes_on)
            if leader is not None:
                # The leader is taken whatever its score, so the others compete for one place less.
                board = board.masked_fill(leader.itself, torch.inf)
                board = board.masked_fill(leader.decides, -torch.inf)
                at = (places.row, places.position)
                values = values.masked_fill(leader.itself[at], torch.inf)
                values = values.masked_fill(leader.decides[at], torch.nan)  # never worth it
            bar = board.sort(dim=1, descending=True).values.gather(1, last)[:, 0]  # B
            return values[index] >= bar[places.row[index]]

        return worth

    def _rank(
        self, view: StepView, places: _DraftPlaces, eligible: Tensor
    ) -> tuple[Ranking, Tensor]:
        """The ranking to choose from, and the scores to record (B L)."""
        scores, known = self._scores(view, places)
        values = scores.new_full(eligible.shape, -torch.inf)
        recorded = torch.full_like(values, torch.nan)
        values[places.row, places.position] = self._compared(view, places, scores)
        recorded[places.row, places.position] = scores.where(known, torch.nan)
        breaks = tie_noise(self.policy, view.key, view.step, eligible.shape[1], view.slot)
        return Ranking(values, eligible, torch.zeros_like(eligible), breaks), recorded

    def _scores(self, view: StepView, places: _DraftPlaces) -> tuple[Tensor, Tensor]:
        """The value that ranks each place, and whether it is its candidate's score.  # N

        It is not if the score reads nothing. Of an unfinished candidate it is the upper bound.
        """
        score, held = self.policy.score, self.candidates
        step = view.step if self.reshuffles else None
        items = Items(places.position, view.key[places.row], slot=places.slot, step=step)
        if score.reads == "nothing":
            return score.rank(items), torch.zeros_like(places.row, dtype=torch.bool)
        at = (places.row, places.slot)
        written = Written(held.log_prob[at], held.checked[at])
        reached = score.rank(replace(items, written=written))
        if score.bound is None:
            return reached, torch.ones_like(places.row, dtype=torch.bool)
        whole = held.whole(*at)
        return reached.where(whole, score.bound(written)), whole

    def _compared(self, view: StepView, places: _DraftPlaces, scores: Tensor) -> Tensor:
        """The values to compare: near-equal scores are made equal, unless noise is added.  # N"""
        if self.policy.score.reads == "nothing":
            return scores
        if self.slot_temperature == 0:
            return near_ties_as_ties(scores)
        noise = uniform(0, int(Stream.ORDER), view.key[places.row], places.slot, view.step)
        return scores / self.slot_temperature - (-noise.log()).log()  # Gumbel
