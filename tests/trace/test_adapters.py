"""What other libraries record becomes traces: shapes, prompts, masks, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anyorder.apps.imports import import_traces
from anyorder.apps.jobs import FORMATS
from anyorder.files import alone_in
from anyorder.trace import Run, Trace
from anyorder.trace.recorders.adapters import (
    ADAPTERS,
    read_content,
    recognise,
    resolve_mask_id,
)
from anyorder.trace.recorders.reading import Reading
from anyorder.vocab import Vocab

VOCAB = Vocab.bytes()
MASK, EOS = VOCAB.mask_id, VOCAB.eos_id
PROMPTS = ("Q:", "Question:")
ANSWERS = ("a = 1\n", "b=2\n")


def generation(
    prompt: str, answer: str, order: list[int], tail: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The canvases (S L) of a decoder that reveals one position a step, and each reveal step."""
    ids = np.array([*VOCAB.encode(answer), *[EOS] * tail])
    reveal = np.empty(len(ids), dtype=np.int64)
    reveal[order] = np.arange(1, len(ids) + 1)
    steps = np.arange(len(ids) + 1)[:, None]
    body = np.where(reveal <= steps, ids, MASK)
    head = np.broadcast_to(VOCAB.encode(prompt), (len(body), len(prompt)))
    return np.concatenate([head, body], axis=1), reveal


def traces(content: Any, format: str | None = None, **changes: Any) -> list[Trace]:
    reading = Reading(VOCAB, MASK, **{"task_id": "file", **changes})
    return list(read_content(content, format or recognise(content), reading))


CANVASES, REVEAL = generation("Q:", "a = 1\n", [3, 0, 5, 1, 4, 2, 7, 6], tail=2)
BATCH = np.stack([CANVASES, generation("Q:", "b=2\n", [0, 1, 2, 3, 4, 5, 6, 7], tail=4)[0]], axis=1)


@pytest.mark.parametrize(
    "content",
    [
        CANVASES,
        CANVASES.tolist(),
        list(CANVASES),
        [canvas[None] for canvas in CANVASES],
        {"histories": list(CANVASES), "sequences": CANVASES[-1]},
        {"histories": CANVASES[:, None], "prompt_length": 2},
    ],
    ids=["array", "lists", "rows", "batches of one", "dllm", "stacked"],
)
def test_canvases_from_before_step_1(content: Any) -> None:
    (trace,) = traces(content)
    assert (trace.task_id, trace.sample, trace.prompt, trace.text) == ("file", 0, "Q:", "a = 1\n")
    assert trace.reveal_step is not None
    assert trace.reveal_step.tolist() == REVEAL.tolist()
    for step, canvas in enumerate(CANVASES):
        assert trace.replay(step).ids(MASK, prompt=True).tolist() == canvas.tolist()


@pytest.mark.parametrize("lengths", [2, np.array(2), [2]])
def test_dreams_history_gets_its_first_canvas_back(lengths: Any) -> None:
    content = {"sequences": CANVASES[-1:], "history": [c[None] for c in CANVASES[1:]]}
    assert recognise(content) == "dream"
    (told,) = traces(content, prompt_length=2)
    (known,) = traces({**content, "prompt_length": lengths})
    (right,) = traces(CANVASES)
    assert told == known == right


def test_a_batch_gives_a_trace_per_row() -> None:
    found = traces(BATCH, sample=5)
    assert [(trace.sample, trace.text) for trace in found] == [(5, "a = 1\n"), (6, "b=2\n")]
    assert found[0].reveal_step is not None
    assert found[0].reveal_step.tolist() == REVEAL.tolist()


def test_prompts_of_unequal_length() -> None:
    """As in dllm: padded with the end of sequence behind the shorter canvas."""
    rows = [generation(p, a, list(range(len(a)))) for p, a in zip(PROMPTS, ANSWERS, strict=True)]
    steps, length = 7, max(row.shape[1] for row, _ in rows)
    padded = np.full((steps, 2, length), EOS)
    for number, (row, _) in enumerate(rows):
        padded[:, number, : row.shape[1]] = np.concatenate(
            [row, np.repeat(row[-1:], steps - len(row), axis=0)]
        )
    for content in ({"histories": padded}, {"histories": padded, "prompt_length": [2, 9]}):
        found = traces(content)
        assert [trace.prompt for trace in found] == list(PROMPTS)
        assert [trace.text for trace in found] == list(ANSWERS)
        assert found[1].reveal_step is not None
        assert found[1].reveal_step.tolist()[:4] == [1, 2, 3, 4]


def release_trace(**changes: Any) -> dict[str, Any]:
    """A trace as the FlexMDM release stores it: "ab" appears as a, then an insertion, then b."""
    prompt, pad = [*VOCAB.encode("Q"), VOCAB.pad_id], VOCAB.pad_id
    bodies = [[], [MASK], [97, MASK], [97, 98]]
    created = [[], [1], [0, 1], [0, 0]]
    ids = np.full((4, 6), pad, dtype=np.int32)
    used, new = np.zeros((4, 6), dtype=bool), np.zeros((4, 6), dtype=bool)
    for step, (body, marks) in enumerate(zip(bodies, created, strict=True)):
        row = [*prompt, *body]
        ids[step, : len(row)] = row
        used[step, : len(row)] = True
        new[step, 2 : len(row)] = marks
    return {
        "prompt": "Q",
        "prompt_len": 2,
        "sequences": ids,
        "attention_masks": used,
        "insertion_masks": new,
        "mask_id": MASK,
        "pad_id": pad,
        "meta": {"task_id": "HumanEval/3", "entry_point": "f", "steps": 3, "temperature": 0.1},
        **changes,
    }


def test_a_trace_of_the_release() -> None:
    assert recognise(release_trace()) == "flexmdm"
    (trace,) = traces(release_trace(), sample=11)
    assert (trace.task_id, trace.sample, trace.entry_point) == ("HumanEval/3", 11, "f")
    assert (trace.prompt, trace.text, trace.steps) == ("Q", "ab", 3)
    assert trace.insert_step is not None and trace.reveal_step is not None
    assert trace.insert_step.tolist() == [1, 2]
    assert trace.reveal_step.tolist() == [2, 3]


def test_entry_points_come_from_the_tasks_where_the_trace_has_none() -> None:
    content = release_trace(meta={"task_id": "Mbpp/2", "entry_point": None})
    (trace,) = traces(content, entry_points={"Mbpp/2": "g"})
    assert trace.entry_point == "g"
    (trace,) = traces(release_trace(meta=None))
    assert (trace.task_id, trace.entry_point) == ("file", None)


def test_the_mask_id_of_file_and_user_must_agree() -> None:
    assert resolve_mask_id(CANVASES, None) is None
    assert resolve_mask_id(CANVASES, 7) == 7
    assert (
        resolve_mask_id({"mask_id": np.array(9)}, None) == resolve_mask_id({"mask_id": 9}, 9) == 9
    )
    with pytest.raises(ValueError, match=r"says mask_id 9, not 7: leave --mask-id out"):
        resolve_mask_id({"mask_id": 9}, 7)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ({"tokens": [1]}, {}, r"no format fits these fields.*it has: tokens"),
        ("text", {}, "a list of canvases or a dict is needed, not str"),
        (3, {}, "not int"),
        ([], {}, "no canvases in it"),
        ({"histories": None}, {}, "no canvases in it"),
        ({"histories": CANVASES, "promt_length": 2}, {}, "did you mean prompt_length"),
        (
            {"histories": CANVASES, "zzz": 2},
            {},
            "'zzz' is not known beside histories: leave it out",
        ),
        ([[1, MASK], [1, 2, 3]], {}, r"canvas 1 has 3 positions.*Trace.from_snapshots"),
        ([[1, MASK], [1, MASK, 2]], {}, "earlier ones are masked: ids alone do not say"),
        ([[1, 2, 3], [1, 2]], {}, "those that a cache holds too"),
        ([[[1, MASK]], [[1, 2], [1, 2]]], {}, "with one number of rows"),
        (np.zeros((2, 2, 2, 2), dtype=int), {}, r"canvas 0 has shape \(2, 2, 2\)"),
        ([[0.5, 1.0]], {}, "canvas 0 holds float64 values, token ids are needed"),
        ([[1, 2], [1, 2]], {}, r"has no mask 256: give --prompt-length, and --format dream"),
        ([[1, MASK], [1, 2]], {"prompt_length": 5}, "prompt_length = 5 is more than"),
        ([[1, MASK], [1, 2]], {"prompt_length": 2}, "snapshot 0 changes, masks or inserts"),
        ({"history": [[1, 2]]}, {}, r"Dream's history begins after step 1.*--prompt-length"),
        ({"histories": CANVASES, "prompt_length": [1, 2]}, {}, "one for each of the 1 rows"),
        ({"histories": CANVASES, "prompt_length": 1.5}, {}, "prompt_length: a number"),
        (release_trace(), {"prompt_length": 3}, "says prompt_len 2: leave --prompt-length out"),
        (release_trace(sequences=np.zeros((4, 5), int)), {}, r"all three are \(steps \+ 1, length"),
        (release_trace(meta={"task_id": 3}), {}, "task_id: a string is needed, got 3"),
    ],
)
def test_what_cannot_be_read_is_refused(
    content: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        traces(content, **options)


def test_a_format_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="the field 'history' is missing"):
        traces({"histories": CANVASES}, "dream", prompt_length=2)
    with pytest.raises(ValueError, match="a FlexMDM trace has the field 'sequences'"):
        traces({"histories": CANVASES}, "flexmdm")
    for format in ("edits", "dllm_rl"):
        with pytest.raises(ValueError, match=f"format {format} says where its prompts end"):
            traces([], format, prompt_length=2)
    assert {"jsonl", *ADAPTERS} == set(FORMATS.split(", "))


def candidate(slot: int, text: str, score: float, tokens: Any = None) -> dict[str, Any]:
    ids = [*VOCAB.encode(text), EOS, EOS]
    return {"slot": slot, "text": text, "tokens": tokens or ids, "score": score}


def segment_record(**changes: Any) -> dict[str, Any]:
    """Three slots; the last line comes first, then an end that erases nothing, then the first."""
    steps = [
        {
            "step": 1,
            "chosen_slot": 1,
            "segments": [
                candidate(0, "a=2\n", -0.9),
                candidate(1, "b=1\n", -0.2),
                candidate(2, "", -0.3),
            ],
        },
        {
            "step": 2,
            "chosen_slot": 2,
            "segments": [candidate(0, "a=1\n", -0.5), candidate(2, "", -0.1)],
        },
        {"step": 3, "chosen_slot": 0, "segments": [candidate(0, "a=1\n", -0.25)]},
    ]
    return {"index": 7, "prompt": "Q\n", "decoding_order": [2, 3, 1], "steps": steps} | changes


def test_traces_of_segments() -> None:
    records = [segment_record(), segment_record(), segment_record(index=8)]
    assert recognise(records) == recognise(records[0]) == "latentmdm"
    found = traces(records)
    keys = [(trace.task_id, trace.sample) for trace in found]
    assert keys == [("GSM8K/7", 0), ("GSM8K/7", 1), ("GSM8K/8", 0)]
    trace = found[0]
    assert (trace.prompt, trace.text, trace.steps) == ("Q\n", "a=1\nb=1\n", 3)
    assert trace.pieces == (*"a=1\nb=1\n", "")
    assert trace.reveal_step is not None and trace.segment is not None and trace.score is not None
    assert trace.reveal_step.tolist() == [3] * 4 + [1] * 4 + [2]
    assert trace.segment.tolist() == [0] * 4 + [1] * 4 + [2]
    assert trace.score.tolist() == pytest.approx([-0.25] * 4 + [-0.2] * 4 + [-0.1])
    assert trace.candidates is not None
    assert [(c.step, c.segment, c.piece, c.taken) for c in trace.candidates] == [
        (1, 0, "a=2\n", False),
        (1, 1, "b=1\n", True),
        (1, 2, "", False),
        (2, 0, "a=1\n", False),
        (2, 2, "", True),
        (3, 0, "a=1\n", True),
    ]
    (alone,) = traces(segment_record())
    assert alone == trace


def test_segments_of_strings_numbered_from_1_and_erased() -> None:
    """Slot 3 was written, then slot 2 came out empty: the release empties all from there on."""
    steps = [
        {
            "chosen_slot": 3,
            "segments": [candidate(n, "c\n", -n, ["c", "\n"]) for n in (1, 2, 3, 4)],
        },
        {
            "chosen_slot": 2,
            "segments": [candidate(2, "", -0.5), *(candidate(n, "d\n", -n) for n in (1, 4))],
        },
        {"chosen_slot": [1], "segments": [candidate(1, "e\n", -0.125, ["e", "\n"])]},
    ]
    (trace,) = traces([segment_record(steps=steps)])
    assert (trace.text, trace.pieces) == ("e\n", ("e", "\n", "", "", ""))
    assert trace.reveal_step is not None and trace.segment is not None and trace.score is not None
    assert trace.segment.tolist() == [0, 0, 1, 2, 3]
    assert trace.reveal_step.tolist() == [3, 3, 2, 2, 2]
    assert np.array_equal(trace.score, [-0.125, -0.125, -0.5, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": [{"chosen_slot": 1}]}, r"record 0: steps with `chosen_slot` and `segments`"),
        ({"steps": 3}, r"record 0: steps with `chosen_slot`"),
        ({"steps": []}, r"record 0: steps with `chosen_slot`"),
        ({"index": "x"}, "index: a whole number"),
        ({"steps": segment_record()["steps"][:2]}, "steps end while segments are open"),
    ],
)
def test_records_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        traces([segment_record(**changes)])
    with pytest.raises(ValueError, match="record 1 of a LatentMDM trace has no field 'steps'"):
        traces([segment_record(), {"index": 1, "prompt": ""}], "latentmdm")


# Traces of other libraries become a run, with a note where their steps may count from 0.


def lines(*reveals: list[int] | None) -> bytes:
    """A line per list of reveal steps; None for a line of text alone."""
    records: list[dict[str, Any]] = []
    for sample, reveal in enumerate(reveals):
        record: dict[str, Any] = {"task_id": "t", "sample": sample, "prompt": ""}
        if reveal is None:
            record["text"] = "abc"
        else:
            record["tokens"] = ["a"] * len(reveal)
            record |= {"insert_step": [0] * len(reveal), "reveal_step": reveal}
        records.append(record)
    return "\n".join(map(json.dumps, records)).encode()


def test_a_compressed_file_becomes_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines([1, 2], [2, 1])))
    run, count = import_traces(tmp_path / "a.jsonl.gz", tmp_path / "run", command="c")
    assert count == len(list(Run.open(run.folder).traces())) == 2
    assert sorted(item.name for item in run.folder.iterdir()) == ["run.json", "traces.parquet"]


@pytest.mark.parametrize(
    ("reveals", "note"),
    [
        ([[1, 2], None, []], ""),
        ([[1, 0], [1, 2], None], "1 sample has tokens at step 0, which means given, not generated"),
        ([[0, 1], [1, 0], [2, 1]], "2 samples have tokens at step 0"),
    ],
)
def test_steps_from_0_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reveals: list[list[int] | None], note: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(*reveals))
    _, count = import_traces(tmp_path / "a.jsonl", tmp_path / "run", command="c")
    assert count == 3
    out, told = capsys.readouterr()
    assert out == ""
    assert told.startswith(note)
    assert told.count("\n") == bool(note)
    assert note == "" or told.endswith("add 1 to all steps if yours count from 0\n")


def test_a_wrong_file_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([1]) + b"\n{")
    for name, message in (("a.jsonl", "not JSON"), ("b.jsonl", r"name a \.jsonl or \.jsonl\.gz")):
        with pytest.raises(ValueError, match=message):
            import_traces(tmp_path / name, tmp_path / "run", command="c")
    assert [item.name for item in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines([1]))
    with (
        alone_in(tmp_path / "run"),
        pytest.raises(ValueError, match=r"another process is working in .*run: wait for it, or"),
    ):
        import_traces(tmp_path / "a.jsonl", tmp_path / "run", command="c")
    assert [item.name for item in tmp_path.iterdir()] == ["a.jsonl"]


def test_the_help_and_the_page_say_how_steps_count() -> None:
    from anyorder.cli.runs import import_verb

    page = Path(__file__).parents[2] / "docs" / "traces.md"
    for text in (str(import_verb.__doc__), page.read_text(encoding="utf-8")):
        plain = " ".join(text.split())
        assert "Steps count from 1" in plain
        assert "0 means given from the start" in plain
