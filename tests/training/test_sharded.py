"""Rows that several processes wrote are read by any other number of processes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from anyorder.training.processes import (
    TensorReader,
    cut,
    file_names,
    local,
    put,
    rows_of,
    save_shard,
)


@given(rows=st.integers(0, 40), shards=st.integers(1, 9))
def test_every_row_is_in_one_shard(rows: int, shards: int) -> None:
    cuts = [cut(rows, shards, shard) for shard in range(shards)]
    assert [row for first, last in cuts for row in range(first, last)] == list(range(rows))
    chunks = torch.arange(rows).chunk(shards) if rows else ()
    assert [len(chunk) for chunk in chunks] == [
        last - first for first, last in cuts if last > first
    ]


@given(rows=st.integers(1, 12), wrote=st.integers(1, 5), reads=st.integers(1, 5))
def test_any_number_reads_what_any_number_wrote(rows: int, wrote: int, reads: int) -> None:
    matrix = torch.arange(rows * 3.0).reshape(rows, 3)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in file_names("model", wrote)]
        for shard, path in enumerate(paths):
            first, last = cut(rows, wrote, shard)
            tensors = {"a.b": matrix[first:last].clone()}
            save_file(tensors | ({"step": torch.tensor(7.0)} if shard == 0 else {}), path)
        with TensorReader(paths) as stored:
            assert stored.shapes == {"a.b": (rows, 3), "step": ()}
            found = [stored.rows("a.b", cut(rows, reads, shard)) for shard in range(reads)]
            assert torch.equal(torch.cat(found), matrix)
            assert torch.equal(stored.rows("a.b"), matrix)
            assert stored.rows("step") == 7.0


def test_what_is_not_sharded_is_one_part(tmp_path: Path) -> None:
    tensor = torch.zeros(3, 2)
    assert rows_of(tensor) is None and local(tensor) is tensor
    put(tensor, torch.ones(3, 2))
    assert file_names("ema", None) == ["ema.safetensors"]
    assert file_names("ema", 2)[1] == "ema-00001-of-00002.safetensors"
    save_shard(tmp_path / "0", {"x": tensor}, 0)
    save_shard(tmp_path / "1", {"x": tensor}, 1)
    with TensorReader([tmp_path / "0", tmp_path / "1"]) as stored:
        assert torch.equal(stored.rows("x"), torch.ones(3, 2)), "once, in the first file"


def test_files_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(2, 3)}, tmp_path / "0")
    save_file({"x": torch.zeros(2, 4)}, tmp_path / "1")
    (tmp_path / "2").write_bytes(b"half")
    with (
        pytest.raises(ValueError, match="x has another shape"),
        TensorReader([tmp_path / "0", tmp_path / "1"]),
    ):
        pass
    with pytest.raises(ValueError, match="cannot be read"), TensorReader([tmp_path / "2"]):
        pass
