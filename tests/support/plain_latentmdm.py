"""LatentMDM decoding as the paper writes it down: one row, every candidate from scratch.

The reference for the decoder's shortcuts. Noise and near-ties follow the decoder's definitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.decode.canvas import SegmentCanvas
from anyorder.decode.draw import Draw, pick
from anyorder.decode.policy import near_ties_as_ties, tie_noise
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.config import LatentOptions
from anyorder.nets.denoiser import SegmentNet
from anyorder.process.noise import Stream, uniform
from anyorder.vocab import Vocab


@dataclass
class Slot:
    """What stands in a slot, or would."""

    ids: list[int]
    """Without the closing EOS."""
    log_prob: list[float]
    """With that of the closing EOS."""
    reveal: int = 0
    score: float = math.nan
    log_empty: float = math.nan
    """Of a candidate: the log-probability that its first token is EOS."""


@dataclass
class Plain:
    """The outcome of one row."""

    slots: list[Slot]
    proposed: list[dict[int, Slot]]
    """Every step's candidates."""
    taken: list[list[int]]


SCORES = {
    "average": lambda slot, number, key: sum(slot.log_prob) / len(slot.log_prob),
    "minimum": lambda slot, number, key: min(slot.log_prob),
    "first": lambda slot, number, key: slot.log_prob[0],
    "left_to_right": lambda slot, number, key: -number,
    "right_to_left": lambda slot, number, key: number,
    "random": lambda slot, number, key: float(uniform(0, int(Stream.ORDER), key, number)),
}


@torch.inference_mode()
def decode(
    net: SegmentNet, vocab: Vocab, canvas: SegmentCanvas, key: int, options: LatentOptions
) -> Plain:
    options = latentmdm.resolve(options)
    prompt = net.read(torch.tensor([canvas.prompt]), torch.tensor([len(canvas.prompt)]))
    known = [*canvas.segments, *[()] * (net.slots - len(canvas.segments))]
    slots = {i: Slot(list(ids), []) for i, ids in enumerate(known) if ids is not None}
    free = set(range(net.slots)) - set(slots)
    result = Plain([], [], [])
    while len(slots) < net.slots:
        step = len(result.taken) + 1
        latents = torch.stack([_latent(net, slots.get(i)) for i in range(net.slots)])[None]
        conditions = net.conditions(prompt, latents)[0]
        proposed = {}
        for number in sorted(set(range(net.slots)) - set(slots)):
            fresh = [step] if options.mode == "compat" else []
            slot = _write(net, vocab, conditions[number], [key, number], options, fresh)
            slot.score = SCORES[options.policy](slot, number, key)
            proposed[number] = slot
        frozen = [i for i in slots if i not in free and slots[i].ids]
        taken = _best(proposed, frozen, key, step, options)
        for number in taken:
            slots[number] = proposed[number]
            slots[number].reveal = step
        _tail(slots, free, taken, step, options)
        result.proposed.append(proposed)
        result.taken.append(taken)
    result.slots = [slots[i] for i in range(net.slots)]
    return result


def _latent(net: SegmentNet, slot: Slot | None) -> Tensor:
    if slot is None:
        return net.mask_vector
    if not slot.ids:
        return net.empty_vector
    return net.encode(torch.tensor([slot.ids]), torch.tensor([len(slot.ids)]))[0]


def _write(
    net: SegmentNet,
    vocab: Vocab,
    condition: Tensor,
    keys: list[int],
    options: LatentOptions,
    fresh: list[int],
) -> Slot:
    slot = Slot([], [])
    writer = net.write(condition[None])
    state = writer.first()
    for place in range(net.segment_length):
        logits = net.head(state).float().clone()
        logits[:, vocab.size :] = -torch.inf
        for token in {vocab.mask_id, vocab.pad_id, vocab.bos_id} - {vocab.eos_id, None}:
            logits[:, token] = -torch.inf
        noise = uniform(0, int(Stream.TOKEN), *keys, place, *fresh)
        token = int(pick(logits, Draw.of(options), noise[None]))
        log_prob = logits.double().log_softmax(dim=-1)[0]
        if place == 0:
            slot.log_empty = float(log_prob[vocab.eos_id])
        slot.log_prob.append(float(log_prob[token]))
        if token == vocab.eos_id:
            break
        slot.ids.append(token)
        state = writer.read(torch.tensor([[token]]))[:, 0]
    return slot


def _best(
    proposed: dict[int, Slot], frozen: list[int], key: int, step: int, options: LatentOptions
) -> list[int]:
    if options.tail == "first":
        assert options.tail_threshold is not None
        least = math.log(options.tail_threshold)
        sure = [number for number, slot in proposed.items() if slot.log_empty > least]
        if sure:
            leader = min(sure)
            end = min([each for each in frozen if each > leader], default=math.inf)
            rest = {i: slot for i, slot in proposed.items() if not leader <= i < end}
            return [leader, *(_ranked(rest, key, step, options) if rest else [])][: options.k]
    return _ranked(proposed, key, step, options)[: options.k]


def _ranked(proposed: dict[int, Slot], key: int, step: int, options: LatentOptions) -> list[int]:
    numbers = torch.tensor(list(proposed))
    scores = torch.tensor([slot.score for slot in proposed.values()], dtype=torch.float64)
    if options.policy in ("average", "minimum", "first") and not options.slot_temperature:
        scores = near_ties_as_ties(scores)
    if options.slot_temperature:
        noise = uniform(0, int(Stream.ORDER), key, numbers, step)
        scores = scores / options.slot_temperature - (-noise.log()).log()
    ties = tie_noise(latentmdm.build_policy(options), torch.tensor([key]), step, 99)[0, numbers]
    ranked = sorted(zip(scores.tolist(), ties.tolist(), numbers.tolist(), strict=True))[::-1]
    return [number for _, _, number in ranked]


def _tail(
    slots: dict[int, Slot], free: set[int], taken: list[int], step: int, options: LatentOptions
) -> None:
    ends = [number for number in taken if not slots[number].ids]
    if not ends or options.tail == "keep":
        return
    frozen = [number for number in slots if number not in free and slots[number].ids]
    for number in free:
        erased = options.tail == "erase" and number in slots and slots[number].ids
        # A frozen segment between an end and a slot shows that the text goes on.
        ended = any(
            end < number and not any(end < each < number for each in frozen) for end in ends
        )
        if ended and (number not in slots or erased):
            slots[number] = Slot([], [math.nan], step)
