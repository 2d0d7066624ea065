"""A small latentmdm and a small flexlatent learn 64 programs by heart and write them down again.

The whole path: corpus, segments, loss, loop, model folder, decoding by average log-likelihood. And
what verifying kept candidates gives is what writing all of them anew gives, on trained weights too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from anyorder.apps import train as training
from anyorder.apps.corpus import Corpus, SelectedExamples
from anyorder.data.corpora.stories import StoriesConfig, stories_vocab
from anyorder.data.sources import StoriesSource
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.candidates import Candidates
from anyorder.families.latentmdm.config import LatentOptions
from anyorder.model import Model
from anyorder.trace import Trace

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
PROGRAMS = 64
CHANGES: dict[str, dict[str, Any]] = {
    "latentmdm": {"steps": 800},
    "flexlatent": {
        # Wide and shallow: where lines are missing takes long to learn, and few layers are quick.
        "steps": 6000,
        "net.width": 96,
        "net.heads": 6,
        "net.mlp_width": 192,
        "net.encoder_layers": 1,
        "net.layers": 3,
        "net.decoder_layers": 1,
        "insertion.infill": 0.0,
    },
}
POLICIES = ("average", "minimum", "first", "left_to_right", "random")


@pytest.fixture(scope="module")
def programs() -> list[tuple[str, str]]:
    """Problems with different texts: prompt -> program is a function."""
    source, found = StoriesSource(StoriesConfig()), {}
    index = 0
    while len(found) < PROGRAMS:
        prompt, program = source[index]
        found.setdefault(prompt, program)
        index += 1
    return list(found.items())


class Held:
    """Examples in memory."""

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self.rows, self.size = rows, len(rows)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self.rows[index]


def memorise(family: str, programs: list[tuple[str, str]], folder: Path) -> Model:
    rows = SelectedExamples(Held(programs), list(range(PROGRAMS)))
    corpus = Corpus(stories_vocab(), rows, rows, digest="held")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "open_corpus", lambda *_: corpus)
        torch.set_num_threads(1)
        return training.train(
            f"tiny/{family}",
            out=folder / family,
            progress=False,
            validate_every=0,
            ema=0.99,
            **CHANGES[family],
        )


@pytest.fixture(scope="module")
def latent(programs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Model:
    return memorise("latentmdm", programs, tmp_path_factory.mktemp("latent"))


def share_right(traces: list[Trace], programs: list[tuple[str, str]]) -> float:
    pairs = zip(traces, programs, strict=True)
    return sum(trace.text == program for trace, (_, program) in pairs) / len(programs)


def test_latentmdm_memorises(latent: Model, programs: list[tuple[str, str]]) -> None:
    traces = latent.sample([prompt for prompt, _ in programs], policy="average")
    assert share_right(traces, programs) >= 0.95


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("policy", POLICIES)
def test_verified_candidates_are_those_written_anew(
    latent: Model,
    programs: list[tuple[str, str]],
    policy: str,
    k: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On trained weights, with unseen prompts among the known ones."""
    unseen = StoriesSource(StoriesConfig(split="heldout"))
    prompts = [prompt for prompt, _ in programs[:8]] + [unseen[index][0] for index in range(8)]
    canvases = [latent.canvas(prompt) for prompt in prompts]
    options = LatentOptions(policy=policy, k=k)

    def decoded() -> Any:
        keys = list(range(len(canvases)))
        return latentmdm.decode(latent.net, latent.vocab, canvases, keys, options)

    kept = decoded()
    original = Candidates.__init__

    def anew(self: Candidates, *given: Any, **named: Any) -> None:
        original(self, *given, **named | {"reuse": False})

    monkeypatch.setattr(Candidates, "__init__", anew)
    for left, right in zip(kept, decoded(), strict=True):
        assert left.token_ids == right.token_ids
        assert left.reveal_step == right.reveal_step
        assert left.score == pytest.approx(right.score, abs=1e-4, nan_ok=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_flexlatent_memorises(programs: list[tuple[str, str]], tmp_path: Path) -> None:
    model = memorise("flexlatent", programs, tmp_path)
    traces = model.sample([prompt for prompt, _ in programs], policy="average", clock="events")
    assert share_right(traces, programs) >= 0.95
