"""`anyorder import` on files written as other libraries write them, and on files it must refuse."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anyorder.apps.imports import ImportOptions, import_traces, kind_of
from anyorder.cli import main
from anyorder.trace import Run, Trace
from anyorder.vocab import SPECIALS, Vocab

MASK, END = 151666, 151643
VOCAB = Vocab.bytes()


def canvases(mask: int = VOCAB.mask_id, eos: int = VOCAB.eos_id) -> list[list[int]]:
    """ "Q:" then "x=1" from right to left, then an end of sequence that came first."""
    body = [*b"x=1", eos]
    order = [3, 2, 1, 0]
    rows = [[*b"Q:", *[mask] * 4]]
    for at in order:
        rows.append([*rows[-1][: 2 + at], body[at], *rows[-1][3 + at :]])
    return rows


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    VOCAB.save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def write_torch(path: Path, content: Any) -> None:
    torch.save(content, path)


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def write_packed_json(path: Path, content: Any) -> None:
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "list of tensors": (
        "a.pt",
        lambda path: write_torch(path, [torch.tensor(row) for row in canvases()]),
    ),
    "one tensor": ("a.pth", lambda path: write_torch(path, torch.tensor(canvases()))),
    "old torch": (
        "a.pt",
        lambda path: torch.save(
            torch.tensor(canvases()), path, _use_new_zipfile_serialization=False
        ),
    ),
    "dllm": (
        "a.pt",
        lambda path: write_torch(
            path,
            {
                "sequences": torch.tensor(canvases()[-1:]),
                "histories": [torch.tensor([row]) for row in canvases()],
            },
        ),
    ),
    "dream": (
        "a.pt",
        lambda path: write_torch(
            path,
            {
                "sequences": torch.tensor(canvases()[-1:]),
                "history": tuple(torch.tensor([row]) for row in canvases()[1:]),
                "prompt_length": 2,
            },
        ),
    ),
    "npy": ("a.npy", lambda path: np.save(path, np.array(canvases()))),
    "npz": ("a.npz", lambda path: np.savez(path, histories=np.array(canvases()), prompt_length=2)),
    "packed npz": ("a.npz", lambda path: np.savez_compressed(path, histories=canvases())),
    "json": ("a.json", lambda path: write_json(path, canvases())),
    "json object": ("a.json", lambda path: write_json(path, {"histories": canvases()})),
    "json.gz": ("a.json.gz", lambda path: write_packed_json(path, canvases())),
    "any name": ("canvases.bin", lambda path: write_json(path, canvases())),
}


@pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)
def test_every_kind_of_file_gives_the_same_trace(
    tmp_path: Path, tokenizer: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    options = ImportOptions(tokenizer=tokenizer)
    run, count = import_traces(tmp_path / name, tmp_path / "run", command="c", options=options)
    (trace,) = run.traces()
    assert count == 1
    assert (trace.task_id, trace.prompt, trace.text) == (name.split(".")[0], "Q:", "x=1")
    assert trace.reveal_step is not None
    assert trace.reveal_step.tolist() == [4, 3, 2, 1]
    assert run.card.vocab_digest == VOCAB.digest()


def test_records_of_segments_become_a_run(tmp_path: Path, tokenizer: Path) -> None:
    def proposed(slot: int, text: str) -> dict[str, Any]:
        return {"slot": slot, "text": text, "tokens": [*text.encode(), VOCAB.eos_id], "score": -1.0}

    steps = [
        {"step": 1, "chosen_slot": 1, "segments": [proposed(0, "a\n"), proposed(1, "")]},
        {"step": 2, "chosen_slot": 0, "segments": [proposed(0, "b\n")]},
    ]
    records = [{"index": n, "prompt": "Q\n", "success": True, "steps": steps} for n in (0, 4)]
    write_json(tmp_path / "traces.json", records)
    options = ImportOptions(tokenizer=tokenizer)
    run, count = import_traces(
        tmp_path / "traces.json", tmp_path / "r", command="c", options=options
    )
    assert count == 2 and run.card.config["format"] == ["latentmdm"]
    traces = list(run.traces())
    assert [trace.task_id for trace in traces] == ["GSM8K/0", "GSM8K/4"]
    assert traces[0].text == "b\n" and traces[0].family == "latentmdm"
    assert [each.piece for each in traces[0].candidates or ()] == ["a\n", "", "b\n"]


def release_sample(task: str, text: str, **changes: Any) -> dict[str, Any]:
    """A fixed canvas in the release's format, revealed from left to right."""
    ids = [*b"P ", *text.encode()]
    steps = len(text)
    rows = [ids[: 2 + s] + [VOCAB.mask_id] * (steps - s) for s in range(steps + 1)]
    sequences = torch.tensor(rows, dtype=torch.int32)
    return {
        "prompt": "P ",
        "prompt_len": 2,
        "sequences": sequences,
        "attention_masks": torch.ones_like(sequences, dtype=torch.bool),
        "insertion_masks": torch.zeros_like(sequences, dtype=torch.bool),
        "mask_id": VOCAB.mask_id,
        "pad_id": VOCAB.pad_id,
        "meta": {"task_id": task, "steps": steps},
        **changes,
    }


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder as the release writes it: two tasks, two samples, two models."""
    root = tmp_path / "out" / "humaneval"
    for task in ("HumanEval/0", "HumanEval/1"):
        for variant in ("flexmdm__top_k", "dreamcoder__entropy"):
            folder = root / "raw" / f"{task.replace('/', '_')}__{variant}"
            folder.mkdir(parents=True)
            for sample in (0, 1):
                text = f"{variant[0]}{task[-1]}{sample}"
                write_torch(folder / f"sample_{sample:02d}.pt", release_sample(task, text))
                (folder / f"sample_{sample:02d}.html").write_text("<html></html>")
    tasks = [
        {"dataset": "humaneval", "index": n, "task_id": f"HumanEval/{n}", "entry_point": f"f{n}"}
        for n in (0, 1)
    ]
    write_json(root / "tasks.json", tasks)
    return root


def test_a_folder_of_the_release_is_one_run(
    release: Path, tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(release), "--out", str(tmp_path / "run"), "--tokenizer", str(tokenizer)]
    assert main(["import", *words]) == 1
    assert "choose one with --variant, from 'dreamcoder__entropy', 'flexmdm__top_k'" in (
        capsys.readouterr().err
    )
    assert main(["import", *words, "--variant", "flexmdm__top_k", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 4
    found = [
        (trace.task_id, trace.sample, trace.entry_point, trace.text)
        for trace in Run.open(tmp_path / "run").traces()
    ]
    assert found == [
        (f"HumanEval/{task}", sample, f"f{task}", f"f{task}{sample}")
        for task in (0, 1)
        for sample in (0, 1)
    ]


def test_one_sample_of_the_release_finds_its_tasks(
    release: Path, tokenizer: Path, tmp_path: Path
) -> None:
    path = release / "raw" / "HumanEval_1__flexmdm__top_k" / "sample_01.pt"
    options = ImportOptions(tokenizer=tokenizer)
    run, _ = import_traces(path, tmp_path / "run", command="c", options=options)
    (trace,) = run.traces()
    assert (trace.task_id, trace.sample, trace.entry_point) == ("HumanEval/1", 1, "f1")


def test_the_published_tokenizer_spells_dream_ids(
    data_file: Callable[[str], Path], tmp_path: Path
) -> None:
    packed = data_file("tokenizer/qwen2.5_tokenizer.json.gz")
    text = "def f(x):\n    return x + 1\n"
    ids = [*Vocab.from_tokenizer_json(packed, **SPECIALS["dream"]).encode(text), END, END]
    rows = [[[END, 9707, *ids[:n], *[MASK] * (len(ids) - n)]] for n in range(1, len(ids) + 1)]
    write_torch(tmp_path / "h.pt", {"history": [torch.tensor(row) for row in rows]})
    words = ["import", str(tmp_path / "h.pt"), "--out", str(tmp_path / "run")]
    words += ["--tokenizer", str(packed), "--mask-id", str(MASK), "--prompt-length", "2"]
    assert main(words) == 0
    (trace,) = Run.open(tmp_path / "run").traces()
    assert (trace.prompt, trace.text) == ("Hello", text)
    assert trace.reveal_step is not None
    assert trace.reveal_step.tolist() == list(range(1, len(ids) + 1))


def test_a_folder_with_vocab_and_merges_will_do(
    data_file: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = data_file("tokenizer/vocab.json.gz").parent
    for name in ("vocab.json.gz", "merges.txt.gz"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    np.save(tmp_path / "a.npy", [[9707, MASK], [9707, 87]])
    options = ImportOptions(tokenizer=tmp_path, mask_id=MASK, format="snapshots")
    run, _ = import_traces(tmp_path / "a.npy", tmp_path / "run", command="c", options=options)
    assert next(run.traces()).text == "x"


def test_given_text_is_noted(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A history without its first canvas, taken for one with it."""
    write_json(tmp_path / "a.json", [row[:] for row in canvases()[2:]])
    options = ImportOptions(tokenizer=tokenizer, prompt_length=2)
    import_traces(tmp_path / "a.json", tmp_path / "run", command="c", options=options)
    assert capsys.readouterr().err == (
        "1 sample has tokens at step 0, which means given, not generated: use --format dream if "
        "the canvas before step 1 was not recorded\n"
    )


class Touched:
    """An object whose pickle would call a function when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, tokenizer: Path) -> None:
    for name, new in (("new.pt", True), ("old.pt", False)):
        torch.save(
            {"history": Touched(tmp_path / "ran")},
            tmp_path / name,
            _use_new_zipfile_serialization=new,
        )
        with pytest.raises(ValueError, match=r"none is run \([\w.]+\): save plain.*torch\.save"):
            import_traces(
                tmp_path / name,
                tmp_path / "run",
                command="c",
                options=ImportOptions(tokenizer=tokenizer),
            )
    np.save(tmp_path / "a.npy", np.array([Touched(tmp_path / "ran")], dtype=object))
    with pytest.raises(ValueError, match="arrays of objects"):
        import_traces(
            tmp_path / "a.npy",
            tmp_path / "run",
            command="c",
            options=ImportOptions(tokenizer=tokenizer),
        )
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"holds token ids, and order is measured on text: give --tokenizer"),
        ({"tokenizer": "absent"}, r"absent does not exist: name a tokenizer\.json"),
        ({"tokenizer": "empty", "mask_id": MASK}, r"has no tokenizer\.json"),
        ({"tokenizer": "empty"}, "which id is the mask is not in the file: give --mask-id"),
        (
            {"tokenizer": "empty", "mask_id": 5},
            r"mask 5 is of no model.*151666 \(dream\).*--eos-id",
        ),
        ({"tokenizer": "tokenizer", "mask_id": 5}, "the mask is 256"),
        ({"tokenizer": "tokenizer", "eos_id": 5}, "leave --eos-id out"),
        ({"tokenizer": "tokenizer", "format": "parquet"}, "no format 'parquet': choose from jsonl"),
        ({"tokenizer": "tokenizer", "format": "flexmdm"}, "a.npy: a FlexMDM trace has the field"),
        ({"tokenizer": "tokenizer", "variant": "x"}, "no variant 'x' here"),
    ],
)
def test_what_is_missing_is_told(
    tmp_path: Path, tokenizer: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "a.npy", canvases())
    if "tokenizer" in options:
        options = {**options, "tokenizer": tmp_path / options["tokenizer"]}
    with pytest.raises(ValueError, match=message):
        import_traces(
            tmp_path / "a.npy", tmp_path / "run", command="c", options=ImportOptions(**options)
        )
    assert not (tmp_path / "run").exists()


def test_damaged_files_are_named(tmp_path: Path, tokenizer: Path) -> None:
    write_torch(tmp_path / "a.pt", torch.tensor(canvases()))
    np.save(tmp_path / "a.npy", canvases())
    np.savez_compressed(tmp_path / "a.npz", histories=canvases())
    write_json(tmp_path / "a.json", canvases())
    write_packed_json(tmp_path / "a.json.gz", canvases())
    for path in sorted(tmp_path.glob("a.*")):
        whole = path.read_bytes()
        for size in (len(whole) // 3, len(whole) - 20):
            path.write_bytes(whole[:size])
            with pytest.raises(ValueError, match=f"{path.name}.*(truncated|damaged)"):
                import_traces(
                    path,
                    tmp_path / "run",
                    command="c",
                    options=ImportOptions(tokenizer=tokenizer),
                )
    assert not (tmp_path / "run").exists()


def test_a_folder_without_files_and_one_with_doubles(tmp_path: Path, tokenizer: Path) -> None:
    options = ImportOptions(tokenizer=tokenizer)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none has no files to import"):
        import_traces(tmp_path / "none", tmp_path / "run", command="c", options=options)
    for folder in ("one", "two"):
        (tmp_path / "some" / folder).mkdir(parents=True)
        write_json(tmp_path / "some" / folder / "a.json", canvases())
    with pytest.raises(ValueError, match="task 'a' sample 0 comes twice"):
        import_traces(tmp_path / "some", tmp_path / "run", command="c", options=options)
    write_json(tmp_path / "some" / "tasks.json", {"a": 1})
    with pytest.raises(ValueError, match=r"tasks\.json is not a list of tasks"):
        import_traces(tmp_path / "some", tmp_path / "run", command="c", options=options)


def test_lines_take_no_options_of_ids(tmp_path: Path, tokenizer: Path) -> None:
    trace = Trace(task_id="t", sample=0, prompt="", text="x")
    (tmp_path / "a.jsonl").write_text(trace.to_jsonl() + "\n")
    with pytest.raises(ValueError, match=r"JSON lines spell their tokens.*leave --mask-id out"):
        import_traces(
            tmp_path / "a.jsonl", tmp_path / "run", command="c", options=ImportOptions(mask_id=3)
        )
    options = ImportOptions(format="jsonl")
    _, count = import_traces(tmp_path / "a.jsonl", tmp_path / "run", command="c", options=options)
    assert count == 1


def test_kinds_are_seen_from_the_content(tmp_path: Path) -> None:
    for text, kind in (
        ('{"task_id": "a", "sample": 0, "text": "history"}', "jsonl"),
        ('{"task_id": "a", "sample": 0, "text": "x"}\n{"task_id": "b"}', "jsonl"),
        ("\n [[1, 2], [1, 3]]", "json"),
        ('{"history": [[1]]}', "json"),
        ("", "jsonl"),
        ("nothing of the kind", "jsonl"),
    ):
        (tmp_path / "file").write_text(text)
        assert kind_of(tmp_path / "file") == kind
