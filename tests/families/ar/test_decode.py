"""ar decoding: the cache changes nothing, batches change nothing, and it ends where it should."""

from __future__ import annotations

import pytest
import torch

from anyorder.decode.canvas import Canvas
from anyorder.families.ar import decode as ar
from anyorder.families.ar.decode import ArOptions
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process.noise import key_of
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abcdef"))


def small_net() -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(
        vocab_size=VOCAB.size,
        width=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_width=8,
        mlp_width=64,
        causal=True,
    )
    net = Transformer(config).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 2:
                parameter.mul_(5)
    return net


def ragged() -> list[Canvas]:
    prompts = [[0, 1, 2], [3], [4, 5, 0, 1, 2, 3, 4], [1, 1]]
    return [
        Canvas.of([ids, slots], VOCAB) for ids, slots in zip(prompts, (20, 30, 10, 1), strict=True)
    ]


@pytest.mark.parametrize(
    "options",
    [ArOptions(), ArOptions(temperature=0.7), ArOptions(temperature=0.7, top_p=0.9, top_k=3)],
    ids=str,
)
def test_batched_equals_alone(options: ArOptions) -> None:
    net, canvases = small_net(), ragged()
    keys = [key_of(0, i) for i in range(len(canvases))]
    together = ar.decode(net, VOCAB, canvases, keys, options)
    for canvas, key, row in zip(canvases, keys, together, strict=True):
        (alone,) = ar.decode(net, VOCAB, [canvas], [key], options)
        assert row.token_ids == alone.token_ids and row.reveal_step == alone.reveal_step
        assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4)


def test_greedy_decoding_is_the_argmax_of_the_uncached_network() -> None:
    net = small_net()
    for canvas, row in zip(
        ragged(), ar.decode(net, VOCAB, ragged(), [1, 2, 3, 4], ArOptions()), strict=True
    ):
        ids = list(canvas.ids[: canvas.prompt_length])
        for token, log_prob in zip(row.token_ids, row.log_prob, strict=True):
            with torch.no_grad():
                logits = net(torch.tensor([ids]))[0, -1]
            logits[VOCAB.mask_id] = -torch.inf
            assert token == int(logits.argmax())
            assert log_prob == pytest.approx(float(logits.log_softmax(-1)[token]), abs=1e-4)
            ids.append(token)


def test_rows_end_at_eos_or_when_slots_run_out() -> None:
    canvases = [Canvas.of([[0], 40], VOCAB)] * 40
    rows = ar.decode(small_net(), VOCAB, canvases, list(range(40)), ArOptions(temperature=1.5))
    lengths = {len(row.token_ids) for row in rows}
    assert len(lengths) > 3
    for row in rows:
        assert VOCAB.eos_id not in row.token_ids[:-1]
        assert row.token_ids[-1] == VOCAB.eos_id or len(row.token_ids) == 40
        assert VOCAB.mask_id not in row.token_ids
        assert row.insert_step == row.reveal_step == list(range(1, len(row.token_ids) + 1))


def test_weights_that_are_not_numbers_end_in_an_error() -> None:
    net = small_net()
    with torch.no_grad():
        net.norm.weight.fill_(torch.nan)
    for options in (ArOptions(), ArOptions(temperature=1.0)):
        with pytest.raises(ValueError, match="not finite"):
            ar.decode(net, VOCAB, ragged(), [1, 2, 3, 4], options)


def test_gaps_and_empty_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="left to right"):
        ar.decode(small_net(), VOCAB, [Canvas.of([[0], 3, [1]], VOCAB)], [0], ArOptions())
    with pytest.raises(ValueError, match="BOS"):
        ar.decode(small_net(), VOCAB, [Canvas.of([3], VOCAB)], [0], ArOptions())
