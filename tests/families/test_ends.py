"""Every decoder knows all ends of a vocabulary: the first one ends a text, whichever it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anyorder.decode.canvas import Canvas, SegmentCanvas
from anyorder.decode.draw import behind
from anyorder.families.duo import decode as duo
from anyorder.families.duo.config import DuoOptions
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.candidates import never_written
from anyorder.families.latentmdm.config import LatentConfig, LatentOptions
from anyorder.families.latentmdm.net import LatentNet
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.nets.denoiser import States
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.vocab import SpecialIds, Vocab
from anyorder.vocab.codecs import WordCodec

# As chat models have it: a turn ends with EOS, and so it does with PAD and with END.
MASK, PAD, EOS, BOS, END = range(3, 8)
VOCAB = Vocab(
    WordCodec(["a", "b", "c"]), SpecialIds(8, MASK, PAD, EOS, BOS, False, {}, ends=(PAD, END))
)
KEYS = [key_of("ends", number) for number in range(40)]
ENDS = [EOS, PAD, END]


def backbone() -> TransformerConfig:
    return TransformerConfig(VOCAB.size, 16, 1, 2, 2, 8, 32)


def canvas(length: int) -> Canvas:
    return Canvas((0, *[MASK] * length), (False, *[True] * length))


def first_end(ids: list[int]) -> int:
    return next((place for place, token in enumerate(ids) if token in ENDS), len(ids))


def timed_net() -> Transformer:
    return Transformer(replace(backbone(), time_modulated=True), seed=3).eval()


def test_slots_behind_an_end_are_those_to_its_right() -> None:
    ends = torch.tensor([[False, True, False, True, False]])
    slots = torch.tensor([[True, True, True, True, False]])
    assert behind(ends, slots).tolist() == [[False, False, True, True, False]]


def test_duo_fills_behind_any_end() -> None:
    net, rows = timed_net(), [canvas(6)] * len(KEYS)
    plain = duo.decode(net, VOCAB, rows, KEYS, DuoOptions(steps=3))
    filled = duo.decode(net, VOCAB, rows, KEYS, DuoOptions(steps=3, eos="fill"))
    by_pad = 0
    for before, after in zip(plain, filled, strict=True):
        end = first_end(before.token_ids)
        assert after.token_ids == [*before.token_ids[: end + 1], *[EOS] * (5 - end)]
        by_pad += before.token_ids[end : end + 1] == [PAD]
    assert by_pad  # some texts ended with the other one


def test_duo_forbids_every_end() -> None:
    net, rows = timed_net(), [canvas(6)] * len(KEYS)
    for row in duo.decode(net, VOCAB, rows, KEYS, DuoOptions(steps=3, eos="forbid")):
        assert first_end(row.token_ids) == 6


def test_states_have_no_end_that_training_never_shows() -> None:
    assert END not in States.of(VOCAB).ids  # duo and sflm cannot draw it


@pytest.mark.parametrize("end", ENDS)
def test_mdm_fills_behind_any_end(end: int) -> None:
    class Net:
        vocab_size = VOCAB.size

        def hidden(self, ids: torch.Tensor, **given: object) -> torch.Tensor:
            logits = torch.full((*ids.shape, VOCAB.size), -9.0)
            logits[..., 0] = 0.0
            logits[:, 3, end] = 9.0
            return logits

        def head(self, states: torch.Tensor) -> torch.Tensor:
            return states

    options = MdmOptions(policy="left_to_right", eos="fill", temperature=0)
    (row,) = mdm.decode(Net(), VOCAB, [canvas(5)], [1], options)  # type: ignore[arg-type]
    assert row.token_ids == [0, 0, end, EOS, EOS]


def segment_net() -> LatentNet:
    """Of all tokens it likes END best, then EOS."""
    net = LatentNet(LatentConfig(backbone(), slots=4, segment_length=4), seed=1).eval()
    head = net.head

    def liked(states: torch.Tensor) -> torch.Tensor:
        logits = head(states)
        logits[..., END] = logits.amax(-1) + 3.0
        return logits

    net.head = liked  # type: ignore[method-assign, assignment]
    return net


def test_segments_have_no_end_inside() -> None:
    assert set(never_written(VOCAB)) == {MASK, PAD, BOS, END}
    row = SegmentCanvas((0,), (None,) * 4)
    options = LatentOptions(temperature=1.0)
    for decoded in latentmdm.decode(segment_net(), VOCAB, [row] * 40, KEYS, options):
        assert not {PAD, END} & set(decoded.token_ids)
