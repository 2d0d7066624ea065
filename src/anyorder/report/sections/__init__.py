"""The sections of a report, about one file each. A section without data becomes an `Absent`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyorder.report.runs import Material
from anyorder.report.sections import accuracy, canvas, models, order, placement, similarity
from anyorder.report.tables import Absent, Section

SECTIONS: tuple[Callable[[Material], Section | Absent | None], ...] = (
    models.section,
    accuracy.section,
    similarity.section,
    order.section,
    order.trees_section,
    placement.section,
    canvas.trace_section,
    accuracy.passk_section,
    canvas.sweep_section,
    canvas.policies_section,
    canvas.schedule_section,
)
"""In the order of the page. None: the section does not concern these runs."""


def all_sections(material: Material) -> Iterator[Section | Absent]:
    """Every section that concerns these runs, or the reason for its absence."""
    for make in SECTIONS:
        found = make(material)
        if found is not None:
            yield found
    yield from models.cost_sections(material)
