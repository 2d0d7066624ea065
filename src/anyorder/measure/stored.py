"""measures.json: what `anyorder measure` left in a run folder, read back.

It begins with a head (schema, the digest of the traces that were measured, versions); each other
entry is one measure's record. Who writes it is apps/measuring.py.
"""

from __future__ import annotations

import json
from typing import Any

from anyorder.trace import Run
from anyorder.trace.run import TRACES_FILE

MEASURES_FILE, SCHEMA = "measures.json", 1
_HEAD = ("schema", "traces", "versions")


def traces_digest(run: Run) -> str | None:
    """What says that measures are of these traces."""
    return run.card.files.get(TRACES_FILE)


def stored_measures(run: Run) -> dict[str, Any]:
    """The entries that are there, if they are of the same traces and format."""
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
