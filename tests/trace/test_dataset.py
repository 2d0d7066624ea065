"""Traces to a `datasets.Dataset` and back, also after what people do with datasets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from made_traces import ar, flexmdm, latentmdm, mdm, trace_of

from anyorder.trace import Event, Ghost, Run, RunCard, Trace, from_dataset, to_dataset

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    """Every kind of column: events, ghosts, candidates, NaN, text alone."""
    events = (Event(1, 0, None, "w"), Event(2, 0, None, None))
    return [
        mdm("t/0", 1),
        flexmdm("t/1", 2),
        latentmdm(),
        ar("t/2"),
        trace_of(
            ["a", "b"],
            [3, 1],
            task_id="e",
            events=events,
            ghosts=(Ghost(-1, 0, None, 2, None, None),),
        ),
        Trace(task_id="text", sample=0, prompt="", text="x = 1"),
    ]


def test_there_and_back(traces: list[Trace]) -> None:
    dataset = to_dataset(traces)
    assert len(dataset) == len(traces)
    assert dataset["text"][:2] == [traces[0].text, traces[1].text]
    assert list(from_dataset(dataset)) == traces


def test_after_filter_shuffle_and_disk(traces: list[Trace], tmp_path: Path) -> None:
    dataset = to_dataset(traces).filter(lambda row: row["steps"] is not None)
    dataset.select([3, 1, 0]).save_to_disk(tmp_path / "saved")
    back = list(from_dataset(datasets.load_from_disk(str(tmp_path / "saved"))))
    assert back == [traces[3], traces[1], traces[0]]


def test_rewritten_by_python_code(traces: list[Trace]) -> None:
    """`map` gives every column back as Python lists."""
    dataset = to_dataset(traces).map(lambda row: {**row, "seed": 7}, load_from_cache_file=False)
    back = list(from_dataset(dataset))
    assert [trace.seed for trace in back] == [7] * len(traces)
    assert [trace.events for trace in back] == [trace.events for trace in traces]
    assert [trace.pieces for trace in back[:5]] == [trace.pieces for trace in traces[:5]]


def test_a_run_is_read_as_it_is_and_streamed(traces: list[Trace], tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", RunCard("test", {}))
    run.append(0, traces)
    run.finish()
    dataset = datasets.load_dataset(
        "parquet",
        data_files=str(tmp_path / "run" / "traces.parquet"),
        split="train",
        streaming=True,
    )
    assert list(from_dataset(dataset)) == traces


def test_only_the_columns_that_are_needed(traces: list[Trace]) -> None:
    dataset = to_dataset(traces).select_columns(["task_id", "sample", "prompt", "text"])
    back = list(from_dataset(dataset))
    assert [trace.text for trace in back] == [trace.text for trace in traces]
    assert all(trace.reveal_step is None for trace in back)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda it: it.add_column("polcy", ["x"] * len(it)),
            r"'polcy'.*did you mean policy\?",
        ),
        (lambda it: it.remove_columns("text"), "the dataset lacks text: a trace needs them"),
        (lambda it: datasets.DatasetDict(a=it, b=it), r"several splits \(a, b\): give one"),
        (lambda it: 3, "int is no dataset"),
        (lambda it: it.map(lambda row: {"sample": -1}), "rows from 0 on: .*sample"),
    ],
)
def test_what_is_no_trace_is_refused(traces: list[Trace], change: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        list(from_dataset(change(to_dataset(traces))))


def test_the_package_is_named_where_it_is_missing(
    traces: list[Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'anyorder\[hf\]'"):
        to_dataset(traces)
