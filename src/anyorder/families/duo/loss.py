"""duo's loss on one batch: corrupt, look, compare (process/uniform.py).

The network's time is alpha, the share of tokens that are not noise. The states are the ids that a
text may hold (`States` in nets/denoiser.py); the vocabulary head runs on free places only.

At a fixed level, i.e. in validation, there is neither infilling nor curriculum, because the number
is about whole answers. It estimates the bound by 8 midpoints, up to a few hundredths of a nat a
token too low, because the integrand can grow like -ln t towards t = 0: it may be below the data's
entropy. The race reports the bound itself, at random times (families/likelihood.py).

Not here: the training loop. Letters: B rows, L positions, M free places of the whole batch, K
states, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyorder.data.batches import Batch
from anyorder.families.duo.config import UniformConfig
from anyorder.families.family import Objective
from anyorder.nets.denoiser import States
from anyorder.nets.transformer import Transformer
from anyorder.process import uniform
from anyorder.process.insertion import answer_items
from anyorder.process.masking import LossParts
from anyorder.process.noise import Noise
from anyorder.process.uniform import FIRST_TIME, GammaLine, LogLinear, Noised, relax
from anyorder.vocab import Vocab

SCHEDULE = LogLinear()


def uniform_bound(
    vocab: Vocab, config: UniformConfig, max_length: int, *, first_time: float = FIRST_TIME
) -> Objective:
    """The bound's integrand at a random time, not before `first_time`, per free token."""
    all_states = States.of(vocab)

    def objective(net: nn.Module, batch: Batch, noise: Noise) -> LossParts:
        assert isinstance(net, Transformer)
        states = all_states.to(batch.ids.device)
        training = noise.level is None
        free = _free(batch, noise, config.infill) if training else batch.answer
        # Ids that are no states occur only at places that are not free: any number serves there.
        clean = states.number[batch.ids].where(free, 0)
        assert bool((clean >= 0).all()), "an answer holds an id that is no state"
        if training and noise.step < config.curriculum:
            seen, vectors = _soft(net, batch, free, clean, noise, states, config.tau)
        else:
            seen = uniform.corrupt(
                clean, free, batch.index, noise, SCHEDULE, states.count, first_time
            )
            vectors = net.embed(batch.ids.where(~free, states.ids[seen.states]))
        nats, log_prob = token_nats(net, batch, free, clean, seen, vectors, states)
        return uniform.mean_over_tokens(nats, -log_prob.gather(1, clean[free][:, None]))

    return objective


def token_nats(
    net: Transformer,
    batch: Batch,
    free: Tensor,
    clean: Tensor,
    seen: Noised,
    vectors: Tensor,
    states: States,
) -> tuple[Tensor, Tensor]:
    """The integrand of each free token (M), and the network's log-probabilities (M K)."""
    time = seen.alpha.float()
    hidden = net.hidden(ids=batch.ids, vectors=vectors, mask=batch.real, time=time)[free]
    log_prob = states.logits(net.head(hidden)).log_softmax(dim=-1)  # M K
    row = free.nonzero()[:, 0]
    nats = uniform.bound(log_prob, seen.states[free], clean[free], seen.alpha[row], seen.slope[row])
    return nats, log_prob


def _free(batch: Batch, noise: Noise, infill: float) -> Tensor:
    """The answers' places, or for a share of the examples a span of them.  # B L"""
    first, last, longest = batch.prompt_length, batch.length, batch.ids.shape[1]
    return answer_items(first, last, longest, batch.index, noise, infill).free


def _soft(
    net: Transformer,
    batch: Batch,
    free: Tensor,
    clean: Tensor,
    noise: Noise,
    states: States,
    tau: float,
) -> tuple[Noised, Tensor]:
    """The curriculum's corruption, and the network's input (B L D): mixed embeddings."""
    # Uniform in gamma, not in alpha: the loss takes alpha and its slope from the same line.
    line = GammaLine.of(states.count)
    time = noise.levels(len(free), free.device)
    alpha, slope = line.alpha(time, states.count)
    row, place = where = free.nonzero(as_tuple=True)
    gamma = line.value(time)[row]
    latent = relax(clean[where], batch.index[row], place, noise, gamma, states.count)  # M K
    shares = (latent / tau).softmax(dim=-1).to(net.embed.weight.dtype)
    soft = shares @ net.embed.weight[states.ids]  # M D
    clear = net.embed(batch.ids)
    vectors = torch.index_put(clear, where, soft.to(clear.dtype))
    return Noised(torch.index_put(clean, where, latent.argmax(dim=-1)), alpha, slope), vectors
