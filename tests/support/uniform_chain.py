"""The law of uniform-state decoding, exactly: a vector over all canvases, one matrix a step.

Written from the formulas and independent of decode/duo.py: times by linspace, the posterior from
its display, all free places by themselves given the canvas. A support module of test_duo_laws.py.
Letters: C canvases, L places, K states.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.process.uniform import mixture

Law = Mapping[tuple[int, ...], float]
Predict = Callable[[NDArray[np.int64], float], NDArray[np.float64]]
"""(canvases C L of state numbers, alpha) -> predictions C L K."""


def predict_with(oracle: object, ids: list[int]) -> Predict:
    """An oracle network over ids, as predictions over the states that these ids are."""
    table = torch.tensor(ids)

    def predict(canvases: NDArray[np.int64], alpha: float) -> NDArray[np.float64]:
        times = torch.full((len(canvases),), alpha, dtype=torch.float64)
        hidden = oracle.hidden(table[torch.from_numpy(canvases)], time=times)  # type: ignore[attr-defined]
        return hidden[..., table].softmax(dim=-1).numpy()

    return predict


def one_step(
    canvases: NDArray[np.int64], prob: NDArray[np.float64], alpha_t: float, alpha_s: float
) -> NDArray[np.float64]:
    """p(next canvas | canvas), all places free.  # C C"""
    count, kept = prob.shape[-1], alpha_t / alpha_s
    shown = np.eye(count)[canvases]  # C L K
    here = (prob * shown).sum(axis=-1, keepdims=True)  # C L 1
    total = count * alpha_t * here + 1 - alpha_t
    law = (
        (count * alpha_t * prob + kept - alpha_t) * shown
        + (alpha_s - alpha_t) * prob
        + (1 - kept) * (1 - alpha_s) / count
    ) / total  # C L K
    matrix = np.ones((len(canvases), len(canvases)))
    for place in range(canvases.shape[1]):
        matrix *= law[:, place, canvases[:, place]]
    return matrix


def chain_law(
    predict: Predict, length: int, count: int, steps: int
) -> dict[tuple[int, ...], float]:
    """The law of what N steps make of uniform noise, over tuples of state numbers."""
    canvases = np.array(list(itertools.product(range(count), repeat=length)))
    law = np.full(len(canvases), 1 / len(canvases))
    alphas = 1 - (1 - 1e-3) * np.linspace(1, 1e-5, steps + 1)
    alphas[-1] = 1.0  # the last step removes all noise
    for alpha_t, alpha_s in itertools.pairwise(alphas.tolist()):
        law = law @ one_step(canvases, predict(canvases, alpha_t), alpha_t, alpha_s)
    return {tuple(canvas): float(p) for canvas, p in zip(canvases.tolist(), law, strict=True)}


def distance(law: Law, other: Law) -> float:
    """Total variation."""
    keys = {*law, *other}
    return sum(abs(law.get(key, 0.0) - other.get(key, 0.0)) for key in keys) / 2


def bound_by_ratios(
    prob: Tensor, noisy: Tensor, clean: Tensor, alpha: Tensor, slope: Tensor
) -> Tensor:
    """The same as a generalised divergence of ratios, literally.  # M"""
    count = prob.shape[-1]
    alpha = alpha[:, None]
    one_hot = torch.nn.functional.one_hot(clean, count).to(prob)
    true, guess = (count * alpha * each + 1 - alpha for each in (one_hot, prob))  # M K
    true = true / true.gather(1, noisy[:, None])
    guess = guess / guess.gather(1, noisy[:, None])
    divergence = (true * (true / guess).log() - true + guess).sum(dim=1)
    return -slope / (count * alpha[:, 0]) * divergence


def posterior(prob: Tensor, noisy: Tensor, alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """p(x_s | x_t) over all states, from predictions (M K).  # M K"""
    count = prob.shape[-1]
    parts = mixture(prob.gather(1, noisy[:, None])[:, 0], alpha_t, alpha_s, count)
    here = torch.nn.functional.one_hot(noisy, count).to(prob)
    return parts.uniform[:, None] / count + parts.keep[:, None] * here + parts.clean[:, None] * prob
