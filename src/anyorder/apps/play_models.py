"""The models of the playground: what can be chosen, and the few that are kept in memory.

A model is a shipped name or a folder, as everywhere; `load` reads safetensors and JSON only. One
is loaded at a time, so that two tabs that ask for the same one load it once.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from anyorder.families import FAMILIES
from anyorder.model import CONFIG_FILE, SHIPPED, WEIGHTS_FILE, Model, load, shipped_folder

KEPT = 3
FOLDER = Path("runs")
DEPTH = 2
"""How many folders below `runs/` a model may be to be found."""


@dataclass(frozen=True)
class Known:
    """A model that can be chosen."""

    name: str
    family: str
    shipped: bool

    @property
    def any_order(self) -> bool:
        """Whether there is anything to watch but left to right."""
        return self.family in FAMILIES and not FAMILIES[self.family].causal


class Shelf:
    """Loaded models by name; the one that was not used for longest goes first."""

    def __init__(self, named: str | None = None, *, device: str = "cpu", kept: int = KEPT) -> None:
        self.named, self.device, self.kept = named, device, kept
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, tuple[int, Model]] = OrderedDict()

    def known(self) -> list[Known]:
        """The model that was named first, then the shipped ones, then those below `runs/`."""
        # In the order of the families' table: the plainest that may choose its order comes first.
        places = {family: number for number, family in enumerate(FAMILIES)}
        shipped = sorted(
            _models_in(SHIPPED, 3), key=lambda each: (places.get(each[1], len(places)), each[0])
        )
        found = {name: Known(name, family, True) for name, family in shipped}
        for name, family in _models_in(FOLDER, DEPTH):
            path = (FOLDER / name).as_posix()
            found.setdefault(path, Known(path, family, False))
        if self.named is not None:
            model = self.get(self.named)
            first = found.pop(self.named, Known(self.named, model.family.name, False))
            found = {first.name: first, **found}
        return list(found.values())

    def get(self, name: str) -> Model:
        """The model, loaded unless it is there as its folder holds it now."""
        with self._lock:
            stamp = _stamp(name)
            there = self._loaded.pop(name, None)
            if there is None or there[0] != stamp:
                there = stamp, load(name, device=self.device)
            self._loaded[name] = there
            while len(self._loaded) > self.kept:
                self._loaded.popitem(last=False)
            return there[1]


def _stamp(name: str) -> int:
    """When the weights were written; 0 where there are none, which `load` will explain."""
    for folder in (Path(name), shipped_folder(name)):
        weights = folder / WEIGHTS_FILE
        if weights.is_file():
            return weights.stat().st_mtime_ns
    return 0


def _models_in(root: Path, depth: int) -> list[tuple[str, str]]:
    """(name, family) of the complete model folders below `root`."""
    found = []
    for level in range(1, depth + 1):
        for weights in root.glob("/".join(["*"] * level) + f"/{WEIGHTS_FILE}"):
            family = _family(weights.with_name(CONFIG_FILE))
            if family is not None:
                found.append((weights.parent.relative_to(root).as_posix(), family))
    return sorted(found)


def _family(config: Path) -> str | None:
    """What a folder says it is; None where it does not, and choosing it would explain why."""
    try:
        record = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return None
    family = record.get("family") if isinstance(record, dict) else None
    return family if isinstance(family, str) else None
