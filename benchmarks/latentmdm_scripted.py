"""A network of the real size that writes a script: for benchmarks with random weights.

The cost of decoding depends on the length of lines and on how much of a candidate survives a step.
An untrained network neither ends its lines nor keeps a candidate. So every layer and the whole
vocabulary head run as usual. Then the logit of the token in the script is raised, at each place,
until the token has about the probability that the script gives it. The scores, and with them the
order in which segments are revealed, still depend on every number that the network computes.

    a slot's line        7 to 13 tokens, then EOS; slots behind the last line hold EOS alone
    a step               each candidate changes with probability `change`, at a uniform place: that
                         token alone, or with probability `rewrites` all that follows as well
    a token              nearly certain (3 nats per thousand) in six of ten cases, else 0.8 nats

The last two are what `survival` measured on tiny models of this repository (see latentmdm.py). The
script is a function of slot, place and step alone, so both sides of a comparison get the same.

Letters: B rows, S slots, N segments, T positions, M places asked about, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.config import LatentOptions
from anyorder.families.latentmdm.net import LatentNet, PromptVectors
from anyorder.model import Model
from anyorder.nets.denoiser import SegmentWriter
from anyorder.process.noise import uniform
from anyorder.vocab import Vocab

CERTAIN_SHARE, CERTAIN, UNCERTAIN = 0.6, 0.003, 0.8
"""Share of nearly certain tokens, their nats, and the mean nats of the others."""
WORDS = 900
"""The script takes its tokens from the first ids, which are no special ones."""


@dataclass(frozen=True)
class Dial:
    """How much of a candidate survives from one step to the next."""

    change: float
    """Probability that it changes at all."""
    rewrites: float = 1.0
    """Probability that a change goes on to the end of the line."""
    from_the_start: bool = False
    """Changes begin with the first token, instead of at a uniform place."""


@dataclass(frozen=True)
class Script:
    """What is written in each slot at each step.  # steps S T"""

    tokens: Tensor
    bonus: Tensor
    lengths: list[int]
    """Tokens of each line, without EOS; 0 behind the last line."""
    survives: float
    """Share of the tokens of lines that are what they were a step before."""

    @classmethod
    def draw(cls, net: LatentNet, vocab: Vocab, lines: int, dial: Dial) -> Script:
        slots, room = net.slots, net.segment_length
        steps, slot, place = torch.arange(slots + 1), torch.arange(slots), torch.arange(room)
        length = (7 + (7 * uniform(1, slot)).long()) * (slot < lines)  # S
        changes = uniform(2, steps[:, None], slot) < dial.change  # steps S
        changes[0] = False
        where = (uniform(3, steps[:, None], slot) * length).long() * (not dial.from_the_start)
        where = where[:, :, None]
        rewritten = (uniform(7, steps[:, None], slot) < dial.rewrites)[:, :, None] & (place > where)
        touched = changes[:, :, None] & ((place == where) | rewritten)  # steps S T
        version = (touched * steps[:, None, None]).cummax(dim=0).values
        keys = (slot[:, None], place, version)
        tokens = (WORDS * uniform(4, *keys)).long()
        tokens = torch.where(place >= length[:, None], vocab.eos_id, tokens)
        certain = (uniform(5, *keys) < CERTAIN_SHARE) | (place >= length[:, None])
        # Not all alike: equal scores would leave the order to the tie rule.
        nats = 2 * uniform(6, *keys) * torch.where(certain, CERTAIN, UNCERTAIN)
        bonus = math.log(vocab.size - 4) - nats.expm1().log()
        inside = (place < length[:, None]).expand_as(version[1:])
        same = (version[1:] == version[:-1])[inside].double().mean()
        return cls(tokens, bonus.float(), length.tolist(), float(same))


@dataclass
class Work:
    """Counts of the calls of a network."""

    latent_positions: int = 0
    decoder_calls: int = 0
    decoder_tokens: int = 0
    head_rows: int = 0


class Scripted:
    """A `SegmentNet` that writes a script.

    Conditions, and the states of its writers, carry two more numbers, step and slot, and states a
    third one, the place that they predict. A prompt begins the script anew.
    """

    def __init__(self, core: LatentNet, script: Script) -> None:
        self.core, self.script, self.work = core, script, Work()
        self.width = core.config.backbone.width
        self.slots, self.segment_length = core.slots, core.segment_length
        self.mask_vector, self.empty_vector = core.mask_vector, core.empty_vector
        self.encode = core.encode
        self.step = -1

    def read(self, ids: Tensor, length: Tensor) -> PromptVectors:
        self.step, self.work = -1, Work()
        prompt = self.core.read(ids, length)
        self.work.latent_positions += ids.numel() * (prompt.memory is not None)
        return prompt

    def conditions(self, prompt: PromptVectors, latents: Tensor) -> Tensor:
        before = 0 if prompt.vectors is None else prompt.vectors.shape[1]
        return self.tagged(self.core.conditions(prompt, latents), before + latents.shape[1])

    def tagged(self, conditions: Tensor, positions: int) -> Tensor:
        """The conditions of the next step, B S D, with their tags; so many positions were read."""
        self.step += 1
        self.work.latent_positions += positions
        slot = torch.arange(conditions.shape[1]).expand(conditions.shape[:2])
        tags = torch.stack([torch.full_like(slot, self.step), slot], dim=2)
        return torch.cat([conditions, tags.to(conditions.dtype)], dim=2)

    def write(self, conditions: Tensor) -> ScriptedWriter:
        inner = self.core.write(conditions[:, : self.width].contiguous())
        return ScriptedWriter(inner, conditions[:, self.width :], self.work)

    def head(self, states: Tensor) -> Tensor:
        self.work.head_rows += len(states)
        logits = self.core.head(states[:, : self.width].contiguous())
        step, slot, place = states[:, self.width :].long().unbind(dim=1)
        at = (step, slot, place.clamp(max=self.segment_length - 1))
        token = self.script.tokens[at][:, None]
        return logits.scatter_add_(1, token, self.script.bonus[at][:, None])


class ScriptedWriter:
    """A writer whose states carry their step, their slot and the place that they predict."""

    def __init__(self, inner: SegmentWriter, tags: Tensor, work: Work, length: int = 0) -> None:
        self.inner, self.tags, self.work = inner, tags, work
        self.length = tags.new_full((len(tags),), length)  # N

    def first(self) -> Tensor:
        if self.inner._first is None:
            self._count(len(self.tags))
        return self._tagged(self.inner.first()[:, None], torch.zeros_like(self.length))[:, 0]

    def read(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        self._count(ids.numel() + len(ids) * (self.inner._first is None))
        states = self._tagged(self.inner.read(ids, real), self.length + 1)
        self.length = self.length + (ids.shape[1] if real is None else real.sum(dim=1))
        return states

    def cut(self, lengths: Tensor) -> None:
        self.inner.cut(lengths)
        self.length = lengths.to(self.length)

    def keep(self, rows: Tensor) -> ScriptedWriter:
        kept = ScriptedWriter(self.inner.keep(rows), self.tags[rows], self.work)
        kept.length = self.length[rows]
        return kept

    def _count(self, tokens: int) -> None:
        self.work.decoder_calls += 1
        self.work.decoder_tokens += tokens

    def _tagged(self, states: Tensor, first: Tensor) -> Tensor:
        count = states.shape[1]
        tags = self.tags[:, None].expand(-1, count, -1)
        place = first[:, None] + torch.arange(count)
        return torch.cat([states, tags, place[:, :, None].to(states.dtype)], dim=2)


def survival(model: Model, prompts: list[str], k: int) -> dict[str, float]:
    """How much of the candidates of open slots survives a step, on a trained model."""
    options = LatentOptions(k=k, candidates=True)
    canvases = [model.canvas(prompt) for prompt in prompts]
    keys = list(range(len(prompts)))
    rows = latentmdm.decode(model.net, model.vocab, canvases, keys, options)
    kept, whole, single, nats = [], [], [], []
    for row in rows:
        seen: dict[tuple[int, int], tuple[int, ...]] = {}
        for candidate in row.candidates or []:
            ids = (*(candidate.token_ids or ()), model.vocab.eos_id)
            seen[candidate.step, candidate.segment] = ids
            before = seen.get((candidate.step - 1, candidate.segment))
            if len(ids) > 1:
                nats.append(-(candidate.score or 0.0))
            if before is None or len(before) == len(ids) == 1:
                continue
            same = sum(old == new for old, new in zip(before, ids, strict=False))
            kept.append((same, len(ids)))
            whole.append(before == ids)
            if before != ids:
                single.append(len(before) == len(ids) == same + 1)
    return {
        "tokens that survive": sum(a for a, _ in kept) / sum(b for _, b in kept),
        "candidates that change": 1 - sum(whole) / len(whole),
        "changes of more than one token": 1 - sum(single) / max(1, len(single)),
        "nats a token": sum(nats) / len(nats),
    }


def prefix_twin(net: LatentNet) -> LatentNet:
    """The same weights with a prompt that does not see the slots."""
    twin = LatentNet.__new__(LatentNet)
    twin.__dict__.update(net.__dict__)
    twin.config = replace(net.config, attention="prefix_lm")
    return twin
