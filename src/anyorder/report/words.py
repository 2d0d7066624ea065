"""What the page says around its sections: the lead, and what to do with the player.

Not here: the findings (findings.py), the sections (sections/), the terms (glossary.py).
"""

from __future__ import annotations

from anyorder.report.findings import listed
from anyorder.report.glossary import TERMS
from anyorder.report.labels import TASKS
from anyorder.report.sections.material import Material
from anyorder.trace import Event, Trace


def lead(material: Material) -> str:
    """What this page is about, in one paragraph."""
    gathered = material.gathered
    titles = dict.fromkeys(run.title for run in gathered)
    models = listed([f"[[{title}]]" if title in TERMS else title for title in titles])
    tasks = "; ".join(map(_asked, gathered.tasks)) or "imported samples"
    return (
        "Some language models may write a text in any order. Do they, and what does it change? "
        f"This page looks at {_many(gathered.samples, 'program')} by {models} for "
        f"{_many(gathered.problems, 'problem')} ({tasks}), recorded [[token]] by token as they "
        "were written."
    )


def player_text(material: Material) -> list[str]:
    """What to do with the player."""
    told = [
        "Every program of this report can be watched as it was written. A grey box is a [[slot]] "
        "that is still [[mask|masked]]; a token appears where and when it was "
        "[[reveal|revealed]]; the [[tree|statement tree]] beside it fills up.",
        "Press play, drag the slider, or use the arrow keys; press `?` for all keys. The list at "
        "the top of each side has every sample; what is shown first is the longest program that "
        "both sides got right, not a typical one.",
    ]
    events = [each for run in material.gathered for trace in run.traces for each in _events(trace)]
    if any(event.piece is None for event in events):
        told.append("Some tokens are [[remask|remasked]]: masked again, and then written anew.")
    elif events:
        told.append("Some tokens change after they were written, until the last step.")
    return told


def _events(trace: Trace) -> tuple[Event, ...]:
    """What places showed before their last reveal."""
    return tuple(trace.events or ())


def _asked(task: str) -> str:
    """A task in a few words; its name says it where we know none."""
    base = task.partition(":")[0]
    named = f"[[{task}]]" if task in TERMS else f"`{task}`"
    return f"{named}, {TASKS[base]}" if base in TASKS else named


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
