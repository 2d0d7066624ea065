"""The two rules for long runs inside the decoder, in both modes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anyorder.decode.canvas import GrowingCanvas
from anyorder.families.flexmdm.compat import runs_of
from anyorder.families.flexmdm.config import FlexOptions
from anyorder.families.flexmdm.decode import decode
from anyorder.nets.denoiser import Look
from anyorder.trace.trace import Trace
from anyorder.vocab import Vocab


class Flat:
    """A network that inserts about so many tokens, sure of nothing much."""

    coordinate, insertion_exponent, unmasking_exponent = "progress", 1.7, 2.89

    def __init__(self, vocab: Vocab, missing: float) -> None:
        self.table = torch.randn(97, vocab.size, generator=torch.Generator().manual_seed(1))
        self.missing = missing

    def look(self, ids: Tensor, *, mask: Tensor | None = None, time: Tensor) -> Look:
        assert mask is not None
        place = torch.arange(ids.shape[1]).expand_as(ids)
        number = mask.sum(dim=1, keepdim=True)
        gaps = (self.missing * (1 - time[:, None].float()) / number).log()
        return Look(self.table[(7 * place + number) % 97], gaps.expand_as(ids))

    def head(self, states: Tensor) -> Tensor:
        return states


VOCAB = Vocab.words(list("abcdefghij.,;"))


@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_forced_reveals_in_the_decoder(mode: str) -> None:
    """Nothing is revealed by the clock, so what is revealed before the end was forced."""
    options = FlexOptions(
        policy="sampled",
        steps=20,
        unmasking_schedule=1e-12,
        force_unmask=True,
        mode=mode,  # type: ignore[arg-type]
    )
    canvases = [GrowingCanvas((0, 1), (False, True), 60)] * 3
    forced = 0
    for row in decode(Flat(VOCAB, 45.0), VOCAB, canvases, [1, 2, 3], options):
        trace = Trace.from_tokens(
            VOCAB,
            row.token_ids,
            prompt_ids=[0, 1],
            insert_step=row.insert_step,
            reveal_step=row.reveal_step,
            steps=row.steps,
        )
        for step in range(1, 20):
            before, after = trace.replay(step - 1), trace.replay(step)
            new = set(before.masked.tolist()) - set(after.masked.tolist())
            expected = 0
            for start, stop in runs_of(torch.from_numpy(~before.revealed), 9):
                inside = before.slots[start + 2 : stop - 2].tolist()
                assert len(new & set(inside)) == 1
                expected += 1
            assert len(new) == expected
            forced += expected
    assert forced > 10


@pytest.mark.parametrize("mode", ["exact", "compat"])
def test_replacements_begin_after_step_100(mode: str) -> None:
    canvases = [GrowingCanvas((0, 1), (False, True), 150)] * 2
    rows = []
    for switched_on in (False, True):
        options = FlexOptions(
            policy="entropy",
            steps=128,
            unmasking_schedule=0.05,
            temperature=2.0,
            meaningful_replace=switched_on,
            mode=mode,  # type: ignore[arg-type]
        )
        rows.append(decode(Flat(VOCAB, 140.0), VOCAB, canvases, [1, 2], options))
    differ = 0
    for plain, changed in zip(*rows, strict=True):
        early = [
            [
                (insert, reveal, token)
                for insert, reveal, token in zip(
                    row.insert_step, row.reveal_step, row.token_ids, strict=True
                )
                if reveal <= 100
            ]
            for row in (plain, changed)
        ]
        assert early[0] == early[1] and early[0]
        differ += plain.reveal_step != changed.reveal_step
    assert differ
