"""Conversations to train on: each turn of the assistant is one example.

    prompt   everything before the turn, through the chat template, special tokens as ids
    answer   the text of the turn. Each family ends it as it ends every answer: with EOS, with EOS
             up to the end of its canvas, or with nothing. What the template writes behind a turn,
             such as `<|im_end|>`, belongs to the prompt of the next one

So the loss is on assistant turns only, in every family, and an example is what sampling sees: the
answer begins at a token boundary after the prompt. A conversation with three turns of the assistant
is three examples; earlier turns are read again as part of the later prompts. A turn that only calls
tools (`content` is null) is part of later prompts and no example.

Not here: rendering (vocab/chat.py), reading files (sources.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from anyorder.data.batches import Example, example_of
from anyorder.data.segments import CannotCut, DoesNotFit, SegmentConfig, cut
from anyorder.vocab import Vocab
from anyorder.vocab.chat import ChatTemplate, ChatTurn, checked, is_answer

AT_ONCE = 200
"""Conversations that are rendered by one process."""


class MessagesSource:
    """The assistant's turns of conversations, by index."""

    def __init__(
        self, rows: Iterable[tuple[str, Any]], template: ChatTemplate, vocab: Vocab
    ) -> None:
        """`rows`: the place of each conversation, for errors, and its list of messages."""
        self._vocab = vocab
        self._prompts: list[array[int]] = []
        self._turns: list[tuple[str, str]] = []
        left = iter(rows)
        while part := list(islice(left, AT_ONCE)):
            for where, messages in part:
                _check(where, messages)
            for turn in _turns(part, template, vocab):
                self._add(turn)

    def _add(self, turn: ChatTurn) -> None:
        self._prompts.append(array("i", turn.prompt.ids))
        self._turns.append((turn.prompt.text, turn.answer))

    @property
    def size(self) -> int:
        return len(self._turns)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self._turns[index]

    def chosen(self, indices: Sequence[int]) -> MessagesSource:
        """The source with only the examples at `indices`."""
        other = object.__new__(MessagesSource)
        other._vocab = self._vocab
        other._prompts = [self._prompts[index] for index in indices]
        other._turns = [self._turns[index] for index in indices]
        return other

    def example(
        self, index: int, vocab: Vocab, *, begun: bool, segments: SegmentConfig | None
    ) -> Example:
        """The example at `index`; its prompt has special ids, which no text could give."""
        assert vocab.digest() == self._vocab.digest()
        answer = self._turns[index][1]
        try:
            if segments is None:
                whole = [vocab.encode(answer, begun=True)]
            else:
                whole = cut(answer, vocab, segments.by, segments.segment_length)
            prompt = self._prompts[index].tolist()
            # The template has written what begins a text.
            return example_of(prompt, whole, index, vocab, begun=True, segments=segments)
        except ValueError as error:
            kind = type(error) if isinstance(error, CannotCut | DoesNotFit) else ValueError
            raise kind(f"example {index} of the source: {error}") from error


def _turns(part: Sequence[tuple[str, Any]], template: ChatTemplate, vocab: Vocab) -> list[ChatTurn]:
    """The turns of all rows; an error names the first row that has one."""
    try:
        found = template.all_turns([messages for _, messages in part], vocab)
    except ValueError as error:
        if len(part) == 1:
            raise ValueError(f"{part[0][0]}: {error}") from None
        half = len(part) // 2
        return _turns(part[:half], template, vocab) + _turns(part[half:], template, vocab)
    return [turn for turns in found for turn in turns]


def _check(where: str, messages: Any) -> None:
    try:
        checked(messages)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if not any(map(is_answer, messages)):
        raise ValueError(f"{where}: no turn of the assistant to learn: leave the row out")
