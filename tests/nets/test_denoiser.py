"""Networks as decoders see them: ours, transformers' masked models, plain callables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyorder.nets.denoiser import LogitsDenoiser, Shifted, as_denoiser
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer

CONFIG = TransformerConfig(11, 16, 1, 2, 2, 8, 24)
IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])
MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])


def test_our_nets_pass_through() -> None:
    net = Transformer(CONFIG)
    assert as_denoiser(net) is net
    wrapped = LogitsDenoiser(lambda ids, attention_mask: torch.zeros(*ids.shape, 4))
    assert as_denoiser(wrapped) is wrapped


@torch.no_grad()
def test_a_shift_moves_predictions_one_place_to_the_right() -> None:
    net = Transformer(CONFIG)
    shifted = as_denoiser(net, shift=True)
    assert isinstance(shifted, Shifted)
    plain, moved = net(IDS, mask=MASK), shifted.head(shifted.hidden(IDS, mask=MASK))
    assert torch.equal(moved[:, 1:], plain[:, :-1])
    assert torch.equal(moved[:, 0], plain[:, 0])


@torch.no_grad()
def test_a_shift_hands_the_time_on() -> None:
    net = Transformer(TransformerConfig(11, 16, 1, 2, 2, 8, 24, time_modulated=True))
    nn.init.normal_(net.blocks[0].modulation.project.weight)
    time = torch.tensor([0.2, 0.8])
    got = as_denoiser(net, shift=True).hidden(IDS, time=time)
    assert torch.equal(got[:, 1:], net.hidden(IDS, time=time)[:, :-1])


def tiny_bert() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=11,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


@torch.no_grad()
def test_a_masked_model_of_transformers_is_wrapped_with_its_padding() -> None:
    bert = tiny_bert()
    denoiser = as_denoiser(bert)
    hidden = denoiser.hidden(IDS, mask=MASK)
    logits = denoiser.head(hidden[MASK])
    assert logits.shape == (8, 11)
    alone = bert(IDS[1:, :3]).logits[0]
    torch.testing.assert_close(logits[5:], alone, atol=1e-5, rtol=1e-5)
    unmasked = denoiser.hidden(IDS)
    torch.testing.assert_close(unmasked, bert(IDS).logits)
    assert (unmasked[1, :3] - alone).abs().max() > 1e-3


@torch.no_grad()
def test_a_masked_model_can_be_shifted() -> None:
    bert = tiny_bert()
    got = as_denoiser(bert, shift=True).hidden(IDS)
    torch.testing.assert_close(got[:, 1:], bert(IDS).logits[:, :-1])


@pytest.mark.parametrize("boxed", [True, False])
def test_any_callable_is_wrapped(boxed: bool) -> None:
    calls = []

    def network(ids: Tensor, attention_mask: Tensor) -> Any:
        calls.append(attention_mask)
        logits = torch.nn.functional.one_hot(ids, 11).float()
        return SimpleNamespace(logits=logits) if boxed else logits

    denoiser = as_denoiser(network)
    assert denoiser.head(denoiser.hidden(IDS, mask=MASK)[:, 2]).argmax(-1).tolist() == [4, 6]
    assert torch.equal(denoiser.hidden(IDS).argmax(-1), IDS)
    assert [mask.sum().item() for mask in calls] == [8, 10]
    assert calls[0].dtype == torch.long


def test_submodules_called_hidden_and_head_are_not_taken_for_methods() -> None:
    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Embedding(11, 4)
            self.head = nn.Linear(4, 11)

        def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.head(self.hidden(ids))

    foreign = Foreign().eval()
    denoiser = as_denoiser(foreign)
    torch.testing.assert_close(denoiser.hidden(IDS), foreign(IDS, attention_mask=MASK))


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match=r"call its \.eval\(\) first"):
        as_denoiser(tiny_bert().train()).hidden(IDS)
    zeros = as_denoiser(lambda ids, attention_mask: torch.zeros(*ids.shape, 11))
    with pytest.raises(ValueError, match="takes no time"):
        zeros.hidden(IDS, time=torch.zeros(2))
    with pytest.raises(ValueError, match="is no network"):
        as_denoiser("bert-base")
    for wrong in (torch.zeros(2, 11), (torch.zeros(2, 5, 11),), None):
        with pytest.raises(ValueError, match="must return logits of shape"):
            as_denoiser(lambda ids, attention_mask, wrong=wrong: wrong).hidden(IDS)
