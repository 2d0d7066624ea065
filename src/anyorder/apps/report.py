"""`anyorder report`: run folders -> one HTML file, and its figures as files for papers.

It reads run folders only: no network is loaded and no program runs. report/ makes the sections;
this file assembles and writes them. It also has

    command            the command line of a job: every setting that is not a default, as a flag
    schedule_figure    the paper's appendix D for families with a clock (flexmdm's tokens,
                       flexlatent's segments), as shares of the final length: the schedules of
                       training, the shares in training, those that the sampler's schedules promise,
                       and those of stored traces; `schedule_drawing` draws it
"""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from anyorder import __version__
from anyorder.apps.jobs import ReportJob, flags_of, progress_bar
from anyorder.decode.growing import schedules
from anyorder.families.config import ClockOptions
from anyorder.files import replacing
from anyorder.model import Model
from anyorder.process.insertion import Clocks
from anyorder.process.schedule import Power
from anyorder.report.charts import Drawing, schedule, schedule_chart
from anyorder.report.findings import Finding, findings
from anyorder.report.page import Page, lead, opening, player_text, render
from anyorder.report.runs import Material, ReportRuns, comparisons, gather, shares_of
from anyorder.report.sections import all_sections
from anyorder.report.sections.models import glance
from anyorder.report.tables import Absent, Section
from anyorder.report.traces import TraceGroup, pack
from anyorder.trace import Trace

_POSITIONAL = ("model", "runs")


def command(
    verb: str, job: Any, options: Mapping[str, Any] | None = None, *, named: Sequence[str] = ()
) -> str:
    """A line such as `anyorder sample mdm --task stories`; `named` comes before the flags."""
    words = ["anyorder", verb, *named]
    settings: dict[str, Any] = {}
    for field in fields(job):
        value = getattr(job, field.name)
        if field.name in _POSITIONAL:
            words += [value] if isinstance(value, str) else map(str, value)
        elif not _is_default(field, value):
            settings[field.name] = value
    out = settings.pop("out", None)  # last, where a reader looks for it
    words += flags_of({**settings, **(options or {})})
    return shlex.join(words if out is None else [*words, "--out", str(out)])


def _is_default(field: Any, value: Any) -> bool:
    if field.default_factory is not MISSING:
        assert is_dataclass(value), f"{field.name} is no flag"
        return bool(value == field.default_factory())
    return bool(value == field.default)


@dataclass(frozen=True)
class Reported:
    """The files of a report, and its findings."""

    page: Path
    figures: tuple[Path, ...]
    findings: tuple[Finding, ...]
    sections: tuple[str, ...]
    absent: tuple[tuple[str, tuple[str, ...]], ...]
    """Sections without data: (title, the commands that would give it)."""
    material: Material
    """The runs and comparisons that the report is made from."""

    @property
    def summary(self) -> tuple[str, ...]:
        """The findings, one paragraph each."""
        return tuple(finding.text for finding in self.findings)

    def to_record(self) -> dict[str, Any]:
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
    """Write the report and return its path."""
    return report(job, progress=progress).page


def report(job: ReportJob, *, progress: bool = True) -> Reported:
    """Write the report and return what is in it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a report needs matplotlib: pip install 'anyorder[report]'")
    parts = 4  # comparing, packing, drawing, writing
    with progress_bar("reporting", len(job.runs) + parts, shown=progress) as advance:
        gathered = gather(
            job.runs, extraction=job.extraction, language=job.language, advance=advance
        )
        material = Material(gathered, tuple(comparisons(gathered)))
        advance(1)
        payload = pack(
            [
                TraceGroup(run.label, run.traces, run.verdicts, run.is_timed, run.code)
                for run in gathered
            ]
        )
        advance(1)
        found = list(all_sections(material))
        sections = [each for each in found if isinstance(each, Section)]
        absent = [each for each in found if isinstance(each, Absent)]
        found_out = findings(material)
        page = Page(
            title=job.title,
            lead=lead(material),
            summary=found_out,
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
        findings=tuple(found_out),
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


def _made(gathered: ReportRuns) -> list[tuple[str, str]]:
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


def schedule_figure(
    model: Model, traces: Sequence[Trace] = (), *, points: int = 101, **options: Any
) -> dict[str, dict[str, list[float]]]:
    """Curves by panel and name; `options` are the family's decoding options, as for `sample`."""
    if not issubclass(model.family.options, ClockOptions):
        raise ValueError(
            f"{model.family.name} inserts nothing: the figure needs a flexmdm or flexlatent model"
        )
    if points < 2:
        raise ValueError(f"{points} points make no curve: give at least 2")
    if any(trace.family != model.family.name for trace in traces):
        raise ValueError("traces of another family insert nothing: give traces of this model")
    time = torch.linspace(0, 1, points, dtype=torch.float64)
    trained = Clocks(Power(model.net.insertion_exponent), Power(model.net.unmasking_exponent))
    gamma, delta = schedules(model.family.choose(options), model.net)
    figure = {
        "schedules": {
            "time": time.tolist(),
            "insertion": trained.insertion.value(time).tolist(),
            "unmasking": trained.unmasking.value(time).tolist(),
        },
        "training": _shares(trained, time),
        "inference": _shares(Clocks(gamma, delta), time),
    }
    if traces:
        figure["sampled"] = shares_of(traces)
    return figure


def schedule_drawing(
    model: Model,
    traces: Sequence[Trace] = (),
    *,
    points: int = 101,
    name: str = "schedule",
    **options: Any,
) -> Drawing:
    """The figure, ready for a page (`inline`) or for files (`save`)."""
    figure = schedule_figure(model, traces, points=points, **options)
    return schedule(schedule_chart(figure, name))


def _shares(clocks: Clocks, time: torch.Tensor) -> dict[str, list[float]]:
    deleted, masked, clean = clocks.shares(time)
    return {
        "time": time.tolist(),
        "inserted": (1 - deleted).tolist(),
        "masked": masked.tolist(),
        "clean": clean.tolist(),
    }
