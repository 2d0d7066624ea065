"""Rows that were seen before, exactly or nearly: MinHash signatures in banded hash tables.

A row is the set A of its 5-grams of words (prompt) and its 8-grams of shape (answer). With K keyed
hash functions the signature is s_k = min over A of h_k, and P(s_k(A) = s_k(B)) = J(A, B), the
Jaccard similarity. K = BANDS x ROWS: two rows are compared if all ROWS numbers of a band agree, and
a row is a near duplicate of an earlier one if the share of equal numbers is `threshold` or more. A
pair of similarity J is compared with probability 1 - (1 - J^ROWS)^BANDS: 0.974 at 0.8, 0.9999 at
0.9.

Memory: an entry is 8 bytes (32 bits of the band's key, 32 of the row's number) in tables that are
at most three quarters full, for BANDS bands and the exact key: 139 bytes a row, and nothing else.
Signatures are in a file (306 bytes a row) and only read to compare. Bands that `CROWD` rows share
already are not entered again, so that templates cost no time.

Everything is a function of the rows in their order; no process-dependent hash is used. Not here:
choosing the file, committing it, counting (apps/pipeline/__init__.py).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from anyorder.data.filters import Array, RowViews, band_keys, grams, insert, minhash, probe
from anyorder.data.keyed import WORD, Draws, key

BANDS, ROWS = 12, 6
HASHES = BANDS * ROWS
WORD_GRAM, SHAPE_GRAM = 5, 8
CROWD = 16
CANDIDATES = 64
"""The most earlier rows that a row is compared with."""

FIRST_SLOTS, MOST_SLOTS = 1 << 14, 1 << 20
FULL = 0.75
BLOCK = 1 << 14

BYTES_IN_MEMORY = round((BANDS + 1) * 8 / FULL)
"""Of state for each row that was kept."""

RECORD = np.dtype(
    [("exact", "<u8"), ("source", "<u2"), ("row", "<i8"), ("signature", "<u4", (HASHES,))]
)


def _coefficients(name: str) -> Array:
    draws = (int(Draws("minhash", name, index).uniform() * 2**53) for index in range(HASHES))
    return np.array([key(name, draw) & WORD for draw in draws], dtype=np.uint64)


FACTORS = _coefficients("factor") | np.uint64(1)
OFFSETS = _coefficients("offset")


@dataclass(frozen=True)
class EarlierRow:
    """The earlier row that a row repeats."""

    source: int
    row: int
    similarity: float | None
    """The share of equal hashes; None: the texts are equal but for white space."""


def exact_key(row: RowViews) -> int:
    """64 bits of a row's text, the same for any amount of white space."""
    text = "\x00".join(" ".join(part.split()) for part in (row.prompt, row.answer))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def signature(row: RowViews) -> Array:
    """The smallest value of each of the K hash functions."""
    parts = [grams(row.prompt_words, WORD_GRAM), grams(row.shape, SHAPE_GRAM)]
    numbers = np.concatenate(parts)
    if not len(numbers):  # too short for any: the whole row is its only n-gram
        numbers = np.array([exact_key(row)], dtype=np.uint64)
    return minhash(numbers, FACTORS, OFFSETS)


class KnownRows:
    """The rows kept so far, those in `file` and those since the last `flush`.

    Reads the file's records at the start. To resume, cut the file to what was committed first.
    """

    def __init__(self, path: Path, *, near: bool, threshold: float) -> None:
        self.near, self.threshold = near, threshold
        self._tables: list[Array] = []
        self._filled: list[int] = []
        self._pending: list[Any] = []
        self._file: BinaryIO = path.open("a+b")
        self._stored = 0
        size = os.fstat(self._file.fileno()).st_size
        assert size % RECORD.itemsize == 0, "the file was not cut to whole records"
        for start in range(0, size // RECORD.itemsize, BLOCK):
            for record in self._read(start, min(BLOCK, size // RECORD.itemsize - start)):
                self._enter(record)
                self._stored += 1

    def __len__(self) -> int:
        return self._stored + len(self._pending)

    @property
    def memory(self) -> int:
        """Bytes of the tables."""
        return sum(table.nbytes for table in self._tables)

    def find(self, exact: int, numbers: Array) -> EarlierRow | None:
        """The first kept row that this one repeats."""
        keys = band_keys(numbers, BANDS, np.uint64(exact))
        found = np.zeros(CANDIDATES, dtype=np.int64)
        candidates: set[int] = set()
        for table in self._tables:
            count = probe(table, keys, self._first_band, found)
            candidates.update(found[:count].tolist())
        for number in sorted(candidates)[:CANDIDATES]:
            record = self._record(number)
            if int(record["exact"]) == exact:
                return EarlierRow(int(record["source"]), int(record["row"]), None)
            if self.near:
                alike = float(np.mean(record["signature"] == numbers))
                if alike >= self.threshold:
                    return EarlierRow(int(record["source"]), int(record["row"]), round(alike, 4))
        return None

    def add(self, exact: int, numbers: Array, source: int, row: int) -> None:
        """Keep a row."""
        record = np.zeros((), dtype=RECORD)
        record["exact"], record["source"], record["row"] = exact, source, row
        record["signature"] = numbers
        self._enter(record)
        self._pending.append(record)

    def flush(self) -> int:
        """Append the rows since the last flush to the file, on disk; return the file's size."""
        if self._pending:
            self._file.write(np.array(self._pending, dtype=RECORD).tobytes())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._stored += len(self._pending)
        self._pending.clear()
        return self._stored * RECORD.itemsize

    def close(self) -> None:
        self._file.close()

    @property
    def _first_band(self) -> int:
        return 0 if self.near else BANDS  # without near duplicates only the exact key is kept

    def _enter(self, record: Any) -> None:
        # Further tables, since a table holds only half of each key and cannot be rehashed.
        if not self._tables or self._filled[-1] >= FULL * self._tables[-1].shape[1]:
            slots = min(FIRST_SLOTS << len(self._tables), MOST_SLOTS)
            self._tables.append(np.zeros((BANDS + 1, slots), dtype=np.uint64))
            self._filled.append(0)
        number = sum(self._filled)
        keys = band_keys(record["signature"], BANDS, record["exact"])
        insert(self._tables[-1], keys, self._first_band, number, CROWD)
        self._filled[-1] += 1

    def _read(self, start: int, count: int) -> Array:
        content = os.pread(self._file.fileno(), count * RECORD.itemsize, start * RECORD.itemsize)
        return np.frombuffer(content, dtype=RECORD)

    def _record(self, number: int) -> Any:
        if number >= self._stored:
            return self._pending[number - self._stored]
        return self._read(number, 1)[0]
