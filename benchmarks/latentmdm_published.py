"""LatentMDM's published sampling and training step, written plainly, as the other side of
latentmdm.py. Facts from the paper's appendix E and its release; no code of it.

    sampling   every iteration: the latent network on 528 positions; every open slot written anew,
               its key/value cache grown by concatenation, until all have said EOS; the head and a
               float32 log-softmax over the vocabulary for all rows, finished ones included; the
               encoder on 32 positions; an empty segment empties all slots behind it
    training   the encoder on all segments, masked ones included, of 32 positions; the latent
               network on 528; the decoder and the head on all 33 positions of every masked slot,
               1,024 slots at a time; then the valid ones are selected

One thing differs from the release on purpose: the padding up to 528 positions is masked out, not
attended to (and mask, padding and BOS are never written). This costs the same and computes the same
function as ours, so that both sides must agree.

Letters: B rows, S slots, N segments, T positions of a segment, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from anyorder.data.batches import Batch
from anyorder.families.latentmdm.loss import Segments
from anyorder.families.latentmdm.net import LatentNet
from anyorder.nets.stack import AttentionContext
from anyorder.process import masking
from anyorder.vocab import Vocab
from latentmdm_scripted import Scripted

PROMPT_POSITIONS = 512
SLOTS_AT_ONCE = 1024


@dataclass
class Grown:
    """Keys and values of each layer, grown by concatenation."""

    held: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def join(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if layer in self.held:
            old_keys, old_values = self.held[layer]
            keys = torch.cat([old_keys, keys], dim=1)
            values = torch.cat([old_values, values], dim=1)
        self.held[layer] = (keys, values)
        return keys, values


@dataclass(frozen=True)
class Revealed:
    """A segment, when it was revealed and by what score."""

    tokens: list[int]
    """Without EOS."""
    step: int
    score: float


@torch.inference_mode()
def sample(
    net: Scripted,
    vocab: Vocab,
    prompt: list[int],
    slots: int,
    k: int,
    dtype: torch.dtype = torch.float32,
) -> dict[int, Revealed]:
    """Fill some slots with greedy tokens, by average log-likelihood. Later slots are empty.

    The release's log-softmax is float32, which among 151,645 words gives a nearly certain token up
    to 8e-4 too much: next to 1, small terms of its sum round to nothing. With `dtype` float64 the
    scores are right, to compare with.
    """
    core, start = net.core, len(prompt)
    net.read(torch.tensor([prompt]), torch.tensor([start]))
    ids = torch.full((1, PROMPT_POSITIONS + core.slots), vocab.eos_id)
    ids[0, :start] = torch.tensor(prompt)
    canvas = core.embed(ids)  # 1 528 D; EOS's vector is that of an empty segment
    canvas[0, start : start + slots] = core.mask_vector
    visible = torch.arange(ids.shape[1])[None] < start + core.slots
    waiting = torch.arange(core.slots) < slots  # S
    done: dict[int, Revealed] = {}
    for step in range(1, math.ceil(slots / k) + 1):
        if not bool(waiting.any()):
            break
        states = core.latent.run(canvas, core.latent.plain_context(canvas, visible))
        conditions = net.tagged(states[:, start : start + core.slots], ids.shape[1])[0]  # S D
        slot = waiting.nonzero()[:, 0]
        tokens, log_prob = write_anew(net, vocab, conditions[slot], dtype)  # N T
        ended = tokens == vocab.eos_id
        length = torch.where(ended.any(dim=1), ended.long().argmax(dim=1) + 1, tokens.shape[1])
        counted = torch.arange(tokens.shape[1]) < length[:, None]
        score = (log_prob * counted).sum(dim=1) / length
        for best in score.topk(min(k, len(slot))).indices.tolist():
            number = int(slot[best])
            content = tokens[best][counted[best] & ~ended[best]]
            done[number] = Revealed(content.tolist(), step, float(score[best]))
            waiting[number] = False
            if len(content):
                padded = F.pad(content, (0, core.segment_length - len(content)), value=vocab.eos_id)
                latent = core.encode(padded[None], torch.tensor([len(content)]))[0]
                canvas[0, start + number] = latent
            else:
                canvas[0, start + number : start + slots] = core.empty_vector
                waiting[number:] = False
                done = {at: seen for at, seen in done.items() if at <= number}
    return done


def write_anew(
    net: Scripted, vocab: Vocab, conditions: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """A greedy segment from every condition, and its tokens' log-probabilities.  # N T, N T"""
    core, width = net.core, net.width
    tags, grown = conditions[:, width:], Grown()
    vector = conditions[:, None, :width]  # N 1 D
    never = [vocab.mask_id, vocab.pad_id, vocab.bos_id]
    finished = torch.zeros(len(conditions), dtype=torch.bool)
    tokens, log_probs = [], []
    cos, sin = core.decoder.rotary.prefix(core.segment_length + 1, conditions.device)
    for place in range(core.segment_length):
        at = slice(place, place + 1)
        reach = AttentionContext((cos[:, at], sin[:, at]), None, join=grown.join)
        state = core.decoder.run(vector, reach)[:, 0]
        net.work.decoder_calls += 1
        net.work.decoder_tokens += len(state)
        places = torch.full_like(tags[:, :1], place)
        logits = net.head(torch.cat([state, tags, places], dim=1)).float()
        logits[:, never] = -torch.inf
        log_prob = logits.log_softmax(dim=-1, dtype=dtype)
        token = logits.argmax(dim=-1)
        tokens.append(token)
        log_probs.append(log_prob.gather(1, token[:, None])[:, 0])
        finished |= token == vocab.eos_id
        if bool(finished.all()):
            break
        vector = core.embed(token)[:, None]
    return torch.stack(tokens, dim=1), torch.stack(log_probs, dim=1)


def loss(net: LatentNet, batch: Batch, masked: Tensor, vocab: Vocab) -> Tensor:
    """The paper's loss: the mean over a row's masked segments (B S) of their nats, then over
    rows."""
    segments = Segments.of(batch, vocab)
    more = net.segment_length - segments.tokens.shape[2]
    tokens = F.pad(segments.tokens, (0, more), value=vocab.eos_id)  # B S T
    real = segments.length > 0
    latents = net.empty_vector.expand(*real.shape, -1)
    encoded = net.encode(tokens[real], segments.length[real])
    latents = latents.index_put(real.nonzero(as_tuple=True), encoded)
    latents = torch.where(masked[:, :, None], net.mask_vector, latents)  # B S D
    conditions = _conditions(net, batch, latents, vocab)[masked]  # N D
    targets, length = tokens[masked], segments.length[masked]
    valid = torch.arange(net.segment_length) <= length[:, None]  # N T, EOS included
    nats = []
    chunks = (each.split(SLOTS_AT_ONCE) for each in (conditions, targets, valid))
    for condition, target, chosen in zip(*chunks, strict=True):
        logits = net.head(net.decode_states(condition, target))[:, :-1]  # N T V
        found = F.cross_entropy(logits[chosen], target[chosen], reduction="none")
        of_segment = chosen.nonzero()[:, 0]
        nats.append(found.new_zeros(len(target)).index_add(0, of_segment, found))
    return masking.mean_over_masked(torch.cat(nats), masked).loss


def _conditions(net: LatentNet, batch: Batch, latents: Tensor, vocab: Vocab) -> Tensor:
    """The latent network on 528 positions of every row.  # B S D"""
    rows, slots = latents.shape[:2]
    column = torch.arange(PROMPT_POSITIONS + slots)
    ids = torch.full((rows, len(column)), vocab.eos_id)
    width = min(batch.ids.shape[1], len(column))
    in_prompt = column[:width] < batch.prompt_length[:, None]
    ids[:, :width] = batch.ids[:, :width].where(in_prompt, vocab.eos_id)
    row = torch.arange(rows)[:, None].expand(rows, slots)
    place = batch.prompt_length[:, None] + column[:slots]  # B S
    canvas = net.embed(ids).index_put((row, place), latents)
    visible = column < batch.prompt_length[:, None] + slots
    states = net.latent.run(canvas, net.latent.plain_context(canvas, visible))
    return states[row, place]
