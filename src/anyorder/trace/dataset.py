"""Traces to and from a `datasets.Dataset`, with the columns of traces.parquet (table.py).

    dataset = to_dataset(run.traces())
    traces = list(from_dataset(dataset.filter(lambda row: row["steps"] > 8)))

A dataset loses the version and the exact types of our file when it is filtered, stored or pushed,
so they are not asked for: columns are found by their names, and every value is checked as for a new
trace. Columns that a trace does not have are refused, because they would be lost silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from anyorder.checks import did_you_mean
from anyorder.trace.table import GROUP_ROWS, SCHEMA, from_batch, to_table
from anyorder.trace.trace import Trace

NEEDS = "a dataset needs the package datasets: pip install 'anyorder[hf]'"


def to_dataset(traces: Iterable[Trace]) -> Any:
    """A `datasets.Dataset` with a row for each trace."""
    try:
        from datasets import Dataset
    except ModuleNotFoundError:
        raise ValueError(NEEDS) from None
    return Dataset(to_table(list(traces)))


def from_dataset(dataset: Any) -> Iterator[Trace]:
    """The traces of a `Dataset`, or of an `IterableDataset` as it is streamed."""
    if isinstance(dataset, dict):  # a DatasetDict
        raise ValueError(f"this has several splits ({', '.join(dataset)}): give one of them")
    if not hasattr(dataset, "with_format"):
        raise ValueError(
            f"{type(dataset).__name__} is no dataset: give one of the package datasets"
        )
    first = 0
    for table in dataset.with_format("arrow").iter(batch_size=GROUP_ROWS):
        for batch in _completed(table).to_batches():
            try:
                yield from from_batch(batch)
            except ValueError as error:
                raise ValueError(f"rows from {first} on: {error}") from None
            first += batch.num_rows


def _completed(table: pa.Table) -> pa.Table:
    """All columns of a trace in one chunk each; null where the dataset lacks one."""
    unknown = [name for name in table.column_names if name not in SCHEMA.names]
    if unknown:
        raise ValueError(
            f"no column {unknown[0]!r} in a trace{did_you_mean(unknown[0], SCHEMA.names)}: take it "
            f"out with dataset.remove_columns({unknown!r})"
        )
    lacking = [
        field.name
        for field in SCHEMA
        if not field.nullable and field.name not in table.column_names
    ]
    if lacking:
        raise ValueError(f"the dataset lacks {', '.join(lacking)}: a trace needs them")
    columns = {
        field.name: table.column(field.name)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    }
    return pa.table(columns).combine_chunks()
