"""Published checkpoints from the command line: sampled, retrofitted, exported, pushed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_checkpoints as made
import pytest
import torch

import anyorder
from anyorder.cli import main

STEPS: dict[str, list[str]] = {
    "dream": ["--policy", "entropy", "--steps", "4", "--mode", "compat"],
    "flexmdm": ["--steps", "6"],
    "llada": ["--block", "4", "--steps", "4"],
    "dultra": ["--policy", "planner"],
    "qwen2": ["--temperature", "0.8"],
    "llama": [],
    "qwen3": [],
    "sdar": ["--quota", "threshold:0.9", "--cache", "none"],
    "fast_dllm": ["--block", "8"],
}


@pytest.mark.parametrize("kind", list(made.FORMATS))
def test_sample_reads_every_format(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind in made.BY_TRANSFORMERS:
        pytest.importorskip("transformers")
    made.FORMATS[kind](tmp_path / "model")
    words = ["sample", str(tmp_path / "model"), "--prompt", "abcd ef", "--max-new-tokens", "8"]
    words += [*STEPS[kind], "--out", str(tmp_path / "run"), "--json"]
    assert main(words) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["samples"] == 1
    (trace,) = anyorder.Run.open(tmp_path / "run").traces()
    assert trace.prompt == "abcd ef" and len(trace.token_ids) <= 8
    assert trace.family == anyorder.load(tmp_path / "model").family.name


def test_export_and_push(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.dream(tmp_path / "model")
    out = str(tmp_path / "out")
    assert main(["export", str(tmp_path / "model"), "--out", out, "--json"]) == 0
    made_files = json.loads(capsys.readouterr().out)
    assert made_files["layout"] == "qwen2" and "model.safetensors" in made_files["files"]
    sent: list[str] = []

    class Api:
        def create_repo(self, repo_id: str, **_: Any) -> None:
            sent.append(repo_id)

        def upload_folder(self, *, folder_path: str, **_: Any) -> str:
            sent.append(folder_path)
            return "commit 1"

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert main(["push", out, "me/dream", "--private"]) == 0
    assert capsys.readouterr().out == "me/dream: commit 1\n"
    assert sent == ["me/dream", out]
    assert main(["push", out, "dream"]) == 1
    assert "no hub id" in capsys.readouterr().err
    assert main(["export", "mdm", "--out", out]) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["export", "push"])
def test_help_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert not stop.value.code
    assert f"anyorder {verb} " in capsys.readouterr().out.split("\n", 1)[1]


def retrofit(base: Path, out: Path, source: Path, **shape: Any) -> list[str]:
    """The paper's own recipe at a small size."""
    told = {
        "start": base,
        "data.vocab": base,
        "device": "cpu",
        "dtype": "float32",
        "data.source": source,
        "data.prompt-field": "prompt",
        "data.answer-field": "answer",
        "data.max-length": 48,
        "data.canvas": 40,
        "steps": 3,
        "batch": 4,
        "accumulate": 2,
        "warmup": 1,
        "validate-every": 3,
        "validate-batches": 1,
        "save-every": 3,
    } | shape
    words = ["train", "paper/flexmdm-dreamcoder-7b", "--out", str(out)]
    return words + [word for name, value in told.items() for word in (f"--{name}", str(value))]


SMALL = {
    "net.width": made.WIDTH,
    "net.layers": made.LAYERS,
    "net.heads": made.HEADS,
    "net.kv-heads": made.KV_HEADS,
    "net.mlp-width": made.INNER,
}


def examples(path: Path) -> Path:
    program = "def f(x):\n    return x + {}\n"
    rows = [{"prompt": f"add {n} to x", "answer": program.format(n)} for n in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check_retrofit(start: Path, tmp_path: Path, rows: int) -> None:
    """Load, retrofit, train three steps, save, export, reload: the same model throughout."""
    source, shape = examples(tmp_path / "rows.jsonl"), SMALL | {"net.vocab-size": rows}
    words = retrofit(start, tmp_path / "run", source, **shape)
    assert main(words) == 0
    base, model = anyorder.load(start), anyorder.load(tmp_path / "run")
    assert model.family.name == "flexmdm" and model.vocab.digest() == base.vocab.digest()
    before, after = base.net.state_dict(), model.net.state_dict()
    assert len(model.net.additions()) == 6 + 4 + 2 * made.LAYERS
    moved = [float((after[name] - value).abs().max()) for name, value in before.items()]
    assert 0 < max(moved) < 1e-3  # three steps of 1e-5 from where it began
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    again = anyorder.load(tmp_path / "out")
    found = again.net.state_dict()
    assert found.keys() == after.keys()
    assert all(torch.equal(found[name], value) for name, value in after.items())
    assert again.card == model.card and again.vocab.digest() == model.vocab.digest()
    assert (tmp_path / "out" / "flexmdm_extras.pt").is_file()
    options: dict[str, Any] = {"steps": 6, "max_new_tokens": 8, "temperature": 1.0, "seed": 3}
    (one,), (two,) = (each.sample("add 3 to x", **options) for each in (model, again))
    assert one.token_ids.tolist() == two.token_ids.tolist()


def test_a_dream_folder_becomes_flexmdm(tmp_path: Path) -> None:
    made.dream(tmp_path / "dream", shards=2)
    check_retrofit(tmp_path / "dream", tmp_path, made.ROWS)


@pytest.mark.long
def test_with_the_real_vocabulary_of_152064_rows(
    tmp_path: Path, data_file: Callable[[str], Path]
) -> None:
    start = tmp_path / "dream"
    shapes = made.qwen_shapes(rows=152_064)
    tensors = {name: value.bfloat16() for name, value in made.drawn(shapes, 0).items()}
    told = dict.fromkeys(("eos_token_id", "pad_token_id", "bos_token_id"), 151_643)
    config = made.dream_config(vocab_size=152_064, mask_token_id=151_666, **told)
    made.write_folder(start, config, tensors, shards=2)
    made.write_dream_tokenizer(start, data_file, merges=True)
    check_retrofit(start, tmp_path, 152_064)


def test_the_wrong_shape_convention_or_start_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.dream(tmp_path / "dream")
    source = examples(tmp_path / "rows.jsonl")
    small = SMALL | {"net.vocab-size": made.ROWS}
    for change, says in (
        (
            {"net.layers": 3, "net.norm-eps": 1e-5, "net.rope-theta": 2e6},
            "another shape than you asked for (net.layers is 2 and not 3, net.norm_eps is 1e-06 "
            "and not 1e-05, net.rope_theta is 1000000.0 and not 2000000.0): leave these out",
        ),
        ({"net.convention": "plain"}, "net.convention=release"),
        ({"net.shift": True}, "flexmdm does not use net.shift"),
        ({"start": "nobody/none-at-all/x"}, "no model"),
    ):
        words = retrofit(tmp_path / "dream", tmp_path / "run", source, **small | change)
        assert main(words) == 1
        assert says in capsys.readouterr().err


def test_mdm_goes_on_from_dream_and_from_a_causal_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source = examples(tmp_path / "rows.jsonl")
    made.dream(tmp_path / "dream")
    made.qwen2(tmp_path / "qwen2", rope_parameters={"rope_theta": 1e6, "rope_type": "default"})
    for start in ("dream", "qwen2"):
        words = retrofit(tmp_path / start, tmp_path / f"from-{start}", source, **SMALL)
        words[1] = "tiny/mdm"
        words += ["--net.vocab-size", str(made.ROWS), "--net.shift", "True"]
        words += ["--net.rope-theta", "1e6", "--net.no-tied"]
        assert main(words) == 0
        model = anyorder.load(tmp_path / f"from-{start}")
        base = anyorder.load(tmp_path / start, family="mdm")
        assert model.config == base.config


STARTS = [
    ("llama", "tiny/mdm"),
    ("qwen2", "tiny/mdm"),
    ("dream", "tiny/mdm"),
    ("dream", "tiny/flexmdm"),
    ("dream", "paper/flexmdm-dreamcoder-7b"),
    ("llama", "tiny/ar"),
    ("llada", "tiny/flexmdm"),
    ("qwen3", "tiny/mdm"),
    ("qwen3", "tiny/block"),
    ("sdar", "paper/block-sdar-4b"),
]


@pytest.mark.parametrize(("kind", "recipe"), STARTS)
def test_the_shape_is_that_of_the_start(
    tmp_path: Path, kind: str, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command without a word about the shape, and again: it goes on where it stopped."""
    if kind in made.BY_TRANSFORMERS:
        pytest.importorskip("transformers")
    made.FORMATS[kind](tmp_path / kind)
    source = examples(tmp_path / "rows.jsonl")
    words = retrofit(tmp_path / kind, tmp_path / "run", source, lr=1e-9, ema=0.0)
    words[1] = recipe
    assert main(words) == 0
    assert f"has the shape of {tmp_path / kind}: width {made.WIDTH}" in capsys.readouterr().err
    model = anyorder.load(tmp_path / "run")
    known = model.family.name in ("mdm", "ar")
    base = anyorder.load(tmp_path / kind, family=model.family.name if known else None)
    if known:
        assert model.config == base.config
    began = base.net.state_dict()
    found = model.net.state_dict() if known else model.net.backbone.state_dict()
    shared = {name.removeprefix("backbone."): value for name, value in began.items()}
    own = {name.removeprefix("backbone."): value for name, value in found.items()}
    assert shared.keys() <= own.keys()
    for name, value in shared.items():
        torch.testing.assert_close(own[name], value, atol=1e-6, rtol=0)
    assert main(words) == 0, capsys.readouterr().err
