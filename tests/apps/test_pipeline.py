"""`anyorder data` from files to shards: counts, report, resuming, and training on the result."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_corpora import in_columns, made_program, made_prompt, made_rows, rewritten, write_rows
from waiting import kill_after

from anyorder.apps import pipeline as data_pipeline
from anyorder.apps.corpus import open_corpus
from anyorder.apps.pipeline import make_shards
from anyorder.apps.pipeline.inputs import DataJob, open_benchmarks, open_plan
from anyorder.apps.train import train
from anyorder.cli import main
from anyorder.data.published import CODE_SOURCES
from anyorder.data.segments import SegmentConfig
from anyorder.data.sources import ShardSource
from anyorder.files import sha256_of
from anyorder.recipes import DataConfig, find_recipe
from anyorder.vocab import Vocab

OPC, KOD, OCI = (
    "opc-sft-stage2-educational",
    "KodCode-V1-SFT-4o",
    "OpenCodeInstruct-score1-py-all",
)
OTHERS = ("rstarcoder-seed-sft", "rstarcoder-synthetic-sft")
BYTES = {"vocab": "bytes", "max_tokens": 3000, "against": ("none",)}


def run(recipe: str, out: Path, *sources: str, **flags: Any) -> dict[str, Any]:
    job = DataJob(recipe, source=sources, out=out, **(BYTES | flags))
    return make_shards(open_plan(job), progress=False)


def report(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "dropped.jsonl").read_text().splitlines()]


def files(out: Path) -> dict[str, str]:
    found = (path for path in sorted(out.rglob("*")) if path.is_file())
    return {str(path.relative_to(out)): sha256_of(path) for path in found}


def benchmark(path: Path) -> Path:
    """A file of MBPP's columns with one problem."""
    row = {
        "task_id": 7,
        "text": "Write a function to find the largest gap between any two sorted neighbours.",
        "code": "def gap(xs):\n    return max(b - a for a, b in zip(sorted(xs), sorted(xs)[1:]))",
        "test_list": ["assert gap([1, 5, 2]) == 3"],
        "test_setup_code": "",
    }
    path.write_text(json.dumps(row) + "\n")
    return path


def test_each_reason_is_counted_and_reported(tmp_path: Path) -> None:
    prompt, program = made_prompt(0, 0), made_program(0, 0)
    rows = [
        *made_rows(OPC, 0, 20),
        in_columns(OPC, prompt, program.replace("\n", "\n\n"), 20),
        in_columns(OPC, prompt, rewritten(program, 1), 21),
        in_columns(OPC, prompt, "def f(:", 22),
        in_columns(OPC, "", program, 23),
        in_columns(OPC, made_prompt(9, 9) * 20, program, 24),
        in_columns(
            OPC,
            "Write a function to find the largest gap between any two sorted neighbours, please",
            "def f(): pass",
            25,
        ),
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    against = (str(benchmark(tmp_path / "mbpp.jsonl")),)
    manifest = run(OPC, tmp_path / "out", str(path), against=against)
    (source,) = manifest["sources"]
    assert source["left_out"] == {
        "contaminated": 1,
        "duplicate": 1,
        "near duplicate": 1,
        "no instruction": 1,
        "not Python": 1,
        "too long": 1,
    }
    assert (source["read"], source["train"] + source["validation"]) == (26, 20)
    told = {line["row"]: line for line in report(tmp_path / "out")}
    assert sorted(told) == [20, 21, 22, 23, 24, 25]
    assert told[20]["of"] == told[21]["of"] == {"source": OPC, "row": 0}
    assert 0.8 <= told[21]["similarity"] <= 1
    assert (told[25]["item"], told[25]["part"], told[25]["overlap"]) == ("Mbpp/7", "statement", 1)
    assert manifest["against"][0]["name"] == "MBPP"
    assert manifest["dropped.jsonl"] == sha256_of(tmp_path / "out" / "dropped.jsonl")
    for shard in manifest["shards"]:
        assert shard["sha256"] == sha256_of(tmp_path / "out" / shard["file"])
    assert not (tmp_path / "out" / "work").exists()


def test_the_shards_hold_the_rows_in_their_order(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.parquet", made_rows(OPC, 0, 50))
    run(OPC, tmp_path / "out", str(path), validation=0.2, shard_rows=16)
    found = {}
    for split in ("train", "validation"):
        source = ShardSource(tmp_path / "out", split, Vocab.load(tmp_path / "out"))  # type: ignore[arg-type]
        places = [source.at(index).row for index in range(source.size)]
        assert places == sorted(places) and 0 < len(places) < 50
        found |= {place: source[index] for index, place in enumerate(places)}
    assert found == {index: (made_prompt(0, index), made_program(0, index)) for index in range(50)}


def mixture(folder: Path, count: int) -> list[str]:
    """One file for each source of the mixture, in three formats."""
    words = []
    for seed, (alias, ending) in enumerate(
        zip((*OTHERS, OPC, KOD, OCI), (".jsonl", ".parquet", ".jsonl.gz") * 2, strict=False)
    ):
        path = write_rows(folder / f"{alias}{ending}", made_rows(alias, seed, count))
        words.append(f"{alias}={path}")
    return words


def test_a_mixture_repeats_training_rows_and_holds_validation_rows_out_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = mixture(tmp_path, 30)
    manifest = run("code-mixture", tmp_path / "out", *sources, validation=0.2)
    assert "KodCode-V1-SFT-4o is CC BY-NC 4.0" in capsys.readouterr().err
    assert any("not for commercial use" in warning for warning in manifest["warnings"])
    by_alias = {source["alias"]: source for source in manifest["sources"]}
    assert by_alias[KOD]["commercial"] is False and by_alias[OCI]["repeat"] == 1
    vocab = Vocab.load(tmp_path / "out")
    train_rows = ShardSource(tmp_path / "out", "train", vocab)
    held_out = ShardSource(tmp_path / "out", "validation", vocab)
    assert train_rows.size == manifest["rows_an_epoch"]
    assert train_rows.size == 2 * manifest["rows"]["train"] - by_alias[OCI]["train"]
    seen = [train_rows[index] for index in range(train_rows.size)]
    assert {seen.count(pair) for pair in seen} == {1, 2}
    kept = {held_out[index] for index in range(held_out.size)}
    assert len(kept) == manifest["rows"]["validation"] > 0 and not kept & set(seen)
    assert len(kept) + len(set(seen)) == 150

    with pytest.raises(ValueError, match="given files and left out"):
        run("code-mixture", tmp_path / "less", *sources, without=(KOD,))
    others = [word for word in sources if KOD not in word]
    less = run("code-mixture", tmp_path / "less", *others, without=(KOD,))
    assert KOD not in {source["alias"] for source in less["sources"]}
    assert not any("commercial" in warning for warning in less["warnings"])


def test_one_prompt_is_on_one_side_whatever_its_answers(tmp_path: Path) -> None:
    rows = [
        in_columns(OPC, made_prompt(0, index // 4), made_program(0, index), index)
        for index in range(80)
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    run(OPC, tmp_path / "out", str(path), validation=0.4, dedup="exact")
    vocab = Vocab.load(tmp_path / "out")
    sides: list[set[str]] = []
    for split in ("train", "validation"):
        source = ShardSource(tmp_path / "out", split, vocab)  # type: ignore[arg-type]
        sides.append({source[index][0] for index in range(source.size)})
    assert all(sides) and not sides[0] & sides[1]


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it on the way."""


def test_going_on_after_any_write_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = mixture(tmp_path, 24)
    flags: dict[str, Any] = {"shard_rows": 10, "validation": 0.2}
    run("code-mixture", tmp_path / "whole", *sources, **flags)
    written = data_pipeline._written
    commit = data_pipeline.write_json
    lives = 0

    def dies_after(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal count
            result = function(*arguments)
            count -= 1
            if count < 0:
                raise Killed
            return result

        return call

    for turn in range(60):
        monkeypatch.setattr(data_pipeline, "_written", dies_after(1 + turn % 3, written))
        monkeypatch.setattr(data_pipeline, "write_json", dies_after(1 + turn % 2, commit))
        try:
            run("code-mixture", tmp_path / "killed", *sources, **flags)
            break
        except Killed:
            lives += 1
    assert lives > 5
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


@pytest.mark.long
def test_workers_change_nothing(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl.gz", made_rows(OPC, 0, 400))
    run(OPC, tmp_path / "one", str(path), shard_rows=150)
    run(OPC, tmp_path / "two", str(path), shard_rows=150, workers=2)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_several_files_and_a_limit(tmp_path: Path) -> None:
    rows = list(made_rows(OPC, 0, 60))
    parts = [
        str(write_rows(tmp_path / f"{number}.jsonl", rows[20 * number : 20 * number + 20]))
        for number in range(3)
    ]
    manifest = run(OPC, tmp_path / "out", *parts, limit=45, shard_rows=30)
    (source,) = manifest["sources"]
    assert source["read"] == 45 and len(source["content"]) == 3
    assert manifest["rows"]["train"] + manifest["rows"]["validation"] == 45


def test_other_work_in_the_folder_is_refused_and_the_same_is_done_already(tmp_path: Path) -> None:
    path = str(write_rows(tmp_path / "rows.jsonl", made_rows(OPC, 0, 10)))
    first = run(OPC, tmp_path / "out", path)
    assert run(OPC, tmp_path / "out", path) == first
    with pytest.raises(ValueError, match="of other settings: choose another --out"):
        run(OPC, tmp_path / "out", path, limit=5)
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / "work").mkdir()
    (tmp_path / "out" / "work" / "progress.json").write_text('{"identity": "other"}')
    with pytest.raises(ValueError, match="work of another command"):
        run(OPC, tmp_path / "out", path)


def test_compat_is_the_published_pipeline(tmp_path: Path) -> None:
    prompt, program = made_prompt(0, 0), made_program(0, 0)
    room = 3000 - len(prompt.encode()) - 2
    rows = [
        in_columns(OPC, prompt, program, 0),
        in_columns(OPC, prompt, program, 1),
        in_columns(OPC, prompt, "def f(:", 2),
        in_columns(OPC, prompt, "x" * room, 3),
        in_columns(OPC, prompt, "x" * (room + 1), 4),
    ]
    path = str(write_rows(tmp_path / "rows.jsonl", rows))
    manifest = run(OPC, tmp_path / "out", path, mode="compat", against=())
    assert manifest["sources"][0]["left_out"] == {"too long": 1}
    assert manifest["dedup"] == "none" and manifest["against"] == []
    assert any("not decontaminated" in warning for warning in manifest["warnings"])
    with pytest.raises(ValueError, match="no published filters"):
        open_plan(DataJob("gsm8k-programs", mode="compat", vocab="bytes"))


def test_tinygsm_drops_what_does_not_fit_its_segments_only_in_compat(tmp_path: Path) -> None:
    def code(lines: int) -> str:
        body = [f"    x{line} = {line}" for line in range(lines - 2)]
        return "\n".join(["def f() -> int:", *body, "    return 1"])

    rows = [{"question": f"How many {count} things?", "code": code(count)} for count in (4, 16, 17)]
    path = str(write_rows(tmp_path / "rows.jsonl", rows))
    exact = run("tinygsm", tmp_path / "exact", path, validation=0.0, dedup="exact")
    compat = run("tinygsm", tmp_path / "compat", path, validation=0.0, mode="compat")
    assert exact["rows"]["train"] == 3 and compat["rows"]["train"] == 2
    assert compat["sources"][0]["left_out"] == {"segments do not fit": 1}
    source = ShardSource(tmp_path / "exact", "train", Vocab.bytes())
    example = source.example(1, Vocab.bytes(), begun=False, segments=SegmentConfig())
    assert example.segments is not None and len(example.segments) == 16
    assert source[1][0] == "How many 16 things?\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no data recipe"),
        ([OPC, "--limit", "0"], "--limit must be at least 1"),
        ([OPC, "--near", "0.9", "--dedup", "exact"], "near has no effect"),
        ([OPC, "--source", "absent.jsonl"], "no such file"),
        ([OPC, "--without", "other"], "has no source 'other'"),
        ([OPC, "--without", OPC], "all sources are left out"),
        (["code-mixture", "--source", "a.jsonl"], "ALIAS=FILE"),
        (["code-mixture", "--source", f"{OPC}=a.jsonl"], f"no files for {OTHERS[0]}"),
    ],
)
def test_mistakes_are_told_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *words, "--vocab", "bytes", "--against", "none"]) in (1, 2)
    assert message in capsys.readouterr().err


def test_rows_of_another_dataset_are_refused(tmp_path: Path) -> None:
    path = str(write_rows(tmp_path / "rows.jsonl", [{"question": "q", "answer": "a"}]))
    with pytest.raises(ValueError, match="no column instruction, code"):
        run(OPC, tmp_path / "out", path)
    with pytest.raises(ValueError, match="is not a file of HumanEval"):
        run(
            OPC,
            tmp_path / "out",
            path,
            against=(str(write_rows(tmp_path / "b.jsonl", [{"a": 1}])),),
        )


def test_a_dataset_of_the_hub_is_streamed_at_one_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    asked = []

    class Streamed:
        def skip(self, count: int) -> Any:
            return iter(list(made_rows(OPC, 0, 30))[count:])

    def load(*names: object, **options: object) -> Streamed:
        asked.append((*names, options))
        return Streamed()

    class Info:
        sha = "abc"

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *a, **k: Info())
    manifest = run(OPC, tmp_path / "out", "hub", limit=20)
    assert manifest["rows"]["train"] + manifest["rows"]["validation"] == 20
    assert manifest["sources"][0]["content"] == [
        {"dataset": "OpenCoder-LLM/opc-sft-stage2", "revision": "abc"}
    ]
    options = {"split": "train", "streaming": True, "revision": "abc"}
    assert asked == [("OpenCoder-LLM/opc-sft-stage2", "educational_instruct", options)]


@pytest.fixture(scope="module")
def stories_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of programs cut by line, in the columns of tinygsm."""
    folder = tmp_path_factory.mktemp("shards")
    rows = [
        {
            "question": f"How many are {a} and {b}?",
            "code": f"def f():\n    x = {a}\n    return x + {b}",
        }
        for a in range(10, 30)
        for b in range(10, 14)
    ]
    path = write_rows(folder / "rows.jsonl", rows)
    run("tinygsm", folder / "out", str(path), validation=0.2, dedup="exact")
    return folder / "out"


TINY = {
    "steps": 3,
    "warmup": 1,
    "batch": 4,
    "net.width": 16,
    "net.heads": 2,
    "net.mlp_width": 32,
    "net.layers": 1,
    "validate_batches": 1,
    "data.canvas": 80,
    "data.max_length": 160,
}


@pytest.mark.parametrize("family", ["mdm", "latentmdm"])
def test_a_model_trains_on_shards(family: str, stories_shards: Path, tmp_path: Path) -> None:
    data = {"data.source": str(stories_shards), "data.vocab": str(stories_shards)}
    model = train(f"tiny/{family}", out=tmp_path / "model", progress=False, **TINY, **data)
    assert model.vocab.digest() == Vocab.bytes().digest()


def test_rows_that_do_not_fit_are_left_out_without_reading_them(stories_shards: Path) -> None:
    def opened(**changes: Any) -> Any:
        fields = {"source": str(stories_shards), "vocab": "bytes", "canvas": 80, "max_length": 160}
        segments = changes.pop("segments", None)
        return open_corpus(DataConfig(**(fields | changes)), segments=segments)  # type: ignore[arg-type]

    whole = opened()
    assert whole.left_out == 0 and whole.validation.size > 0
    lengths = [
        len(example.prompt) + len(example.answer)
        for source in (whole.train, whole.validation)
        for index in range(source.size)
        for example in [source.example(index, Vocab.bytes(), begun=True, segments=None)]
    ]
    limit = int(np.median(lengths))
    some = opened(max_length=limit + 1)
    assert some.left_out == sum(length > limit for length in lengths)
    short = opened(segments=SegmentConfig(slots=2, segment_length=32))
    assert short.truncated == len(lengths)
    with pytest.raises(ValueError, match="no row of"):
        opened(segments=SegmentConfig(slots=2, segment_length=32, overflow="drop"))
    with pytest.raises(ValueError, match="is cut by line, not by statement"):
        opened(segments=SegmentConfig(by="statement"))
    with pytest.raises(ValueError, match="another vocabulary"):
        opened(vocab="stories")
    with pytest.raises(ValueError, match="prompt_field has no effect"):
        opened(prompt_field="q")


def test_the_papers_recipes_name_data_recipes_and_say_how_to_make_them(tmp_path: Path) -> None:
    for name in ("paper/latentmdm-125m", "paper/flexmdm-dreamcoder-7b"):
        source = find_recipe(name).data.source
        folder = tmp_path / Path(source).name
        with pytest.raises(ValueError, match=f"anyorder data {folder.name} --out"):
            open_corpus(DataConfig(source=str(folder), vocab="bytes"))


def test_gsm8k_becomes_shards_without_its_test(
    data_file: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = data_file("benchmarks/gsm8k_train.jsonl.gz")
    test = data_file("benchmarks/gsm8k_test.jsonl.gz")
    with gzip.open(test, "rt") as file:
        (tmp_path / "test.jsonl").write_text("".join(file.readlines()[:200]))
    words = ["data", "gsm8k-programs", "--limit", "300", "--vocab", "bytes", "--max-tokens", "2000"]
    words += ["--against", str(test), "--json"]
    given = [str(source), str(tmp_path / "test.jsonl")]
    assert main([*words, "--source", given[0], "--out", str(tmp_path / "a")]) == 0
    found = json.loads(capsys.readouterr().out)["sources"][0]
    assert found["left_out"]["contaminated"] == 1  # row 20 tells GSM8K/632 with other numbers
    assert found["train"] + found["validation"] > 270
    assert main([*words, "--source", given[1], "--out", str(tmp_path / "b")]) == 0
    found = json.loads(capsys.readouterr().out)["sources"][0]
    assert found["train"] + found["validation"] == 0


FILES = {
    "HumanEval.jsonl.gz": ("HumanEval", 164),
    "HumanEvalPlus-v0.1.10.jsonl.gz": ("HumanEval", 164),
    "HumanEvalPlus-OriginFmt-v0.1.10.jsonl.gz": ("HumanEval", 164),
    "mbpp.jsonl.gz": ("MBPP", 974),
    "sanitized-mbpp.json.gz": ("MBPP", 427),
    "MbppPlus-v0.2.0.jsonl.gz": ("MBPP", 378),
    "MbppPlus-OriginFmt-v0.2.0.jsonl.gz": ("MBPP", 378),
    "gsm8k_test.jsonl.gz": ("GSM8K", 1319),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if "Plus" in n else n for n in FILES]
)
def test_every_published_file_of_a_benchmark_is_known(
    name: str, data_file: Callable[[str], Path]
) -> None:
    (found,) = open_benchmarks([str(data_file(f"benchmarks/{name}"))])
    assert (found.name, len(found.items)) == FILES[name]
    assert all(item.parts["statement"].strip() for item in found.items)
    assert all(item.name.startswith(("HumanEval/", "Mbpp/", "GSM8K/")) for item in found.items)


# `anyorder data` under SIGKILL: the same bytes, in less than a gigabyte of memory.


# One that is to be killed never ends by itself, however late its killer comes.
CODE = """
import re, sys, time
from anyorder.apps import pipeline
from anyorder.cli import main
if {doomed}:
    pipeline._finish = lambda *_: time.sleep(1200)
code = main()
if sys.platform == "linux":
    peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
    print("PEAK", peak, file=sys.stderr)
sys.exit(code)
"""
ROWS, SHARD = 400, 50
MEMORY = 1_000_000


def start(words: list[str], *, doomed: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE.format(doomed=doomed), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(words: list[str]) -> None:
    process = start(words, doomed=False)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    if "PEAK" in errors:
        assert int(errors.rsplit("PEAK", 1)[1]) < MEMORY


def rows_done(folder: Path) -> int:
    path = folder / "work" / "progress.json"
    if not path.exists():
        return 0
    return sum(counts["read"] for counts in json.loads(path.read_text())["counts"].values())


def has_done(folder: Path, rows: float) -> bool:
    return rows_done(folder) >= rows


def digests(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): sha256_of(path) for path in found}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_killed_half_way_and_repeated_gives_the_same_shards(tmp_path: Path) -> None:
    words = ["data", "code-mixture", "--vocab", "bytes", "--max-tokens", "4096"]
    words += ["--against", "none", "--shard-rows", str(SHARD), "--source"]
    for seed, source in enumerate(CODE_SOURCES):
        path = tmp_path / f"{source.alias}.jsonl"
        words.append(f"{source.alias}={write_rows(path, made_rows(source.alias, seed, ROWS))}")
    finish([*words, "--out", str(tmp_path / "whole")])
    out = tmp_path / "killed"
    for share in (0.2, 0.5):
        enough = share * ROWS * len(CODE_SOURCES)
        process = start([*words, "--out", str(out)], doomed=True)
        kill_after(process, partial(has_done, out, enough), seconds=600)
    finish([*words, "--out", str(out)])
    assert digests(out) == digests(tmp_path / "whole")
