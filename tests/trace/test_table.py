"""Parquet: a stable schema that comes back exactly and opens in other software."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from anyorder.trace import Candidate, Event, Ghost, Run, RunCard, Trace, table

COLUMNS = [
    *("task_id", "sample", "prompt", "text", "program", "entry_point", "prompt_ids", "token_ids"),
    *("char_end", "insert_step", "reveal_step", "log_prob", "segment", "score"),
    *("steps", "forwards", "columns", "seconds", "ties", "family", "policy", "seed"),
    *("events", "candidates", "ghosts", "times", "block"),
]
REMEDY = "make it again"


def test_the_columns_are_those_of_the_format() -> None:
    assert table.SCHEMA.names == COLUMNS
    types = {field.name: str(field.type) for field in table.SCHEMA}
    assert types["reveal_step"] == types["insert_step"] == "list<element: int32 not null>"
    assert types["log_prob"] == "list<element: float not null>"
    assert types["times"] == "list<element: double not null>"
    assert table.SCHEMA.metadata == {b"anyorder.trace.schema": b"5"}


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_traces_come_back(trace_strategy: st.SearchStrategy[Trace], data: st.DataObject) -> None:
    traces = data.draw(st.lists(trace_strategy, max_size=4))
    traces.append(Trace(task_id="text only", sample=0, prompt="", text="x\r\n\0é"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.parquet"
        table.write_traces(path, traces)
        assert list(table.read_traces(path, remedy=REMEDY)) == traces


def test_it_opens_in_pandas(tmp_path: Path, make_trace: Any) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "traces.parquet"
    events = [Event(0, 0, 20, "x")]
    candidates = [Candidate(2, 5, (10, 11), "ab", -0.5, True), Candidate(3, 1, (), "", None, False)]
    ghosts = [Ghost(3, 1, None, 2, None, None)]
    traces = [
        make_trace(events=events, candidates=candidates, ghosts=ghosts, times=[0, 0.25, 0.5, 1]),
        Trace(task_id="u", sample=1, prompt="", text="y"),
    ]
    table.write_traces(path, traces)
    frame = pandas.read_parquet(path)
    assert list(frame.columns) == COLUMNS
    assert frame["text"].tolist() == ["abcde", "y"]
    assert frame["reveal_step"][0].tolist() == [3, 2, 4, 1]
    assert frame["reveal_step"][1] is None
    assert frame["events"][0][0]["piece"] == "x"
    assert frame["ghosts"][0][0]["delete_step"] == 2 and frame["ghosts"][1] is None
    assert frame["times"][0].tolist() == [0, 0.25, 0.5, 1]
    assert frame["candidates"][0][0]["token_ids"].tolist() == [10, 11]
    assert [each["score"] for each in frame["candidates"][0]] == [-0.5, None]
    exploded = frame[["task_id", "insert_step", "reveal_step"]].explode(
        ["insert_step", "reveal_step"]
    )
    assert len(exploded) == 5


LACKING = {
    1: ["score", "candidates", "columns", "ghosts", "times", "block"],
    2: ["columns", "ghosts", "times", "block"],
    3: ["ghosts", "times", "block"],
    4: ["block"],
}


def write_version(version: int, path: Path, traces: list[Trace]) -> None:
    """As the versions before these columns wrote them."""
    old = table.to_table(traces).drop_columns(LACKING[version])
    pq.write_table(old.replace_schema_metadata({"anyorder.trace.schema": str(version)}), path)


@pytest.mark.parametrize("version", list(LACKING))
def test_files_of_versions_before_are_read(version: int, tmp_path: Path, make_trace: Any) -> None:
    traces = [make_trace(segment=[0, 0, 1, 1]), Trace(task_id="u", sample=1, prompt="", text="y")]
    write_version(version, tmp_path / "old.parquet", traces)
    assert list(table.read_traces(tmp_path / "old.parquet", remedy=REMEDY)) == traces
    for names in (["candidates"], ["columns"], ["score", "text"], ["text", "times"]):
        (batch,) = table.read_batches(tmp_path / "old.parquet", names, remedy=REMEDY)
        assert (batch.num_rows, batch.schema.names) == (2, names)
        assert batch.schema == pa.schema([table.SCHEMA.field(name) for name in names])


def test_a_run_that_was_begun_before_goes_on(tmp_path: Path, make_trace: Any) -> None:
    run = Run.create(tmp_path / "run", RunCard("c", {}))
    (run.folder / "parts").mkdir()
    write_version(1, run.folder / "parts" / "00000.parquet", [make_trace()])
    new = make_trace(sample=1, score=[-1, -1, -2, -2], segment=[0, 0, 1, 1])
    run.append(1, [new])
    run.finish()
    assert list(Run.open(run.folder).traces()) == [make_trace(), new]
    assert run.table(["score"]).column("score").to_pylist() == [None, [-1, -1, -2, -2]]


def test_a_column_is_not_confused_with_one_inside_another(tmp_path: Path, make_trace: Any) -> None:
    """`score`, `segment` and `token_ids` are also fields of a candidate."""
    path = tmp_path / "traces.parquet"
    candidates = [Candidate(1, 0, (1, 2, 3), "abc", -9.0, False)]
    table.write_traces(path, [make_trace(candidates=candidates, token_ids=[10, 11, 12, 13])])
    (batch,) = table.read_batches(path, ["token_ids", "score"], remedy=REMEDY)
    assert batch.to_pylist() == [{"token_ids": [10, 11, 12, 13], "score": None}]


def test_it_is_compressed_and_checked_per_page(tmp_path: Path, make_trace: Any) -> None:
    path = tmp_path / "traces.parquet"
    table.write_traces(path, [make_trace()])
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    assert column.compression == "ZSTD"


def test_merging_keeps_the_order_and_groups_the_rows(tmp_path: Path, make_trace: Any) -> None:
    traces = [make_trace(sample=number) for number in range(1100)]
    bounds = [0, 3, 3, 600, 601, 1100]
    parts = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        parts.append(tmp_path / f"{number}.parquet")
        table.write_traces(parts[-1], traces[start:end])
    target = tmp_path / "all.parquet"
    table.merge(parts, target, remedy=REMEDY)
    assert list(table.read_traces(target, remedy=REMEDY)) == traces
    metadata = pq.ParquetFile(target).metadata
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert max(sizes) <= table.GROUP_ROWS
    assert len(sizes) < 6


def test_rows_are_counted_where_there_is_a_file(tmp_path: Path, make_trace: Any) -> None:
    path = tmp_path / "0.parquet"
    assert table.count_rows(path) is None
    table.write_traces(path, [make_trace(sample=number) for number in range(3)])
    assert table.count_rows(path) == 3
    path.write_bytes(b"PAR1")
    assert table.count_rows(path) is None


def test_merging_nothing_but_empty_parts_gives_an_empty_table(tmp_path: Path) -> None:
    table.write_traces(tmp_path / "0.parquet", [])
    table.merge([tmp_path / "0.parquet"], tmp_path / "all.parquet", remedy=REMEDY)
    assert list(table.read_traces(tmp_path / "all.parquet", remedy=REMEDY)) == []


def test_merging_refuses_a_sample_that_is_there_twice(tmp_path: Path, make_trace: Any) -> None:
    parts = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for part in parts:
        table.write_traces(part, [make_trace()])
    with pytest.raises(ValueError, match=r"1.parquet: task 't' sample 0 is in this run already"):
        table.merge(parts, tmp_path / "all.parquet", remedy=REMEDY)
    assert not (tmp_path / "all.parquet").exists()


def read(path: Path) -> None:
    list(table.read_traces(path, remedy=REMEDY))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.parquet is missing: repeat the command"):
        read(tmp_path / "no.parquet")


@pytest.mark.parametrize("keep", [0, 3, 4, 0.5, -1, -8])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, make_trace: Any, keep: float) -> None:
    path = tmp_path / "traces.parquet"
    table.write_traces(path, [make_trace(sample=number) for number in range(9)])
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) if 0 < keep < 1 else int(keep)])
    with pytest.raises(ValueError, match=r"traces\.parquet is truncated or not Parquet") as caught:
        read(path)
    assert str(caught.value).endswith(REMEDY)


@pytest.mark.parametrize("place", [0.1, 0.2, 0.3, 0.4])
def test_a_changed_byte_is_refused_by_name(tmp_path: Path, make_trace: Any, place: float) -> None:
    path = tmp_path / "traces.parquet"
    rng = np.random.default_rng(0)
    text = "".join(map(chr, rng.integers(32, 5000, 4000)))
    table.write_traces(path, [make_trace(text=text, char_end=[1, 2, 3, 4000], program=text)])
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"traces.parquet.*" + REMEDY):
        read(path)


def test_foreign_tables_are_refused(tmp_path: Path, make_trace: Any) -> None:
    path = tmp_path / "x.parquet"
    good = table.to_table([make_trace()])
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ValueError, match=r"x.parquet was not written as traces.*anyorder import"):
        read(path)
    pq.write_table(good.replace_schema_metadata({"anyorder.trace.schema": "6"}), path)
    with pytest.raises(ValueError, match=r"x.parquet has trace schema 6, this anyorder reads 5"):
        read(path)
    pq.write_table(good.drop_columns(["ties", "seed"]), path)
    with pytest.raises(ValueError, match=r"x.parquet .* differs in seed, ties"):
        read(path)
    pq.write_table(good.replace_schema_metadata({"anyorder.trace.schema": "1"}), path)
    with pytest.raises(
        ValueError, match=r"schema 1 but differs in block, candidates, columns, ghosts"
    ):
        read(path)
    wrong = good.set_column(
        good.schema.get_field_index("steps"), table.SCHEMA.field("steps"), pa.array([1], pa.int32())
    )
    pq.write_table(wrong, path)
    with pytest.raises(ValueError, match=r"x.parquet: trace 't' sample 0: reveal_step\[0\] = 3"):
        read(path)
