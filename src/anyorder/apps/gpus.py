"""GPUs by name: memory, and the arithmetic their makers state for dense matrix products.

Numbers are those of the data sheets (tensor cores without sparsity for bfloat16, ordinary cores for
float32 and float64, which is what torch uses unless told otherwise); memory is what the driver
reports. What a training reaches of them is its utilisation, which dry_run.py takes as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30
USABLE = 0.92
"""Of a GPU's memory: the rest is the driver's, the libraries' and what fragmentation leaves."""


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU."""

    name: str
    gib: float
    """Memory."""
    bfloat16: float
    """Operations in a second, in units of 10^12."""
    float32: float
    float64: float
    node: int = 8
    """How many usually stand in one machine."""

    @property
    def usable(self) -> float:
        """Bytes that a training can have."""
        return self.gib * GIB * USABLE

    def peak(self, dtype: str) -> float:
        """Operations in a second."""
        peaks = {"bfloat16": self.bfloat16, "float32": self.float32, "float64": self.float64}
        return peaks[dtype] * 1e12


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("b200", 179.0, 2250.0, 75.0, 37.0),
        Gpu("h200", 140.4, 989.0, 67.0, 34.0),
        Gpu("h100", 79.6, 989.0, 67.0, 34.0),
        Gpu("a100-80", 80.0, 312.0, 19.5, 9.7),
        Gpu("a100-40", 40.0, 312.0, 19.5, 9.7),
        Gpu("l40s", 45.0, 362.0, 91.6, 1.4),
        Gpu("a6000", 48.0, 155.0, 38.7, 0.6),
        Gpu("rtx4090", 24.0, 165.0, 82.6, 1.3),
    )
}


def find_gpu(name: str) -> Gpu:
    found = GPUS.get(name.lower())
    if found is None:
        raise ValueError(f"no GPU {name!r} here: choose one of {', '.join(GPUS)}")
    return found
