"""block from the command line: a short training, its starts, every flag, filling, likelihoods."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import anyorder
from anyorder.apps.lm_eval.likelihood import TextScorer
from anyorder.apps.train import network_config
from anyorder.cli import main
from anyorder.decode.replay import Replay
from anyorder.families.block.replay import block_reader
from anyorder.families.family import find_family
from anyorder.nets.blocks import block_numbers
from anyorder.recipes import find_recipe
from anyorder.trace import Run

SMALL = "--warmup 1 --batch 4 --threads 1 --validate-every 0 --net.width 32 --net.heads 2"
SMALL += " --net.layers 2 --net.mlp-width 24"
STORIES = ("--task", "stories", "--limit", "2")
PROMPT = "Ana has some peaches. How many does she have now?\n"
GAP = PROMPT + "def solve(<fill:4>):\n    return total\n"


def trained(family: str, folder: Path, words: str = "--steps 2") -> str:
    assert main(f"train tiny/{family} {SMALL} {words} --out {folder}".split()) == 0
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """`model(family)`: a barely trained one, made once."""
    return cache(lambda family: trained(family, tmp_path_factory.mktemp(family) / "m"))


def sample(model: str, words: str, out: Path, what: tuple[str, ...] = STORIES) -> Run:
    assert main(["sample", model, *what, "--out", str(out), *words.split()]) == 0
    return Run.open(out)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {"block": 4, "origin": "after_prompt", "policy": "confidence", "eos": "finish"}),
        ("--block 1", {"block": 1, "quota": "even"}),
        ("--block 16 --origin absolute --block-steps 3", {"origin": "absolute", "block_steps": 3}),
        ("--policy entropy --quota entropy_bound:2 --origin left_padded", {"block": 4}),
        ("--quota threshold:0.02 --cache stale --eos plain", {"cache": "stale"}),
        ("--policy random --temperature 1 --cache none", {"policy": "random", "cache": "none"}),
    ],
)
def test_every_flag_reaches_the_decoder(
    model: Callable[[str], str], words: str, options: dict[str, Any], tmp_path: Path
) -> None:
    run = sample(model("block"), words, tmp_path / "run")
    assert options.items() <= run.card.config["options"].items()
    assert (run.card.agreement is not None) == ("stale" in words)
    for trace in run.traces():
        assert trace.family == "block"
        assert trace.replay(trace.steps).ids(-1).tolist() == trace.token_ids.tolist()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--policy planner", "which only mdm can have"),
        ("--steps 8", "block does not use --steps"),
        ("--block-steps 9", "9 steps for a block of 4 slots"),
        ("--eos never", "eos='never' does not fit"),
    ],
)
def test_refused(
    model: Callable[[str], str], words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", model("block"), *STORIES, *words.split()]) == 1
    assert says in capsys.readouterr().err


def test_a_gap_of_told_length_is_filled_and_its_surroundings_stay(
    model: Callable[[str], str],
) -> None:
    (trace,) = anyorder.load(model("block")).sample(GAP)
    assert trace.token_ids is not None and trace.reveal_step is not None
    drawn = (trace.reveal_step > 0).sum()
    assert drawn == 4 and trace.text.endswith("):\n    return total\n")


@pytest.mark.parametrize(("base", "shift"), [("ar", True), ("mdm", False), ("block", False)])
def test_it_starts_from_ar_and_from_mdm(
    model: Callable[[str], str], base: str, shift: bool, tmp_path: Path
) -> None:
    """A left-to-right start predicts where it did: one place to the left."""
    start = f"--steps 2 --lr 1e-9 --start {model(base)}"
    net = anyorder.load(trained("block", tmp_path / "m", start)).net
    assert net.config.shift is shift
    given = anyorder.load(model(base)).net
    table = (given.backbone if base == "block" else given).embed.weight
    assert torch.allclose(net.backbone.embed.weight, table, atol=1e-5)


def test_its_parameters_and_its_steps_are_those_of_the_others() -> None:
    def size(name: str) -> int:
        recipe = find_recipe(name)
        with torch.device("meta"):
            net = find_family(recipe.family).network.build(network_config(recipe, 97, 1))
        return sum(each.numel() for each in net.parameters())

    for family in ("ar", "mdm"):
        assert size("trails/block") == size(f"trails/{family}")
        mine, theirs = find_recipe("trails/block"), find_recipe(f"trails/{family}")
        assert (mine.train, mine.data, mine.trails) == (theirs.train, theirs.data, theirs.trails)
    assert size("tiny/block") == size("tiny/mdm")
    assert find_recipe("trails/block").settings.sizes == (1, 4, 16, 39)


def test_its_costs_are_known() -> None:
    for name in ("tiny/block", "trails/block"):
        assert main(["train", name, "--dry-run", "--json"]) == 0


def test_likelihoods_of_texts(model: Callable[[str], str]) -> None:
    scorer = TextScorer.of(anyorder.load(model("block")), {}, draws=4, batch=3)
    pairs = [(PROMPT, "def solve():\n"), (PROMPT, "def solve(total):\n")]
    one, two = scorer.pairs(pairs), scorer.pairs(pairs[::-1])[::-1]
    for here, there in zip(one, two, strict=True):
        assert here.estimate.nats > 0
        assert here.estimate.nats == pytest.approx(there.estimate.nats, abs=1e-3)


@pytest.mark.parametrize("origin", ["absolute", "after_prompt", "left_padded"])
def test_the_run_card_says_the_block_of_every_token(
    model: Callable[[str], str], origin: str, tmp_path: Path
) -> None:
    """The grid of the decoder, as measures read it."""
    run = sample(model("block"), f"--block 5 --origin {origin} --eos plain", tmp_path / "run")
    rule = run.blocks()
    assert rule is not None
    for trace in run.traces():
        prompt, count = len(trace.prompt_ids), len(trace.token_ids)
        grid = block_numbers(torch.tensor([prompt]), prompt + count, 5, origin)[0, prompt:]
        assert rule.tokens(trace).tolist() == (grid - grid[0]).tolist()
        steps = [trace.reveal_step[grid.numpy() == number] for number in grid.unique()]
        assert all(one.max() < two.min() for one, two in itertools.pairwise(steps))


def test_a_trace_is_read_again_in_its_active_block(model: Callable[[str], str]) -> None:
    """The posteriors are those that the tokens were drawn from."""
    found = anyorder.load(model("block"))
    (trace,) = found.sample(PROMPT, block=4, policy="random", eos="plain", max_new_tokens=10)
    reader = block_reader(found.net, found.vocab, found.choose({"eos": "plain"}, []))
    assert trace.token_ids is not None and trace.log_prob is not None
    inside = trace.reveal_step > 0
    (moments,) = reader.moments([Replay(trace, range(10), inside)])
    assert [each.open for each in moments] == [4, 3, 2, 1, 4, 3, 2, 1, 2, 1]
    for number, belief in reader.posteriors(moments):
        moment = moments[number]
        (place,), (token,) = moment.committed.tolist(), moment.tokens.tolist()
        chance = belief.profile(moment.tokens)[belief.positions.tolist().index(place), 0]
        assert chance == pytest.approx(float(torch.tensor(moment.log_prob[0]).exp()), rel=1e-4)
        assert trace.token_ids[place] == token
