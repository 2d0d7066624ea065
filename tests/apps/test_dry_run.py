"""`train --dry-run`: for every recipe, on any machine, and refusals that say what to change."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anyorder
from anyorder.apps.dry_run import GPUS, Machine, dry_run, find_gpu, measure_sizes, meta_network
from anyorder.cli import main
from anyorder.cli.models import TrainFlags
from anyorder.cli.parsing import parse
from anyorder.cli.runs import GradeFlags
from anyorder.cli.sample import sample_flags
from anyorder.recipes import RECIPES, find_recipe, override
from anyorder.training.lora import adapt

H100 = find_gpu("h100")
FLEX = "paper/flexmdm-dreamcoder-7b"
SMALL = "paper/mdm-125m"


@lru_cache
def net_of(recipe: str) -> Any:
    return meta_network(find_recipe(recipe))


def told(recipe: str, machine: Machine | None = None, **changes: Any) -> dict[str, Any]:
    """A dry run; no change here is one of the network."""
    changed = override(find_recipe(recipe), changes)
    return dry_run(changed, machine or Machine(16, H100), net_of(recipe))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_can_be_told(recipe: str) -> None:
    found = told(recipe, Machine(1))
    json.dumps(found)
    assert sum(found["by_module"].values()) == found["parameters"]
    assert found["rank_bytes"] == pytest.approx(sum(found["memory_per_rank"].values()), abs=16)
    assert found["trained_parameters"] <= found["parameters"]
    assert found["flops"] > 0 and found["fits"] is None and found["days"] is None
    sizes = measure_sizes(find_recipe(recipe), net_of(recipe))
    assert found | sizes == found, "what was told before is told still"


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name.startswith("paper/")])
def test_the_papers_recipes_fit_on_what_they_are_for(recipe: str) -> None:
    large = (FLEX, "paper/mdm-llada-8b", "paper/block-sdar-4b")
    gpus = 16 if recipe in large else 1
    assert told(recipe, Machine(gpus, find_gpu("a100-80")))["fits"]
    for count in (1, 2, 4, 8, 16):
        told(recipe, Machine(count, H100))  # micro batches divide


def test_the_published_training_is_of_the_published_length() -> None:
    """16 H100 for three days and 49,500 steps: at the utilisation of 22 % that this amounts to."""
    found = told(FLEX, Machine(16, H100, nodes=4, utilisation=0.22))
    assert 49_500 * found["seconds_per_step"] / 86_400 == pytest.approx(3, rel=0.1)
    assert found["tokens_per_step"] == 576 * 768
    assert found["flops_per_step"] == pytest.approx(6 * 7.1e9 * 576 * 768, rel=0.1)


def test_memory_is_divided_as_weights_are() -> None:
    def parts(**changes: Any) -> dict[str, float]:
        found: dict[str, float] = told(FLEX, Machine(16, H100, nodes=4), **changes)
        return found["memory_per_rank"]  # type: ignore[return-value]

    numbers = measure_sizes(find_recipe(FLEX), net_of(FLEX))["parameters"]
    full, hybrid, none = (parts(shard=way) for way in ("full", "hybrid", "none"))
    for name, size in (("weights_bytes", 4), ("gradients_bytes", 4), ("optimiser_bytes", 8)):
        assert full[name] == pytest.approx(size * numbers / 16, abs=1)
        assert hybrid[name] == pytest.approx(size * numbers / 4, abs=1)
        assert none[name] == size * numbers
    # Everything but the layers, and two layers, in bfloat16.
    layer = 233_057_792 + 25_697_280
    root = numbers - 28 * layer
    assert full["gathered_weights_bytes"] == 2 * (root + 2 * layer)
    assert parts(reduce="step")["whole_gradients_bytes"] == 4 * numbers
    assert parts(accumulate=16, reduce="step")["whole_gradients_bytes"] < numbers
    assert parts(ema=0.9)["average_bytes"] == pytest.approx(4 * numbers / 16, abs=1)


def test_computing_twice_trades_memory_for_time() -> None:
    once, twice = told(SMALL), told(SMALL, recompute=True)
    assert twice["memory_per_rank"]["activations_bytes"] < (
        once["memory_per_rank"]["activations_bytes"] / 5
    )
    assert 1 < twice["flops_per_step"] / once["flops_per_step"] < 4 / 3
    assert twice["rank_bytes"] < once["rank_bytes"]


def test_adapters_learn_little() -> None:
    found = told(FLEX, Machine(1, H100), lora=8, recompute=True, accumulate=576)
    shape = {"q": (3584, 3584), "k": (3584, 512), "v": (3584, 512), "o": (3584, 3584)}
    shape |= {"gate": (3584, 18_944), "up": (3584, 18_944), "down": (18_944, 3584)}
    adapters = 28 * 8 * sum(a + b for a, b in shape.values())
    assert found["trained_parameters"] == adapters + 835_161_601
    assert found["memory_per_rank"]["optimiser_bytes"] == 8 * found["trained_parameters"]
    assert found["memory_per_rank"]["weights_bytes"] == 4 * (found["parameters"] + adapters)
    assert found["flops_per_step"] < told(FLEX, recompute=True)["flops_per_step"]


@pytest.mark.parametrize("targets", [(), ("query", "value")])
def test_adapters_are_those_of_training(targets: tuple[str, ...]) -> None:
    pytest.importorskip("peft")
    recipe = override(
        find_recipe("tiny/flexmdm"), {"start": "mdm", "lora": 4, "lora_targets": targets}
    )
    found = dry_run(recipe, Machine())["trained_parameters"]
    net: Any = meta_network(recipe)
    adapt(net, recipe.train, net.additions())
    assert found == sum(each.numel() for each in net.parameters() if each.requires_grad)


@settings(max_examples=8)
@given(st.sampled_from(sorted(GPUS)), st.sampled_from([1, 2, 4, 8, 16]), st.floats(0.05, 1))
def test_time_is_operations_over_speed(gpu: str, gpus: int, utilisation: float) -> None:
    kind = find_gpu(gpu)
    found = told(SMALL, Machine(gpus, kind, utilisation=utilisation))
    speed = gpus * kind.bfloat16 * 1e12 * utilisation
    assert found["seconds_per_step"] == pytest.approx(found["flops_per_step"] / speed)
    assert found["days"] == pytest.approx(found["flops"] / speed / 86_400)


def test_shorter_examples_take_less_time_and_as_much_memory() -> None:
    long, short = told("paper/ar-125m"), told("paper/ar-125m", Machine(16, H100, length=155))
    assert short["flops_per_step"] < long["flops_per_step"] / 3
    assert short["rank_bytes"] == long["rank_bytes"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["train", *words])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (FLEX, "--gpus 1 --gpu h100"),
        (FLEX, "--gpus 8 --gpu a100-40"),
        (FLEX, "--gpus 16 --gpu h100 --shard none"),
        (SMALL, "--gpus 1 --gpu rtx4090 --accumulate 2"),
        ("paper/duo-125m", "--gpus 4 --gpu a100-40 --dtype float32 --accumulate 4"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    recipe: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, recipe, "--dry-run", "--json", *words.split())
    assert code == 1 and json.loads(out)["fits"] is False
    assert "it does not fit: a rank needs" in err and err.count("\n") == 1
    ways = re.search(r"It fits with (.*)", err)
    assert ways is not None
    for advice in ways[1].split(", or with "):
        given = [*words.split(), *shlex.split(advice)]
        assert run(capsys, recipe, "--dry-run", *given)[0] == 0, advice


def test_advice_is_what_training_would_take(capsys: pytest.CaptureFixture[str]) -> None:
    """Adapters need a trained model, and samples of grpo whole networks."""
    _, _, err = run(capsys, "paper/duo-125m", "--dry-run", "--gpu", "rtx4090")
    assert "It fits with --accumulate 32\n" in err
    code, _, err = run(capsys, "tiny/planner-grpo", "--dry-run", "--gpus", "2", "--accumulate", "2")
    assert code == 1 and "give shard=none" in err


def test_gpus_are_found_in_any_case() -> None:
    assert find_gpu("H100") is H100
    assert find_gpu("rtx4090").peak("float64") < find_gpu("rtx4090").peak("float32") / 50


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, FLEX, "--dry-run", "--gpus", "16", "--gpu", "h100", "--nodes", "4")
    assert code == 0
    for line in (
        "8,450,778,113 in 405 tensors",
        "835,161,601 in 66 tensors",
        "16 h100 on 4 machines; 6 micro batches of 6 for each, in bfloat16",
        "GiB of 79.6 GiB: fits",
        "442,368 at the most",
        "assumed: 40% of 989",
    ):
        assert line in out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--dry-run --gpus 3", 1, "do not divide among 3 GPUs"),
        ("--dry-run --gpus 32", 1, "give --accumulate 32 or 64 or 128"),
        ("--dry-run --gpu h1000", 1, "choose one of b200"),
        ("--dry-run --gpus 16 --nodes 3", 1, "do not divide among 3 machines"),
        ("--dry-run --utilisation 40", 1, "a share in (0, 1]"),
        ("--dry-run --length 0", 1, "--length must be at least 1"),
        ("--dry-run --length nan", 1, "--length must be at least 1"),
        ("--dry-run --length 513", 1, "at most 512 tokens"),
        ("--dry-run --lora 8", 1, "name one with --start"),
        ("--gpus 8", 2, "--gpus belongs to --dry-run"),
    ],
)
def test_wrong_machines(
    words: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, err = run(capsys, SMALL, *words.split())
    assert found == code and says in err


def test_the_shape_is_that_of_any_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a folder, a shipped name and a hub id, of which no weights are fetched."""
    made.FORMATS["dream"](tmp_path / "dream")
    asked: list[dict[str, Any]] = []

    def download(repo: str, **settings: Any) -> str:
        asked.append(settings)
        for each in (tmp_path / "dream").glob("*.safetensors"):
            each.unlink()
        return str(tmp_path / "dream")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    found = []
    for start in (str(tmp_path / "dream"), "me/dream"):
        words = ["--dry-run", "--json", "--start", start, "--data.vocab", str(tmp_path / "dream")]
        code, out, err = run(capsys, "tiny/mdm", *words)
        assert code == 0, err
        found.append(json.loads(out)["parameters"])
    plain = json.loads(run(capsys, "tiny/mdm", "--dry-run", "--json")[1])
    assert found[0] == found[1] != plain["parameters"]
    assert len(asked) == 1 and "*.safetensors" in asked[0]["ignore_patterns"]
    code, out, _ = run(capsys, "tiny/flexmdm", "--dry-run", "--json", "--start", "mdm")
    shipped = sum(weight.numel() for weight in anyorder.load("mdm").net.parameters())
    assert code == 0 and json.loads(out)["backbone_parameters"] == shipped
    assert run(capsys, "tiny/mdm", "--dry-run", "--start", "mdn")[0] == 1
    # The published recipe has the shape of its own start: no network is needed.
    assert run(capsys, FLEX, "--dry-run")[0] == 0 and len(asked) == 1


# docs/scale.md: its tables are those of the script, and its commands are commands.


ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
BASH = re.findall(r"```bash\n(.*?)```", PAGE, re.S)


def commands() -> list[list[str]]:
    """The words after `anyorder` of every command on the page."""
    found = []
    for block in BASH:
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "anyorder" in words:
                found.append(words[words.index("anyorder") + 1 :])
    return found


def test_there_are_commands_for_one_eight_and_sixteen() -> None:
    verbs = {words[0] for words in commands()}
    assert verbs == {"train", "sample", "grade"}
    assert "--nnodes 2 --nproc-per-node 8" in PAGE and "#SBATCH --job-name=sample --array" in PAGE


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_understood(words: list[str]) -> None:
    verb, *rest = words
    flags: dict[str, Any] = {"sample": sample_flags(), "grade": GradeFlags}
    if verb == "train":
        recipe, *rest = rest
        assert parse(TrainFlags, verb, rest, default=TrainFlags(find_recipe(recipe)))
    else:
        assert parse(flags[verb], verb, rest)


def test_the_numbers_are_those_of_the_script() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "dry_runs.py"))
    assert script["sizes"](find_gpu("h100")) in PAGE
    assert script["refusals"](find_gpu("h100")) in PAGE
