"""What to report: the plain description of a report, quick to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anyorder.apps.jobs import Name

TITLE = "In which order do these models write?"


@dataclass(frozen=True)
class ReportJob:
    """What to report, and where to."""

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """Run folders; the report has what they allow, and says what would give the rest."""
    out: Path = Path("report.html")
    """The file; its figures go beside it, to <name>_figures."""
    title: str = TITLE
    """The heading of the page."""
    extraction: Name = None
    """Of which grading, where a run has several, by its extraction, task or name."""
    figures: bool = True
    """Whether figures are also written as PNG and PDF files."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("name at least one run folder")
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--out {self.out}: name a file that ends in .html")
        if self.out.is_dir():
            raise ValueError(f"--out {self.out} is a folder: name a file")
