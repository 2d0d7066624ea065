"""`anyorder report`: run folders -> one HTML file, and its figures as files for papers.

Reads run folders and nothing else; no network is loaded and no program is run. What stands in the
report is report/; this file puts it together and writes it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder import __version__
from anyorder.apps.commands import command
from anyorder.apps.progress_bar import progress_bar
from anyorder.apps.report_job import ReportJob
from anyorder.files import replacing
from anyorder.report.findings import Finding, findings
from anyorder.report.likeness import comparisons
from anyorder.report.opening import opening
from anyorder.report.page import Page, render
from anyorder.report.runs import Gathered, gather
from anyorder.report.sections import all_sections
from anyorder.report.sections.glance import glance
from anyorder.report.sections.material import Material
from anyorder.report.sections.section import Absent, Section
from anyorder.report.traces import TraceGroup, pack
from anyorder.report.words import lead, player_text


@dataclass(frozen=True)
class Reported:
    """What was written, and what was found."""

    page: Path
    figures: tuple[Path, ...]
    findings: tuple[Finding, ...]
    sections: tuple[str, ...]
    absent: tuple[tuple[str, tuple[str, ...]], ...]
    """(title, the commands that would give it)."""
    material: Material
    """What it was made from."""

    @property
    def summary(self) -> tuple[str, ...]:
        """The findings, a paragraph each."""
        return tuple(finding.text for finding in self.findings)

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "report": str(self.page),
            "figures": [str(path) for path in self.figures],
            "summary": list(self.summary),
            "sections": list(self.sections),
            "absent": [
                {"title": title, "commands": list(commands)} for title, commands in self.absent
            ],
            "runs": [run.label for run in self.material.gathered],
            "samples": self.material.gathered.samples,
        }


def write_report(job: ReportJob, *, progress: bool = True) -> Path:
    """Write the report and return where it is."""
    return report(job, progress=progress).page


def report(job: ReportJob, *, progress: bool = True) -> Reported:
    """Write the report and tell what it holds."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a report needs matplotlib: pip install 'anyorder[report]'")
    parts = 4  # comparing, packing, drawing, writing
    with progress_bar("reporting", len(job.runs) + parts, shown=progress) as advance:
        gathered = gather(job.runs, extraction=job.extraction, advance=advance)
        material = Material(gathered, tuple(comparisons(gathered)))
        advance(1)
        payload = pack(
            [TraceGroup(run.label, run.traces, run.verdicts, run.is_timed) for run in gathered]
        )
        advance(1)
        found = list(all_sections(material))
        sections = [each for each in found if isinstance(each, Section)]
        absent = [each for each in found if isinstance(each, Absent)]
        told = findings(material)
        page = Page(
            title=job.title,
            lead=lead(material),
            summary=told,
            glance=glance(material),
            sections=sections,
            absent=absent,
            payload=payload,
            player_text=player_text(material),
            opening=opening(gathered.runs),
            made=_made(gathered),
            command=command("report", job),
        )
        text = render(page)
        advance(1)
        job.out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(job.out) as file:
            file.write(text.encode())
        figures = _figures(job, sections) if job.figures else ()
        advance(1)
    return Reported(
        page=job.out,
        figures=figures,
        findings=tuple(told),
        sections=tuple(each.title for each in sections),
        absent=tuple((each.title, each.commands) for each in absent),
        material=material,
    )


def _figures(job: ReportJob, sections: list[Section]) -> tuple[Path, ...]:
    folder = job.out.with_name(f"{job.out.stem}_figures")
    folder.mkdir(exist_ok=True)
    return tuple(
        path
        for section in sections
        for figure in section.figures
        if figure.drawing is not None
        for path in figure.drawing.save(folder)
    )


def _made(gathered: Gathered) -> list[tuple[str, str]]:
    cards = [run.run.card for run in gathered]
    torch = sorted({card.versions["torch"] for card in cards if "torch" in card.versions})
    seeds = sorted({seed for card in cards for seed in card.seeds})
    devices = sorted({card.device for card in cards if card.device})
    days = sorted({card.created[:10] for card in cards})
    rows = {
        "anyorder": __version__,
        "torch": ", ".join(torch),
        "device": ", ".join(devices),
        "seeds": ", ".join(map(str, seeds)),
        "sampled": " to ".join(dict.fromkeys([days[0], days[-1]])),
    }
    return [(name, value) for name, value in rows.items() if value]
