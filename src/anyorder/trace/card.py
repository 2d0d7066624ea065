"""The run card (`run.json`): all that is needed to say where a run's numbers come from.

Resolved configuration, digests of model, data and vocabulary, versions, device and seeds, and the
digests of the files. Two cards describe the same run when they agree in `IDENTITY`; the rest
(versions, time) may differ when a run is resumed. Packages are asked for their version, never
imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anyorder.files import creating, replacing

VERSION = 1
RUNNING, COMPLETE = "running", "complete"
PACKAGES = (
    *("anyorder", "torch", "numpy", "pyarrow", "safetensors", "tokenizers", "transformers"),
    *("numba", "rapidfuzz"),
)
SHOWN_DIGEST, SHOWN_VALUE = 8, 60
IDENTITY = ("config", "model_digest", "data_digest", "vocab_digest", "device", "dtype", "seeds")


def installed_versions() -> dict[str, str]:
    """The versions of the packages that shape a run, as far as they are installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@dataclass(frozen=True)
class RunCard:
    """What was run, on what, and what came out."""

    command: str
    """The command line, or the function, that made the run."""
    config: dict[str, Any]
    """The resolved configuration: JSON values only."""
    model_digest: str | None = None
    data_digest: str | None = None
    vocab_digest: str | None = None
    device: str | None = None
    dtype: str | None = None
    seeds: tuple[int, ...] = ()
    versions: dict[str, str] = field(default_factory=installed_versions)
    python: str = field(default_factory=platform.python_version)
    platform: str = field(default_factory=platform.platform)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    status: str = RUNNING
    parts: tuple[int, ...] = ()
    """The parts that were merged into traces.parquet; empty while running."""
    files: dict[str, str] = field(default_factory=dict)
    """File name -> sha256, of the files that belong to the finished run."""
    schema: int = VERSION
    agreement: dict[str, Any] | None = None
    """How the samples compare with those of the exact decoder, where one was approximated; a card
    without it has no such entry."""

    def __post_init__(self) -> None:
        for name, fits in _CHECKS.items():
            if not fits(getattr(self, name)):
                raise ValueError(f"run card: field {name!r}: {getattr(self, name)!r} does not fit")
        try:
            # Through JSON and back, so that a card equals what is read from its file.
            config = json.loads(json.dumps(self.config, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"run card: field 'config': {error}: give strings, finite numbers, booleans, "
                "null, lists and dicts only"
            ) from None
        object.__setattr__(self, "config", config)
        object.__setattr__(self, "seeds", tuple(self.seeds))
        object.__setattr__(self, "parts", tuple(self.parts))

    @classmethod
    def read(cls, path: Path) -> RunCard:
        """The card in a file; ValueError names the file and what is wrong with it."""
        try:
            record = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ValueError(
                f"{path} is missing: name a run folder, made by `anyorder sample` or "
                "`anyorder import`"
            ) from None
        except OSError as error:
            raise ValueError(
                f"{path} cannot be read ({error.strerror}): restore the file, or choose another "
                "folder"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} is truncated or not JSON ({error}): restore it, or make the run again"
            ) from None
        if not isinstance(record, dict) or type(record.get("schema")) is not int:
            raise ValueError(f"{path} is not a run card: name a run folder made by anyorder")
        if record["schema"] != VERSION:
            raise ValueError(
                f"{path} has card schema {record['schema']}, this anyorder reads {VERSION}: "
                "use the version of anyorder that wrote it"
            )
        names = {item.name for item in fields(cls)}
        lacking = names - set(record) - {"agreement"}
        for kind, wrong in (("lacks", lacking), ("has unknown", set(record) - names)):
            if wrong:
                raise ValueError(
                    f"{path} {kind} {', '.join(sorted(wrong))}: restore the original file"
                )
        try:
            return cls(**record)
        except ValueError as error:
            raise ValueError(f"{path}: {error}: restore the original file") from None

    def write(self, path: Path, *, new: bool = False) -> None:
        """Write the card, whole or not at all; `new`: FileExistsError where there is one."""
        with (creating if new else replacing)(path) as file:
            file.write(json.dumps(self._record(), indent=2, ensure_ascii=False).encode() + b"\n")

    def _record(self) -> dict[str, Any]:
        record = asdict(self)
        if self.agreement is None:
            del record["agreement"]
        return record

    def completed(self, parts: list[int], files: dict[str, str]) -> RunCard:
        """The same card once its traces are merged."""
        return replace(self, status=COMPLETE, parts=tuple(parts), files={**self.files, **files})

    def differences(self, other: RunCard) -> list[str]:
        """Where another card is not of the same run: "field (ours stored, theirs now)" each."""
        ours, theirs = _flat(self._identity()), _flat(other._identity())
        lines = []
        for name in sorted({*ours, *theirs}):
            left, right = ours.get(name, "nothing"), theirs.get(name, "nothing")
            if left != right:
                lines.append(f"{name} ({_short(name, left)} stored, {_short(name, right)} now)")
        return lines

    def identity(self) -> str:
        """A digest of what makes this run this run, in hexadecimal."""
        text = json.dumps(_flat(self._identity()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _identity(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in IDENTITY}


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Nested dicts as dotted names with JSON values, so 1, 1.0 and true stay apart."""
    if isinstance(value, dict) and value:
        flat = {}
        for key, inner in value.items():
            flat.update(_flat(inner, f"{name}.{key}" if name else str(key)))
        return flat
    return {name: json.dumps(value, sort_keys=True)}


def _short(name: str, value: str) -> str:
    """A JSON value for a message: the beginning of a digest, at most a line of another."""
    if name.endswith("digest"):
        return value.strip('"')[:SHOWN_DIGEST]
    return value if len(value) <= SHOWN_VALUE else f"{value[: SHOWN_VALUE - 3]}..."


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_optional_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_integers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(item) is int for item in value)


def _is_text_dict(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, str) for key, item in value.items()
    )


_CHECKS = {
    **dict.fromkeys(("command", "python", "platform", "created"), _is_text),
    **dict.fromkeys(("model_digest", "data_digest", "vocab_digest"), _is_optional_text),
    **dict.fromkeys(("device", "dtype"), _is_optional_text),
    **dict.fromkeys(("seeds", "parts"), _is_integers),
    **dict.fromkeys(("versions", "files"), _is_text_dict),
    "config": lambda value: isinstance(value, dict),
    "agreement": lambda value: value is None or isinstance(value, dict),
    "status": lambda value: value in (RUNNING, COMPLETE),
    "schema": lambda value: value == VERSION,
}
