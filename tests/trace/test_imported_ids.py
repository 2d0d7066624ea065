"""Importers of step maps, texts with steps, edits and grown batches, on files written here.

Each format is written by a small sampler of its own kind, whose canvases are known, and read back
through `anyorder import`; then come files that are wrong, truncated or foreign.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from anyorder.cli import main
from anyorder.trace import Run, Trace
from anyorder.trace.recorders.adapters import read_content, recognise
from anyorder.trace.recorders.edits import EditRules
from anyorder.trace.recorders.reading import Reading
from anyorder.vocab import Vocab

VOCAB = Vocab.bytes()
MASK, EOS, PAD = VOCAB.mask_id, VOCAB.eos_id, VOCAB.pad_id
READING = Reading(VOCAB, MASK, task_id="file")


def traces(content: Any, format: str | None = None) -> list[Trace]:
    return list(read_content(content, format or recognise(content), READING))


def line(**changes: Any) -> dict[str, Any]:
    """A record of a step map; `...` leaves a field out."""
    record = {"task_id": "t", "prompt": "Q:", "token_ids": [*b"abc"], "step_map": [3, 1, 2]}
    return {name: value for name, value in {**record, **changes}.items() if value is not ...}


class Importer:
    """`anyorder import` in a folder with a tokenizer."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        VOCAB.save(folder / "tokenizer")

    def code(self, name: str, *words: str) -> int:
        out, tokenizer = str(self.folder / "run"), str(self.folder / "tokenizer")
        given = [] if "--no-tokenizer" in words else ["--tokenizer", tokenizer]
        words = tuple(word for word in words if word != "--no-tokenizer")
        return main(["import", str(self.folder / name), "--out", out, *given, *words])

    def traces(self, name: str, *words: str) -> list[Trace]:
        assert self.code(name, *words) == 0, self.capsys.readouterr().err
        return list(Run.open(self.folder / "run").traces())

    def error(self, name: str, *words: str) -> str:
        """The one line that is said, and no run is left behind."""
        self.capsys.readouterr()
        assert self.code(name, *words) in (1, 2)
        assert not (self.folder / "run").exists()
        said = self.capsys.readouterr().err.strip()
        assert "\n" not in said and "Traceback" not in said
        return said

    def write(self, name: str, *records: Any) -> None:
        text = "".join(json.dumps(record) + "\n" for record in records)
        (self.folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def importer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Importer:
    return Importer(tmp_path, capsys)


# Step maps.


def test_a_step_map_is_a_run(importer: Importer) -> None:
    importer.write("a.jsonl", line(), line(entry_point="f", policy="low"), line(task_id="u"))
    found = importer.traces("a.jsonl")
    assert [(t.task_id, t.sample, t.entry_point) for t in found] == [
        ("t", 0, None),
        ("t", 1, "f"),
        ("u", 0, None),
    ]
    trace = found[1]
    assert (trace.prompt, trace.text, trace.steps, trace.policy) == ("Q:", "abc", 3, "low")
    assert trace.timing()[0].tolist() == [0, 0, 0] and trace.timing()[1].tolist() == [3, 1, 2]
    assert trace.prompt_ids is not None and trace.prompt_ids.tolist() == [*b"Q:"]
    assert Run.open(importer.folder / "run").card.config["format"] == ["step_map"]


def test_packed_lines_one_document_and_a_named_format(importer: Importer) -> None:
    # A line of JSON may hold the characters that end a line elsewhere.
    records = [line(sample=n, prompt="Q\u2028:") for n in (4, 5)]
    lines = "\n\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    (importer.folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    found = importer.traces("a.jsonl.gz")
    assert [trace.sample for trace in found] == [4, 5]
    (again,) = traces(records[1:])
    assert again == found[1] and traces(records[1], "step_map") == [again]


@pytest.mark.parametrize(
    ("changes", "reveal", "steps"),
    [
        ({"steps_from": 0, "step_map": [2, 0, 1]}, [3, 1, 2], 3),
        ({"steps": 9}, [3, 1, 2], 9),
        ({"step_map": [0, 1, 2]}, [0, 1, 2], 2),  # given
        ({"token_ids": [97, MASK, 99], "step_map": [1, 0, 2]}, [1, 3, 2], 2),  # never
        ({"token_ids": [97, MASK, 99], "step_map": [1, 2, 2]}, [1, 3, 2], 2),
        ({"token_ids": [97, MASK, 99], "step_map": [0, 0, 1], "steps_from": 0}, [1, 3, 2], 2),
        ({"token_ids": [], "step_map": []}, [], 0),
    ],
)
def test_where_steps_begin_and_masks_that_are_left(
    changes: dict[str, Any], reveal: list[int], steps: int
) -> None:
    (trace,) = traces([line(**changes)])
    assert trace.timing()[1].tolist() == reveal and trace.steps == steps


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 7))
def test_steps_of_blocks_follow_each_other(local: list[int], length: int, prompt: int) -> None:
    """Against a loop over positions; `prompt` ids stand in the grid before the answer."""
    record = line(token_ids=[97] * len(local), step_map=local, scope="block", block_length=length)
    (trace,) = traces([record | {"prompt_length": prompt}])
    blocks: dict[int, list[int]] = {}
    for place, step in enumerate(local):
        blocks.setdefault((prompt + place) // length, []).append(step)
    expected, before = [], 0
    for _, steps in sorted(blocks.items()):
        expected += [before + step for step in steps]
        before += max(steps)
    assert trace.timing()[1].tolist() == expected and trace.steps == before
    numbers = [(prompt + place) // length - prompt // length for place in range(len(local))]
    several = len(set(numbers)) > 1 and len(set(numbers)) < len(numbers)
    assert (trace.block.tolist() if trace.block is not None else None) == (
        numbers if several else None
    )
    # The same steps, counted over the whole answer, are in the same blocks.
    counted = {"scope": "answer", "step_map": expected, "prompt_length": prompt}
    assert traces([record | counted]) == [trace]


def test_blocks_are_measured_within(importer: Importer, capsys: pytest.CaptureFixture[str]) -> None:
    """Each block is written from right to left, and the blocks come from left to right."""
    ids, steps = [*b"x = [1, 2, 3]\n"], [4, 3, 2, 1] * 3 + [2, 1]
    blocks = {"scope": "block", "block_length": 4}
    importer.write(
        "a.jsonl", *(line(task_id=f"t{n}", token_ids=ids, step_map=steps, **blocks) for n in (0, 1))
    )
    importer.traces("a.jsonl")
    capsys.readouterr()
    assert main(["measure", str(importer.folder / "run"), "--only", "arness", "--json"]) == 0
    (measured,) = json.loads(capsys.readouterr().out)["runs"].values()
    found = measured["arness"]["aggregate"]
    assert found["tau"]["mean"] > 0.5 and found["tau_in_blocks"]["mean"] == -1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"stepmap": [1], "step_map": ...},
            "'stepmap': not a field of a trace: did you mean 'step_",
        ),
        ({"token_id": [1]}, "did you mean 'token_ids'?"),
        ({"zzz": 1}, "field 'zzz': not a field of a trace: remove it (task_id, sample"),
        ({"token_ids": ..., "tokens": ["a"]}, "field 'tokens': not a field of a trace"),
        ({"task_id": ...}, "field 'task_id': missing"),
        ({"prompt": ...}, "field 'prompt': missing"),
        ({"step_map": ...}, "field 'step_map': missing"),
        ({"step_map": [1, 2]}, "field 'step_map': 2 steps for 3 ids: give one each"),
        ({"step_map": [1, 2, -1]}, "field 'step_map': entry 2 is -1"),
        ({"step_map": [1, 2, 1.5]}, "field 'step_map': entry 2 is 1.5"),
        ({"steps_from": 2}, "field 'steps_from': 2 is not 0 or 1"),
        ({"steps": 2}, "reveal_step[0] = 3 is after the last step: steps = 2"),
        ({"scope": "all"}, "field 'scope': no scope 'all': choose from answer, block"),
        ({"scope": "block"}, "field 'block_length': missing"),
        ({"scope": "block", "block_length": 0}, "field 'block_length': 0 is no length"),
        ({"prompt_length": 2}, "field 'prompt_length': read only with block_length: leave it"),
        (
            {"block_length": 2},
            "field 'block_length': block 1 begins in step 2, and one before it goes on to step 3",
        ),
        ({"token_ids": [1, 2, 999]}, "record 2: id 999 at position 2 is outside"),
        ({"log_prob": [1.0, 0.0, 0.0]}, "log_prob[0] = 1 is no log-probability"),
    ],
)
def test_a_wrong_step_map_is_named(
    importer: Importer, changes: dict[str, Any], message: str
) -> None:
    importer.write("a.jsonl", line(), line(**changes))
    said = importer.error("a.jsonl")
    assert "a.jsonl: record 2" in said and message in said


def test_wrong_files_of_ids(importer: Importer) -> None:
    importer.write("a.jsonl", line())
    assert "give --tokenizer" in importer.error("a.jsonl", "--no-tokenizer")
    text = json.dumps(line())
    (importer.folder / "b.jsonl").write_text(f"{text}\n{text[:-9]}")
    assert "truncated or not JSON lines (line 2: " in importer.error("b.jsonl")
    (importer.folder / "empty.jsonl").write_text("\n")
    assert "not JSON lines (it is empty)" in importer.error("empty.jsonl")
    importer.write("masks.jsonl", line(mask_id=MASK), line(), line(mask_id=5))
    assert f"the records name the masks 5, {MASK}: import" in importer.error("masks.jsonl")
    (importer.folder / "c.jsonl").write_text(text[:-9])
    assert "not JSON" in importer.error("c.jsonl")
    (importer.folder / "d.jsonl.gz").write_bytes(gzip.compress(text.encode() * 99)[:-20])
    assert "damaged" in importer.error("d.jsonl.gz")
    importer.write("e.jsonl", line(), [1])
    assert "record 2 is not a JSON object" in importer.error("e.jsonl")
    importer.write("f.jsonl", line(sample=0), line(sample=0))
    assert "task 't' sample 0 comes twice" in importer.error("f.jsonl")
    importer.write("g.json", {"trajectory": [[1, 2]]})
    assert "trajectory" in importer.error("g.json")
    assert "no format 'other'" in importer.error("a.jsonl", "--format", "other")


def test_given_tokens_are_noted(importer: Importer) -> None:
    importer.write("a.jsonl", line(step_map=[0, 1, 2]))
    importer.traces("a.jsonl")
    assert "write steps_from 0 if your steps count from 0" in importer.capsys.readouterr().err


# dLLM-RL: texts, whose steps count from 0 behind a canvas that is not there.


def test_texts_with_steps_are_encoded_again(importer: Importer) -> None:
    records = [
        {
            "question": "Q?",
            "full_output": ["ab<eos>", "a<mask>"],
            "step_map": [[1, 0, 2], [0, 0]],
            "ground_truth_answer": "4",
            "correctness": [True, False],
        },
        {"prompt": "P", "task_id": "own", "full_output": "c", "step_map": [0]},
        {"prompt": None, "full_output": "d", "step_map": [0]},
    ]
    (importer.folder / "rl.json").write_text(json.dumps(records))
    found = importer.traces("rl.json")
    assert [(t.task_id, t.sample, t.prompt, t.text) for t in found] == [
        ("rl/0", 0, "Q?", "ab"),
        ("rl/0", 1, "Q?", "a"),
        ("own", 0, "P", "c"),
        ("rl/2", 0, "", "d"),
    ]
    assert [trace.timing()[1].tolist() for trace in found] == [[2, 1, 3], [1, 2], [1], [1]]
    assert [trace.steps for trace in found] == [3, 1, 1, 1]  # so the mask was never revealed


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"full_output": ["ab"], "step_map": [[0]]}, "record 1, output 0: the text has 2 ids"),
        ({"full_output": ["ab"]}, "record 1 has no field 'step_map'"),
        ({"full_output": ["ab"], "step_map": []}, "are not lists of one size"),
        ({"full_output": ["ab"], "step_map": [[0, -1]]}, "step_map[1] = -1 is outside"),
        ({"full_output": [3], "step_map": [[0]]}, "full_output: a string is needed"),
        ({"full_output": ["a"], "step_map": [[0]], "prompt": 3}, "record 1, prompt: a string"),
    ],
)
def test_wrong_texts_with_steps(importer: Importer, record: dict[str, Any], message: str) -> None:
    (importer.folder / "rl.json").write_text(json.dumps([record]))
    assert message in importer.error("rl.json")


# Edits, deletions and insertions.

DELETE, SPLIT = PAD, VOCAB.bos_id or 0
LETTERS = {"M": MASK, "D": DELETE, "S": SPLIT}


def ids_of(text: str) -> list[int]:
    return [LETTERS.get(letter, ord(letter)) for letter in text]


def edits(writes: list[list[int]], **changes: Any) -> dict[str, Any]:
    record = {"task_id": "t", "prompt": "", "prompt_ids": [], "block_length": 6, "writes": writes}
    return {**record, "delete_id": DELETE, "split_id": SPLIT, **changes}


def writes_of(step: int, **at: str) -> list[list[int]]:
    """`_3="x"`: x at position 3."""
    return [[step, int(place[1:]), LETTERS.get(text, ord(text[0]))] for place, text in at.items()]


def shown(trace: Trace, step: int) -> str:
    names = {id: name for name, id in LETTERS.items()}
    return "".join(names.get(id, chr(id)) for id in trace.replay(step).ids(MASK).tolist())


@pytest.mark.parametrize(
    ("old", "writes", "new", "lost"),
    [
        ("abMcde", {"_1": "D", "_2": "x", "_3": "S"}, "axMcde", "b"),
        ("abcdef", {"_0": "S", "_3": "S"}, "MabcMd", "ef"),
        ("abcdef", {"_0": "D", "_2": "D"}, "bdefMM", "ac"),
    ],
)
def test_deletions_and_insertions_of_the_fact_sheet(
    importer: Importer, old: str, writes: dict[str, str], new: str, lost: str
) -> None:
    """The golden G5 of blocks of six; what is pushed over the end of the block is a ghost."""
    first = {f"_{at}": letter for at, letter in enumerate(old) if letter != "M"}
    importer.write("a.jsonl", edits([*writes_of(1, **first), *writes_of(2, **writes)]))
    (trace,) = importer.traces("a.jsonl")
    assert [shown(trace, step) for step in range(3)] == ["MMMMMM", old, new]
    assert "".join(ghost.piece or "" for ghost in trace.ghosts or ()) == lost
    assert {(ghost.insert_step, ghost.delete_step) for ghost in trace.ghosts or ()} == {(0, 2)}
    # Slots keep their identity: a letter of before was revealed in step 1, wherever it is now.
    steps = dict.fromkeys(old, 1) | {"M": 3}
    assert trace.timing()[1].tolist() == [steps.get(letter, 2) for letter in new]


PROBABILITIES = ((0.6, 0.3, 0.1), (0.2, 0.75, 0.05), (0.1, 0.1, 0.8), (0.34, 0.33, 0.33))


def joint_threshold(block: str, mask_above: float, edit_above: float) -> list[list[int]]:
    """The writes of one step of LLaDA2.1 on a block, all from one table of probabilities."""
    best = [max(zip(row, "ABC", strict=True)) for row in PROBABILITIES]
    open_ = [at for at, letter in enumerate(block) if letter == "M"]
    taken = [at for at in open_ if best[at][0] > mask_above]
    if open_ and not taken:
        taken = [max(open_, key=lambda at: best[at][0])]
    taken += [
        at
        for at, letter in enumerate(block)
        if letter not in ("M", best[at][1]) and best[at][0] > edit_above
    ]
    return [[2, at, ord(best[at][1])] for at in sorted(taken)]


@pytest.mark.parametrize(
    ("block", "thresholds", "after", "kinds"),
    [
        ("MAMM", (0.7, 0.5), "MBCM", ["edit", "reveal"]),
        ("MAMM", (0.95, 0.9), "MACM", ["reveal"]),
        ("BACA", (0.5, 0.0), "ABCA", ["edit", "edit"]),
    ],
)
def test_edits_of_the_fact_sheet(
    block: str, thresholds: tuple[float, float], after: str, kinds: list[str]
) -> None:
    """The golden G4, as writes and as canvases: both give the same trace."""
    first = writes_of(1, **{f"_{at}": letter for at, letter in enumerate(block) if letter != "M"})
    record = edits([*first, *joint_threshold(block, *thresholds)], block_length=4, length=4)
    (trace,) = traces([{**record, "delete_id": None, "split_id": None}])
    assert [shown(trace, step) for step in range(3)] == ["MMMM", block, after]
    assert [change.kind for change in trace.changes() if change.step == 2] == kinds
    canvases = [ids_of(text) for text in ("MMMM", block, after)]
    (same,) = traces({"histories": canvases, "task_id": "t", "prompt": "", "prompt_length": 0})
    assert same == trace


@st.composite
def edited(draw: st.DrawFn) -> tuple[dict[str, Any], list[list[int]]]:
    """A record of random writes in two blocks, and the canvases they give."""
    length, prompt = draw(st.integers(2, 4)), draw(st.integers(0, 2))
    canvas = [*[81] * prompt, *[MASK] * (2 * length - prompt)]
    canvases, writes = [canvas], []
    for step in range(1, draw(st.integers(1, 5)) + 1):
        places = draw(st.sets(st.integers(prompt, 2 * length - 1), max_size=4))
        written = {at: draw(st.sampled_from([65, 66, MASK, DELETE, SPLIT])) for at in places}
        writes += [[step, at, id] for at, id in sorted(written.items())]
        canvas = []
        for begin in (0, length):
            block = []
            for at in range(begin, begin + length):
                id = written.get(at, canvases[-1][at])
                block += {DELETE: [], SPLIT: [MASK, canvases[-1][at]]}.get(id, [id])
            canvas += [*block, *[MASK] * length][:length]
        canvases.append(canvas)
    sizes = {"block_length": length, "length": 2 * length, "steps": len(canvases) - 1}
    return edits(writes, prompt_ids=[81] * prompt, **sizes), canvases


@given(edited())
def test_every_canvas_of_random_edits_is_replayed(
    made: tuple[dict[str, Any], list[list[int]]],
) -> None:
    record, canvases = made
    (trace,) = traces([record])
    for step, canvas in enumerate(canvases):
        assert trace.replay(step).ids(MASK, prompt=True).tolist() == canvas
    length, prompt = record["block_length"], len(record["prompt_ids"])
    blocks = [place // length - prompt // length for place in range(prompt, 2 * length)]
    if len(set(blocks)) > 1:
        assert trace.block is not None and trace.block.tolist() == blocks


def test_a_prompt_without_writes_is_an_empty_answer() -> None:
    (trace,) = traces([edits([], prompt_ids=[81] * 7)])  # of blocks of six: two, for 12 positions
    assert trace.text == "" and trace.steps == 0 and len(np.asarray(trace.token_ids)) == 5


def test_rules_that_delete_nothing_replace() -> None:
    row = [(0, 65), (1, MASK)]
    assert EditRules(MASK, 2).apply(row, {0: DELETE}, iter(())) == [(0, DELETE), (1, MASK)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"write": []}, "did you mean 'writes'?"),
        ({"block_length": None}, "field 'block_length': missing: give it: deleting and inserting"),
        ({"block_length": 0}, "field 'block_length': 0 is no length"),
        ({"writes": [[1, 2]]}, "field 'writes': entry 0 is [1, 2]"),
        ({"writes": [[0, 2, 65]]}, "entry 0: steps count from 1"),
        ({"writes": [[1, 2**30, 65]]}, "positions at 2 moments are too many to follow"),
        ({"writes": [[2**30, 2, 65]]}, "6 positions at 1,073,741,825 moments are too"),
        ({"writes": [[2, 2, 65], [1, 3, 65]]}, "entry 1: step 1 comes after step 2"),
        ({"writes": [[1, 2, 65], [1, 2, 66]]}, "entry 1: position 2 is written twice in step 1"),
        ({"prompt_ids": [1, 2, 3]}, "entry 0: position 2 is in the prompt, which has 3 ids"),
        ({"length": 2}, "field 'length': 2 positions, but one at 2 is used"),
        ({"steps": 0}, "field 'steps': 0, but a later step writes"),
        ({"writes": [[1, 2, 9999]]}, "id 9999"),
    ],
)
def test_wrong_edits_are_named(importer: Importer, changes: dict[str, Any], message: str) -> None:
    importer.write("a.jsonl", {**edits([[1, 2, 65]]), **changes})
    said = importer.error("a.jsonl")
    assert "a.jsonl: record 1" in said and message in said


# Histories of dllm: batches of several prompts, fill behind short rows, canvases that grow.


def history(prompts: Sequence[bytes], answers: Sequence[bytes]) -> list[list[list[int]]]:
    """dllm's MDLM sampler: prompts at the left, then masks, then ends up to the longest row. Even
    rows are written from right to left, odd ones from left to right."""
    count, width = len(answers[0]), max(map(len, prompts)) + len(answers[0])
    canvases = []
    for done in range(count + 1):
        rows = []
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            masks = [MASK] * (count - done)
            body = [*answer[:done], *masks] if number % 2 else [*masks, *answer[count - done :]]
            row = [*prompt, *body]
            rows.append([*row, *[EOS] * (width - len(row))])
        canvases.append(rows)
    return canvases


def test_a_batch_of_forty_prompts_is_forty_tasks(
    importer: Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [b"Question %d:" % number for number in range(40)]
    rows = history(prompts, [b"a = %02d\n" % number for number in range(40)])
    names = [f"own/{number}" for number in range(40)]
    content: dict[str, Any] = {
        "histories": [torch.tensor(canvas) for canvas in rows],
        "prompt_length": [len(prompt) for prompt in prompts],
        "task_id": names,
        "prompt": [prompt.decode() for prompt in prompts],
        "entry_point": [f"f{number}" for number in range(40)],
    }
    torch.save(content, importer.folder / "batch.pt")
    found = importer.traces("batch.pt")
    assert [trace.task_id for trace in found] == names and {trace.sample for trace in found} == {0}
    assert [trace.text for trace in found] == [f"a = {number:02}\n" for number in range(40)]
    assert found[7].entry_point == "f7" and found[7].prompt == "Question 7:"
    assert all(trace.timing()[1].min() == 1 for trace in found)  # the fill is no given text
    capsys.readouterr()
    assert main(["measure", str(importer.folder / "run"), "--only", "arness", "--json"]) == 0
    (measured,) = json.loads(capsys.readouterr().out)["runs"].values()
    tau = measured["arness"]["aggregate"]["tau"]
    assert tau["mean"] == 0 and tau["interval"]["n"] == 40  # tasks
    assert -0.5 < tau["interval"]["low"] < 0 < tau["interval"]["high"] < 0.5


def test_rows_without_names_are_tasks_by_their_prompts() -> None:
    prompts = [b"Q:", b"Q:", b"other", b"Q:"]
    rows = history(prompts, [b"a", b"b", b"c", b"d"])
    found = traces({"histories": rows})
    keys = [(trace.task_id, trace.sample, trace.prompt) for trace in found]
    assert keys == [
        ("file/0", 0, "Q:"),
        ("file/0", 1, "Q:"),
        ("file/2", 0, "other"),
        ("file/0", 2, "Q:"),
    ]
    numbered = traces({"histories": rows, "task_id": "t", "sample": [3, 1, 4, 5]})
    assert [(trace.task_id, trace.sample) for trace in numbered] == [
        ("t", 3),
        ("t", 1),
        ("t", 4),
        ("t", 5),
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task_id": ["a"]}, "task_id: a text, or one for each of the 2 rows"),
        ({"prompt": 3}, "prompt: a text, or one for each"),
        ({"entry_point": ["f", 3]}, r"entry_point\[1\]: a string is needed"),
        ({"sample": [0, 1, 2]}, "sample: a number, or one for each of the 2 rows"),
    ],
)
def test_names_that_do_not_fit_the_rows(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        traces({"histories": history([b"Q", b"R"], [b"a", b"b"]), **fields})


def test_canvases_that_grow_block_by_block() -> None:
    """dllm's BD3LM sampler: prompts padded at the left to whole blocks; a block is first seen after
    its first step."""
    prompts, answers = ([PAD, *b"Q:?"], [PAD, PAD, *b"P:"]), (b"abcdefgh", b"stuvwxyz")
    canvases = [[list(prompt) for prompt in prompts]]
    for block in (0, 4):
        for done in range(1, 5):
            rows = []
            for prompt, answer in zip(prompts, answers, strict=True):
                part = answer[block : block + 4]
                written = [*[MASK] * (4 - done), *part[4 - done :]]
                rows.append([*prompt, *answer[:block], *written])
            canvases.append(rows)
    found = traces({"histories": canvases, "task_id": ["q", "p"]})
    assert [(trace.prompt, trace.text) for trace in found] == [
        ("Q:?", "abcdefgh"),
        ("P:", "stuvwxyz"),
    ]
    for trace in found:
        assert trace.steps == 8 and not trace.timing()[0].any()
        assert trace.timing()[1].tolist() == [4, 3, 2, 1, 8, 7, 6, 5]
        assert trace.block is not None and trace.block.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="the canvas grows, which shows its blocks"):
        traces({"histories": canvases, "block_length": 4})


def test_blocks_on_a_canvas_of_fixed_width() -> None:
    """Of different prompts, and from each prompt's end on."""
    rows = history([b"Q", b"long"], [b"abcde", b"vwxyz"])
    for named in (2, np.array(2)):
        for trace in traces({"histories": rows, "block_length": named}):
            assert trace.block is not None and trace.block.tolist() == [0, 0, 1, 1, 2]
    (given,) = traces({"history": rows[1:], "prompt_length": 1, "block_length": 5}, "dream")[:1]
    assert given.block is not None and given.block.tolist()[:5] == [0] * 5
    assert all(trace.block is None for trace in traces({"histories": rows}))
    with pytest.raises(ValueError, match="block_length=0: give a whole number"):
        traces({"histories": rows, "block_length": 0})


def test_a_batch_that_stops_early_keeps_masks() -> None:
    """The first row has ended, and its masks stay while the second goes on with a new block."""
    rows = [["QM", "RM"], ["QM", "Ra"], ["QMMM", "RaMb"], ["QMMM", "Racb"]]
    found = traces({"histories": [[ids_of(row) for row in pair] for pair in rows]})
    assert [trace.timing()[1].tolist() for trace in found] == [[4, 4, 4], [1, 3, 2]]
    assert found[0].text == "" and np.asarray(found[0].token_ids).tolist() == [MASK] * 3
