"""Compiled: numbers of n-grams, MinHash, and hash tables of bands with linear probing (numba).

A table is (bands, slots) numbers of 64 bits; 0 is an empty slot, otherwise the upper half is the
upper half of the key and the lower half the row's number + 1. A key's first slot is its lower bits.
Nothing is ever removed, so a chain ends at the first empty slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyorder._kernel import kernel

Array = np.ndarray[Any, np.dtype[Any]]

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
ONE = np.uint64(1)
BASE, MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)


@kernel
def polynomials(tokens: Array, size: int) -> Array:
    """sum over j of base^(size - 1 - j) * tokens[i + j], mixed, for every run of `size` tokens."""
    found = np.empty(max(0, len(tokens) - size + 1), dtype=np.uint64)
    for i in range(len(found)):
        total = np.uint64(0)
        for j in range(size):
            total = total * BASE + tokens[i + j]
        found[i] = total ^ (total >> SHIFT)
    return found


@kernel
def band_keys(signature: Array, bands: int, exact: np.uint64) -> Array:
    """One number for each band of a signature, and the exact key behind them."""
    keys = np.empty(bands + 1, dtype=np.uint64)
    rows = len(signature) // bands
    for band in range(bands):
        total = np.uint64(0)
        for at in range(band * rows, (band + 1) * rows):
            total = (total ^ np.uint64(signature[at])) * MIX
            total ^= total >> SHIFT
        keys[band] = total
    keys[bands] = exact
    return keys


@kernel
def minhash(numbers: Array, factors: Array, offsets: Array) -> Array:
    """min over the numbers of the upper 32 bits of factor * number + offset, for each function."""
    found = np.empty(len(factors), dtype=np.uint32)
    for k in range(len(factors)):
        least = LOW
        factor, offset = factors[k], offsets[k]
        for number in numbers:
            value = (factor * number + offset) >> HALF
            if value < least:
                least = value
        found[k] = least
    return found


@kernel
def probe(table: Array, keys: Array, first_band: int, found: Array) -> int:
    """Write the numbers of rows whose key agrees in a band to `found`; how many there are."""
    count = 0
    last = np.uint64(table.shape[1] - 1)
    for band in range(first_band, table.shape[0]):
        key = keys[band]
        slot = key & last
        while table[band, slot] != 0 and count < len(found):
            entry = table[band, slot]
            if entry >> HALF == key >> HALF:
                number = np.int64(entry & LOW) - 1
                known = False
                for at in range(count):
                    known = known or found[at] == number
                if not known:
                    found[count] = number
                    count += 1
            slot = (slot + ONE) & last
    return count


@kernel
def insert(table: Array, keys: Array, first_band: int, number: int, crowd: int) -> None:
    """Enter a row in every band, but for bands in which `crowd` rows have its key already."""
    last = np.uint64(table.shape[1] - 1)
    for band in range(first_band, table.shape[0]):
        key = keys[band]
        slot = key & last
        alike = 0
        while table[band, slot] != 0 and alike < crowd:
            if table[band, slot] >> HALF == key >> HALF:
                alike += 1
            slot = (slot + ONE) & last
        if alike < crowd:
            table[band, slot] = ((key >> HALF) << HALF) | np.uint64(number + 1)
