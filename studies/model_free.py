"""Runs without a network: confidence decoding on posteriors counted from renderings.

Such a run shows what the policy does when the posterior is right. It uses the ordinary mdm decoder
with one slot per step, on held-out problems of `stories` at any dial. The canvas is filled after
the program (left) or before it (right). The result is an ordinary run folder, so every measure
applies to it; placement asks the same counted posteriors again.

Not here: the posteriors (renderings.py), and the tables of such runs (questions/dial.py).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from anyorder import Model, Run, wrap
from anyorder.apps.sample import SamplingTask
from anyorder.bench.tasks.stories import Stories
from anyorder.data.corpora.stories import core, stories_digest, stories_vocab
from anyorder.families.mdm import decode as mdm
from anyorder.families.mdm.config import MdmOptions
from anyorder.files import alone_in
from anyorder.model import Request
from anyorder.trace import RunCard
from studies.free_setting import CANVAS, FreeSetting
from studies.renderings import Rendered, renderings_of
from studies.study_job import study_command

BATCH = 20
"""Problems in one part of a run."""


def options_of(setting: FreeSetting) -> MdmOptions:
    """The resolved decoding options."""
    return mdm.resolve(MdmOptions(policy="confidence", ties=setting.ties))


def free_model(setting: FreeSetting) -> Model:
    """The counted posteriors of the setting's problems, as a model of family mdm."""
    vocab, config = stories_vocab(), setting.config
    subject = _subject(setting)
    known = {}
    for index, problem in enumerate(subject.problems):
        prompt = tuple(vocab.encode(problem.prompt))
        if prompt not in known:
            found = core(config, index)
            known[prompt] = renderings_of(found, config, setting.draws, CANVAS, setting.align)
    return wrap(Rendered(known, vocab), vocab, max_new_tokens=CANVAS)


def sample_free(setting: FreeSetting, folder: Path) -> Run:
    """Sample the run in `folder`, or the rest of it."""
    subject, options = _subject(setting), options_of(setting)
    card = RunCard(
        command=study_command("dial"),
        config={
            "setting": asdict(setting),
            "family": "mdm",
            "task": "stories",
            "limit": setting.problems,
            "options": asdict(options),
            "trained_on": {"source": "stories", **_dials(setting)},
        },
        data_digest=stories_digest(setting.config),
        vocab_digest=stories_vocab().digest(),
        device="cpu",
        seeds=(setting.seed,),
    )
    with alone_in(folder):
        run = Run.create(folder, card)
        if not run.complete:
            model = free_model(setting)
            requests = _requests(model, subject)
            starts = range(0, len(requests), BATCH)
            parts = [requests[start : start + BATCH] for start in starts]
            for number in sorted(set(range(len(parts))) - set(run.done_parts())):
                traces = model.decode(parts[number], options, setting.seed)
                run.append(number, list(map(subject.with_program, traces)))
            run.finish()
    return run


def _dials(setting: FreeSetting) -> dict[str, float]:
    return {"layout": setting.layout, "wording": setting.wording}


def _subject(setting: FreeSetting) -> SamplingTask:
    return SamplingTask.of(Stories(setting.config), setting.problems)


def _requests(model: Model, subject: SamplingTask) -> list[Request]:
    return [
        Request(
            problem.task_id,
            0,
            problem.prompt,
            model.canvas(problem.prompt),
            problem.task_id,
            problem.entry_point,
        )
        for problem in subject.problems
    ]
