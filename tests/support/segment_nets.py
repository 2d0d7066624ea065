"""Small networks over segments with weights of their own."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from segment_mocks import VOCAB

from anyorder.families.latentmdm.config import LatentConfig
from anyorder.families.latentmdm.net import LatentNet
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import uniform

SLOTS, ROOM = 6, 7


def small_net(
    attention: Literal["bidirectional", "prefix_lm"] = "bidirectional", seed: int = 0
) -> LatentNet:
    """Untrained, with weights large enough for every slot to want something else."""
    backbone = TransformerConfig(VOCAB.size, 32, 2, 4, 4, 8, 64)
    config = LatentConfig(backbone, slots=SLOTS, segment_length=ROOM, attention=attention)
    net = LatentNet(config, seed=seed).eval()
    with torch.no_grad():
        for weight in net.parameters():
            if weight.dim() > 1:
                weight.mul_(3.0)
    return net


def programs(count: int) -> list[list[list[int]]]:
    """Texts of 2 to 5 lines that copy from each other: each repeats the last token of another."""
    made = []
    for number in range(count):
        draw = [int(x * 4) for x in uniform(number, torch.arange(40)).tolist()]
        lines = [[draw[0], draw[1]]]
        for line in range(1, 2 + draw[2]):
            source = lines[draw[3 + line] % line]
            lines.append([source[-1], *draw[10 + line * 5 :][: draw[4 + line]], draw[1]])
        made.append(lines)
    return made


def trained_net(
    attention: Literal["bidirectional", "prefix_lm"] = "bidirectional", steps: int = 250
) -> LatentNet:
    """Trained for a moment, by the paper's loss over all tokens, on `programs`."""
    net = small_net(attention).train()
    net.reset_parameters(1)
    texts, row, slot = programs(64), torch.arange(16)[:, None], torch.arange(SLOTS)
    length = torch.tensor(
        [[len(line) for line in text] + [0] * (SLOTS - len(text)) for text in texts]
    )
    ids = torch.zeros(len(texts), SLOTS, ROOM, dtype=torch.int64)
    for number, text in enumerate(texts):
        for place, line in enumerate(text):
            ids[number, place, : len(line)] = torch.tensor(line)
    targets = ids.where(torch.arange(ROOM) < length[:, :, None], -1)
    targets = targets.where(torch.arange(ROOM) != length[:, :, None], VOCAB.eos_id)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(steps):
        chosen = (uniform(1, step, row[:, 0]) * len(texts)).long()
        masked = uniform(2, step, row, slot) < uniform(3, step, row)
        latents = torch.where((length[chosen] == 0)[:, :, None], net.empty_vector, net.mask_vector)
        seen = ~masked & (length[chosen] > 0)
        latents = latents.masked_scatter(
            seen[:, :, None], net.encode(ids[chosen][seen], length[chosen][seen])
        )
        latents = torch.where(masked[:, :, None], net.mask_vector, latents)
        prompt = net.read(ids[chosen, 0, :1], torch.ones_like(chosen))
        conditions = net.conditions(prompt, latents)[masked]
        states = net.decode_states(conditions, ids[chosen][masked][:, :-1])
        logits = net.head(states).flatten(0, 1)
        loss = F.cross_entropy(logits, targets[chosen][masked].flatten(), ignore_index=-1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net.eval()
