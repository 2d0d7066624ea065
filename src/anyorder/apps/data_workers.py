"""Rows made in this process, or in several: the order and the rows are the same.

What is made of a record depends on nothing but the record, so records are dealt out in blocks and
the rows come back in order. Only the columns that a source needs travel, and no more than one
chunk of them at a time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from anyorder.apps.data_job import DataPlan
from anyorder.apps.data_rows import Dropped, MadeRow, RowMaker
from anyorder.data.records import Record

Records = Iterator[tuple[int, int, Record]]
Made = Iterator[tuple[int, int, MadeRow | Dropped]]
Makes = Callable[[int, int, Records], Made]
"""(source, number of the first record, records with their places) -> rows with these places."""
Block = tuple[int, int, list[Record]]

BLOCK = 128
"""Records that travel together."""

_MAKER: list[RowMaker] = []
"""The worker's own, made once when it starts."""


@contextmanager
def making(plan: DataPlan) -> Iterator[Makes]:
    """What makes the rows of a plan, in as many processes as it asks for."""
    if plan.job.workers == 1:
        maker = RowMaker(plan)

        def alone(source: int, first: int, records: Records) -> Made:
            for number, (file, row, record) in enumerate(records, start=first):
                yield file, row, maker(source, number, record)

        yield alone
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy threads that hold locks
    with context.Pool(plan.job.workers, _start, (plan,)) as pool:

        def together(source: int, first: int, records: Records) -> Made:
            places: list[tuple[int, int]] = []
            wanted = plan.sources[source].spec
            columns = (*wanted.columns, *wanted.optional)
            blocks = _blocks(source, first, records, places, columns)
            number = 0
            for rows in pool.imap(_make, blocks):
                for made in rows:
                    yield *places[number], made
                    number += 1

        yield together


def _blocks(
    source: int,
    first: int,
    records: Records,
    places: list[tuple[int, int]],
    columns: tuple[str, ...],
) -> Iterator[Block]:
    while taken := list(islice(records, BLOCK)):
        start = first + len(places)
        places += [(file, row) for file, row, _ in taken]
        yield source, start, [_needed(record, columns) for _, _, record in taken]


def _needed(record: Record, columns: tuple[str, ...]) -> Record:
    return {name: record[name] for name in columns if name in record}


def _start(plan: DataPlan) -> None:
    _MAKER.append(RowMaker(plan))


def _make(block: Block) -> list[MadeRow | Dropped]:
    source, first, records = block
    made = _MAKER[0]
    return [made(source, number, record) for number, record in enumerate(records, start=first)]
