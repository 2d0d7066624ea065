"""Two JSON files read back: a run's measures.json, and the paper's tables (published.json).

measures.json begins with a head (schema, the digest of the measured traces, versions); each other
entry is one measure's record. apps/measure.py writes it.

The paper's tables are printed beside one's own numbers. Kinds: `similarity` (appendix B), `order`
(appendix D, any-order metrics), `pass_at_k` (appendix D, insertion temperature) and `segments`
(appendix E, LatentMDM on GSM8K). Policies carry our names: the paper's Top-K is `confidence`.
Nothing here claims that two protocols are alike.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from anyorder.checks import refuse_unknown
from anyorder.trace import Run
from anyorder.trace.run import TRACES_FILE

MEASURES_FILE, SCHEMA = "measures.json", 1
_HEAD = ("schema", "traces", "versions")


def traces_digest(run: Run) -> str | None:
    """The digest that ties measures to their traces."""
    return run.card.files.get(TRACES_FILE)


def stored_measures(run: Run) -> dict[str, Any]:
    """The stored entries; none if they are of other traces or of another format."""
    path = run.folder / MEASURES_FILE
    try:
        record = dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, and measure again") from None
    if (record.get("schema"), record.get("traces")) != (SCHEMA, traces_digest(run)):
        return {}
    return {name: entry for name, entry in record.items() if name not in _HEAD}


KINDS = ("similarity", "order", "pass_at_k", "segments")


@cache
def _tables() -> dict[str, Any]:
    return dict(json.loads(files(__package__).joinpath("published.json").read_text("utf-8")))


def source() -> str:
    """The title of the paper."""
    return str(_tables()["source"])


def published(kind: str, **where: Any) -> list[dict[str, Any]]:
    """The rows of one kind whose columns have the given values."""
    refuse_unknown("published table", kind, KINDS)
    rows = _tables()[kind]
    for column in where:
        if not any(column in row for row in rows):
            known = sorted({name for row in rows for name in row})
            raise ValueError(f"{kind} has no column {column!r}: it has {', '.join(known)}")
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]
