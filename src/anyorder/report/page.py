"""The one-file HTML report: sections, figures, tables, glossary and the trace player in one page.

Style, script, drawings and traces are all inline. Light and dark follow the reader's system or the
button. This file also holds the lead, the text above the player, and the
choice of the samples that the player shows first.

Not here: the findings (findings.py), the sections (sections/), the terms (glossary.py), packed
traces (traces.py).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from anyorder.bench.checks import PASSED
from anyorder.families.descriptions import DESCRIPTIONS
from anyorder.report import charts, player
from anyorder.report.findings import Finding, listed
from anyorder.report.glossary import TERMS
from anyorder.report.runs import Material, RunFacts, main_runs
from anyorder.report.tables import TASKS, Absent, Figure, Section, Table, to_html
from anyorder.report.traces import embed
from anyorder.trace import Trace

_MARK = re.compile(r"\[\[([^|\]]+)(?:\|([^\]]+))?\]\]|`([^`]+)`|\*\*([^*]+)\*\*")


@dataclass(frozen=True)
class PlayerOpening:
    """The first view of the player: sample numbers in the payload, and the step."""

    sample: int = 0
    compare: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Page:
    """The content of a report, before it becomes HTML."""

    title: str
    lead: str
    """One paragraph below the title."""
    summary: Sequence[Finding]
    glance: Table
    """The main numbers of the main runs."""
    sections: Sequence[Section]
    absent: Sequence[Absent]
    payload: Mapping[str, Any]
    """The traces, packed (traces.py)."""
    player_text: Sequence[str]
    opening: PlayerOpening = field(default_factory=PlayerOpening)
    made: Sequence[tuple[str, str]] = ()
    """How the report was made: (name, value) for the foot of the page."""
    command: str = ""


def render(page: Page) -> str:
    """The page as HTML that loads nothing from elsewhere."""
    text = _Text()
    # The glossary lists the terms that `text` has met, so all marked text must come before it.
    # The template puts the payload last: the page is painted before the script unpacks it.
    lead = text(page.lead)
    summary = "".join(_finding(each, text) for each in page.summary)
    glance = _table(page.glance, text, "The main numbers of the main runs")
    watch = "".join(f"<p>{text(each)}</p>" for each in page.player_text)
    body = "".join(_section(section, text, page.command) for section in page.sections)
    return Template(_asset("page.html")).substitute(
        title=escape(page.title),
        style=f"{player.style()}\n{charts.style()}\n{_asset('page.css')}",
        contents=_contents(page),
        lead=lead,
        summary=summary,
        glance=glance,
        watch=watch,
        sections=body,
        absent=_absent(page.absent, text),
        glossary=_glossary(text.used),
        made=_made(page),
        opening=json.dumps(asdict(page.opening)),
        payload=embed(page.payload),
        script=f"{player.script()}\n{_asset('page.js')}",
    )


class _Text:
    """Marked text to HTML. A term links to the glossary, once in each paragraph.

    Texts may quote run folders (prompts, names, commands), so everything is escaped.
    """

    def __init__(self) -> None:
        self.used: dict[str, None] = {}

    def __call__(self, text: str) -> str:
        seen: set[str] = set()
        parts, end = [], 0
        for found in _MARK.finditer(text):
            parts.append(escape(text[end : found.start()], quote=False))
            parts.append(self._mark(found, seen))
            end = found.end()
        return "".join([*parts, escape(text[end:], quote=False)])

    def _mark(self, found: re.Match[str], seen: set[str]) -> str:
        term, words, code, strong = found.groups()
        if code is not None:
            return f"<code>{escape(code, quote=False)}</code>"
        if strong is not None:
            return f"<strong>{escape(strong, quote=False)}</strong>"
        assert term in TERMS, f"the glossary has no {term!r}"
        self.used[term] = None
        shown = escape(words or term, quote=False)
        if term in seen:
            return shown
        seen.add(term)
        # Quotes too, because this is an attribute.
        means = escape(f"{TERMS[term].title}: {TERMS[term].means}")
        return f'<a class="term" href="#{_anchor(term)}" data-means="{means}">{shown}</a>'


def plain_text(text: str) -> str:
    """Marked text without its marks."""
    return _MARK.sub(lambda found: next(each for each in found.group(2, 1, 3, 4) if each), text)


def _anchor(term: str) -> str:
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower().replace("+", "-plus")).strip("-")


def _contents(page: Page) -> str:
    entries = [("summary", "In short"), ("watch", "Watch it write")]
    entries += [(section.slug, section.short) for section in page.sections]
    entries += [("absent", "Not in this report")] if page.absent else []
    entries += [("glossary", "Words"), ("made", "How it was made")]
    return "".join(f'<li><a href="#{slug}">{escape(name)}</a></li>' for slug, name in entries)


def _finding(finding: Finding, text: _Text) -> str:
    numbers = "".join(f"<li>{text(each)}</li>" for each in finding.details)
    return (
        f'<li><p class="says"><strong>{escape(finding.topic)}.</strong> {text(finding.says)}</p>'
        f'<ul class="numbers">{numbers}</ul></li>'
    )


def _section(section: Section, text: _Text, command: str) -> str:
    paragraphs = "".join(f"<p>{text(each)}</p>" for each in section.text)
    figures = "".join(_figure(figure, text, command) for figure in section.figures)
    return (
        f'<section id="{section.slug}"><h2>{escape(section.title)}</h2>'
        f'<div class="prose">{paragraphs}</div>{figures}</section>'
    )


def _figure(figure: Figure, text: _Text, command: str) -> str:
    drawn = ""
    if figure.drawing is not None:
        drawn = f'<div class="drawing">{figure.drawing.inline()}</div>'
    caption = f"<p>{text(figure.caption)}</p>" if figure.caption else ""
    tables = "".join(_table(table, text, figure.title) for table in figure.tables)
    return (
        f"<figure><h3>{text(figure.title)}</h3>{drawn}<figcaption>{caption}</figcaption>"
        f"{tables}{_commands((*figure.commands, command))}</figure>"
    )


def _table(table: Table, text: _Text, about: str) -> str:
    named = ", ".join(each for each in (about, table.title) if each)
    return to_html(table, text, about=plain_text(named))


def _commands(commands: Sequence[str]) -> str:
    """The verbs that made the figure; all commands, in order, when it is unfolded."""
    counts = Counter(" ".join(command.split()[:2]) for command in commands)
    verbs = ", ".join(
        f"<code>{escape(verb, quote=False)}</code>" + (f" ({number} times)" if number > 1 else "")
        for verb, number in counts.items()
    )
    lines = "\n".join(map(_command, commands))
    return (
        f'<details class="commands"><summary><span>Made by {verbs}</span></summary>'
        f"<pre>{lines}</pre></details>"
    )


def _command(command: str) -> str:
    # page.css keeps a flag on one line.
    shown = escape(command, quote=False)
    return re.sub(r"(?<!\S)--?[a-z][a-z-]*", r'<span class="flag">\g<0></span>', shown)


def _absent(absent: Sequence[Absent], text: _Text) -> str:
    if not absent:
        return ""
    items = "".join(
        f"<li><strong>{escape(each.title)}</strong> {text(each.why)}"
        + "".join(f"<pre>{_command(command)}</pre>" for command in each.commands)
        + "</li>"
        for each in absent
    )
    return (
        '<section id="absent"><h2>What is not in this report</h2><div class="prose">'
        "<p>These runs do not hold the data for the following; the commands would give it. "
        f'Then write the report again.</p></div><ul class="absent">{items}</ul></section>'
    )


def _glossary(used: Iterable[str]) -> str:
    known = set(used)
    return "".join(
        f'<div id="{_anchor(name)}"><dt>{escape(term.title)}</dt>'
        f"<dd>{escape(term.means, quote=False)}</dd></div>"
        for name, term in sorted(TERMS.items(), key=lambda item: item[1].title.lower())
        if name in known
    )


def _made(page: Page) -> str:
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in page.made
    )
    return f"<dl>{rows}</dl><pre>{_command(page.command)}</pre>"


@cache
def _asset(name: str) -> str:
    return (files("anyorder.report") / "page_assets" / name).read_text(encoding="utf-8")


PROGRESS = 0.4
"""The share of steps at which the player opens: some tokens are written, some are masked."""


def opening(runs: Sequence[RunFacts]) -> PlayerOpening:
    """The samples that the player shows first, by their numbers in the payload.

    Two models that write the same problem, as in the paper's argument: the first two families in
    the order of their descriptions, such as MDM and FlexMDM. With one family, one sample.
    """
    main = {run.family: run for run in reversed(main_runs(list(runs), len(runs)))}
    main |= {family: main_runs([r for r in runs if r.family == family], 1)[0] for family in main}
    # Families with one order come last: they have the least to show.
    known = sorted(DESCRIPTIONS.values(), key=lambda each: each.left_to_right)
    shown = [main[each.name] for each in known if each.name in main]
    left = shown[0] if shown else runs[0]
    right = shown[1] if len(shown) > 1 else None
    first = {run.name: sum(len(r.traces) for r in runs[:at]) for at, run in enumerate(runs)}
    if right is None:
        return PlayerOpening(first[left.name], None, _step(left.traces[0]))
    one, two = _pair(left, right)
    return PlayerOpening(
        first[left.name] + one,
        first[right.name] + two,
        max(_step(left.traces[one]) or 0, _step(right.traces[two]) or 0),
    )


def _pair(left: RunFacts, right: RunFacts) -> tuple[int, int]:
    """Two samples of one problem, as places in their runs; preferably one that both solved."""
    places = {trace.task_id: at for at, trace in reversed(list(enumerate(right.traces)))}
    pairs = [
        (at, places[trace.task_id])
        for at, trace in enumerate(left.traces)
        if trace.task_id in places and right.traces[places[trace.task_id]].prompt == trace.prompt
    ]
    solved = [
        (one, two)
        for one, two in pairs
        if _passed(left, left.traces[one]) and _passed(right, right.traces[two])
    ]
    # The longest solved program has the most to show.
    if solved:
        return max(solved, key=lambda pair: len(left.traces[pair[0]].text))
    return pairs[0] if pairs else (0, 0)


def _passed(run: RunFacts, trace: Trace) -> bool:
    return run.verdicts.get((trace.task_id, trace.sample)) == PASSED


def _step(trace: Trace) -> int | None:
    return None if trace.steps is None else round(PROGRESS * trace.steps)


def lead(material: Material) -> str:
    """The paragraph below the title: the question, and the data behind the answers."""
    gathered = material.gathered
    titles = dict.fromkeys(run.title for run in gathered)
    models = listed([f"[[{title}]]" if title in TERMS else title for title in titles])
    tasks = "; ".join(map(_task_in_words, gathered.tasks)) or "imported samples"
    return (
        "Some language models may write a text in any order. Do they, and what does it change? "
        f"This page looks at {_many(gathered.samples, gathered.what)} by {models} for "
        f"{_many(gathered.problems, 'problem')} ({tasks}), recorded [[token]] by token as they "
        "were written."
    )


def player_text(material: Material) -> list[str]:
    """Instructions above the player."""
    gathered = material.gathered
    tree = "; the [[tree|statement tree]] beside it fills up"
    first = (
        "; what is shown first is the longest program that both sides got right, not a typical one"
    )
    text = [
        f"Every {gathered.what} of this report can be watched as it was written. A grey box is a "
        "[[slot]] that is still [[mask|masked]]; a token appears where and when it was "
        f"[[reveal|revealed]]{tree if any(run.code for run in gathered) else ''}.",
        "Press play, drag the slider, or use the arrow keys; press `?` for all keys. The list at "
        f"the top of each side has every sample{first if gathered.graded() else ''}.",
    ]
    traces = (trace for run in material.gathered for trace in run.traces)
    changed = (trace for trace in traces if trace.events or trace.ghosts)
    kinds = {change.kind for trace in changed for change in trace.changes()}
    if "mask" in kinds:
        text.append(
            "Some tokens are [[remask|remasked]]: masked again, and then written once more."
        )
    elif "edit" in kinds:
        text.append("Some tokens change after they were written, until the last step.")
    if "delete" in kinds:
        text.append("Some slots are deleted: struck out for one step, and then gone.")
    return text


def _task_in_words(task: str) -> str:
    """A task in a few words, or its name alone if it is unknown."""
    base = task.partition(":")[0]
    named = f"[[{task}]]" if task in TERMS else f"`{task}`"
    return f"{named}, {TASKS[base]}" if base in TASKS else named


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
