"""The sections of a report, about one file each. A section without data becomes an `Absent`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyorder.report.runs import Material
from anyorder.report.sections import (
    accuracy,
    insertion,
    models,
    order,
    placement,
    segments,
    similarity,
)
from anyorder.report.sections import models as cost
from anyorder.report.tables import Absent, Section

SECTIONS: tuple[Callable[[Material], Section | Absent | None], ...] = (
    models.section,
    accuracy.section,
    similarity.section,
    order.section,
    placement.section,
    segments.trace_section,
    accuracy.passk_section,
    insertion.sweep_section,
    segments.policies_section,
    insertion.schedule_section,
)
"""In the order of the page. None: the section does not concern these runs."""


def all_sections(material: Material) -> Iterator[Section | Absent]:
    """Every section that concerns these runs, or the reason for its absence."""
    for make in SECTIONS:
        found = make(material)
        if found is not None:
            yield found
    yield from cost.sections(material)
