"""The plan of a race: whether it is fair, its entrants, points and lanes. All refusals are here.

A race writes nothing before its plan is complete. A folder holds one race: models, weights, data
and settings. The same command continues it; another race in the same folder is refused.

**Fairness.** Parameters and training texts must agree within 2 %, the data exactly. The training
texts are in card.json if that describes these weights (shipped models), else steps x batch of the
recipe, plus the texts of the model that it began with. Only a known difference is a reason to
refuse; what is unknown is reported. Texts are compared, not tokens, because families make different
numbers of predictions of one text (a canvas is filled with EOS, an insertion model sees a part).

**Points.** A *point* is a set of decoding options with its own cost: steps, or segments a step. A
family's description lists its points; `--grid` overrides them. Every point runs in two ways:

    one        one attempt at temperature 0, which is greedy for ar, mdm and latentmdm; the others
               draw noise there too
    several    k attempts at the race's temperature, the same for every family

All other options have the family's defaults; a model with a planner head uses policy planner.

**Lanes.** A *lane* is an entrant at one point in one way. Its folder is a run of `anyorder sample`
with batch 1, so `grade`, `measure`, `report` and `reproduce` accept it.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from anyorder.apps.infilling import can_fill
from anyorder.apps.jobs import RaceJob, SampleJob
from anyorder.apps.race.beside import Gap, gaps_of, usable_gaps
from anyorder.apps.report import command
from anyorder.apps.sample import SamplingTask, plan_run
from anyorder.bench.tasks import Task, corpus_task, find_task
from anyorder.families.descriptions import DESCRIPTIONS, describe
from anyorder.families.family import Family
from anyorder.files import LOCK_FILE, sha256_of, write_json
from anyorder.model import CONFIG_FILE, WEIGHTS_FILE, Model, Request, load, shipped_folder
from anyorder.recipes.demo import DEMOS, MODELS, TRAILS
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.run import CARD_FILE
from anyorder.training.checkpoint import checkpoints, read_state
from anyorder.training.loop import ABOUT, CHECKPOINTS

TOLERANCE = 0.02
CORPUS = ("source", "layout", "wording", "seed")
"""The recipe fields that identify the training texts; a missing one is reported as unknown."""
COMPARED = (
    *CORPUS,
    *("state_layout", "split", "prompt_field", "answer_field", "documents", "canvas", "trails"),
)
"""All fields that may make texts differ, compared between the recipes that have them."""
SAVED_CARD = "card.json"


@dataclass(frozen=True)
class Facts:
    """An entrant's size and training, as far as its files say."""

    name: str
    family: str
    parameters: int
    texts: int | None
    """Training texts, including those of the model that it began with; None: not known."""
    corpus: dict[str, Any]
    """The fields in COMPARED, as far as they are known."""
    vocabulary: str
    """The digest of its vocabulary."""
    unknown: tuple[str, ...] = ()
    """One sentence for each fact that no file gives."""


@dataclass(frozen=True)
class Fairness:
    """The comparison of all entrants."""

    facts: tuple[Facts, ...]
    differences: tuple[str, ...]
    """One sentence for each known difference."""
    unknown: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing is known to differ."""
        return not self.differences

    def to_record(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "tolerance": TOLERANCE,
            "differences": list(self.differences),
            "unknown": list(self.unknown),
            "entrants": [asdict(each) for each in self.facts],
        }


def facts_of(name: str, model: Model) -> Facts:
    """Read the facts from a model's files."""
    folder = folder_of(model.name)
    texts, why = _texts(folder, model.card.recipe)
    trained_on = model.trained_on
    missing = [name for name in CORPUS if name not in trained_on]
    unknown = [why] if why else []
    if missing:
        unknown.append(f"its recipe does not say {', '.join(missing)} of its data")
    return Facts(
        name=name,
        family=model.family.name,
        parameters=sum(value.numel() for value in model.net.parameters()),
        texts=texts,
        corpus={name: trained_on[name] for name in COMPARED if name in trained_on},
        vocabulary=model.vocab.digest(),
        unknown=tuple(f"{name}: {each}" for each in unknown),
    )


def folder_of(name: str) -> Path:
    """The folder of a model that was loaded by this name."""
    return Path(name) if (Path(name) / CONFIG_FILE).is_file() else shipped_folder(name)


def compare(facts: Sequence[Facts]) -> Fairness:
    """Collect the differences between the entrants, and the facts that are unknown."""
    differences = _apart("parameters", {each.name: each.parameters for each in facts})
    differences += _apart(
        "training texts", {each.name: each.texts for each in facts if each.texts is not None}
    )
    for name in COMPARED:
        known = {each.name: each.corpus[name] for each in facts if name in each.corpus}
        if len(set(map(str, known.values()))) > 1:
            differences.append(f"the data differ in {name}: {_listed(known)}")
    if len({each.vocabulary for each in facts}) > 1:
        differences.append("the vocabularies differ, and with them the tokens of a text")
    return Fairness(
        tuple(facts), tuple(differences), tuple(line for each in facts for line in each.unknown)
    )


def refuse_unequal(fairness: Fairness) -> None:
    """Raise ValueError if something is known to differ."""
    if fairness.equal:
        return
    raise ValueError(
        "these models were not made under equal conditions: "
        + "; ".join(fairness.differences)
        + ". Train them alike (recipes/shipped_models.py does), or race with --unequal, which "
        "says so in every table and figure"
    )


def _apart(what: str, values: Mapping[str, int]) -> list[str]:
    if len(values) < 2:
        return []
    low, high = min(values.values()), max(values.values())
    if high <= low * (1 + TOLERANCE):
        return []
    by = f"{100 * (high / low - 1):.1f} %" if low else "more than any factor"
    return [f"{what} differ by {by}: {_listed(values)}"]


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in values.items()
    )


def _texts(
    folder: Path, recipe: Mapping[str, Any], later: tuple[Path, ...] = ()
) -> tuple[int | None, str]:
    """Training texts, or why they are unknown; `later`: the models that began with this one."""
    if (texts := _carded(folder)) is not None:
        return texts, ""
    train = recipe.get("train", {})
    if not {"steps", "batch"} <= set(train):
        return None, "its config.json does not say how it was trained"
    if train.get("minutes") is not None:
        return None, f"its training was limited to {train['minutes']} minutes, not to a number"
    own, start = int(train["steps"]) * int(train["batch"]), recipe.get("start")
    if start is None:
        return own, ""
    chain = (*later, folder.resolve())
    place = _start_of(folder, start, chain)
    if place is None:
        return None, f"it began with {start}, which is gone or has changed: its texts are not known"
    # A model from elsewhere has no recipe.
    older = json.loads((place / CONFIG_FILE).read_bytes()).get("recipe", {})
    before, why = _texts(place, older, chain)
    return (None, f"{start}: {why}") if before is None else (own + before, "")


def _start_of(folder: Path, start: str, chain: Sequence[Path]) -> Path | None:
    """The folder of the model that this one began with: where `load` finds it, or beside it.

    A folder in `chain` is skipped, because a model cannot begin with its own successor; so are
    weights with another digest than training recorded.
    """
    recorded = _recorded_start(folder)
    for place in (Path(start), shipped_folder(start), folder.parent / Path(start).name):
        if not (place / CONFIG_FILE).is_file() or place.resolve() in chain:
            continue
        if recorded is None:
            return place
        if (place / WEIGHTS_FILE).is_file() and load(place).digest == recorded:
            return place
    return None


def _recorded_start(folder: Path) -> str | None:
    """The digest of the first weights of training, if a checkpoint still holds it."""
    found = checkpoints(folder / CHECKPOINTS)
    recorded = read_state(found[-1])["run"].get(f"{ABOUT}start") if found else None
    return None if recorded is None else str(recorded)


def _carded(folder: Path) -> int | None:
    """The number of texts in card.json, if that is the card of these weights."""
    path = folder / SAVED_CARD
    if not path.is_file():
        return None
    card = json.loads(path.read_bytes())
    weights = folder / WEIGHTS_FILE
    if not weights.is_file() or card.get("weights") != sha256_of(weights):
        return None
    return card.get("texts")


ONE, SEVERAL = "one", "several"


PLANNED: dict[str, Any] = {"policy": "planner"}
"""The one point of a model with a planner head, since the planner decides the steps."""


@dataclass(frozen=True)
class RacePoint:
    """One setting of an entrant."""

    options: Mapping[str, Any]

    @property
    def label(self) -> str:
        """In words: `steps 16`; empty if there is nothing to set."""
        return ", ".join(f"{name} {value}" for name, value in self.options.items())

    @property
    def slug(self) -> str:
        """For a folder: `steps-16`."""
        words = "-".join(f"{name}-{value}" for name, value in self.options.items()) or "plain"
        return "".join(c if c.isalnum() or c in "-_." else "_" for c in words)


def ways(family: Family, temperature: float, samples: int) -> dict[str, dict[str, Any]]:
    """The options of both ways of running a point; `several` is absent for one sample."""
    tempered = "temperature" in family.option_names()
    found: dict[str, dict[str, Any]] = {ONE: {"temperature": 0.0} if tempered else {}}
    if samples > 1:
        drawn = {"temperature": temperature} if tempered else {}
        found[SEVERAL] = drawn | dict(describe(family.name).race_several)
    return found


def own_options(net: Any) -> dict[str, Any]:
    """Options for an optional part of the network: a planner head is used if there is one."""
    return dict(PLANNED) if hasattr(net, "plan") else {}


def points_of(
    name: str,
    family: Family,
    grids: Mapping[str, Sequence[RacePoint]],
    net: Any = None,
    slots: int | None = None,
) -> list[RacePoint]:
    """The points of an entrant: `--grid` for its name, then for its family, then the defaults.

    A default never has more steps than `slots` where every step reveals a slot.
    """
    own = own_options(net)
    # A grid for the whole family does not apply to a planner head, which sets its own steps.
    given = grids.get(name) or (None if own else grids.get(family.name))
    if given:
        return list(given)
    about = describe(family.name)
    usual = [dict(each) for each in ((own,) if own else about.race_points)]
    if slots is not None and about.order == "chosen" and family.answers == "canvas":
        for each in usual:
            if "steps" in each:
                each["steps"] = min(each["steps"], slots)
    return [RacePoint(each) for at, each in enumerate(usual) if each not in usual[:at]]


def parse_grids(words: Sequence[str], known: Sequence[str]) -> dict[str, list[RacePoint]]:
    """`mdm:steps=8,16;policy=random` and the like, by name; `known`: entrants and families."""
    found: dict[str, list[RacePoint]] = {}
    for word in words:
        name, colon, settings = word.partition(":")
        if not colon or not settings:
            raise ValueError(f"--grid {word!r}: write NAME:OPTION=V,V, such as mdm:steps=8,16,32")
        if name not in known:
            raise ValueError(f"--grid {word!r}: no {name!r} races: choose from {', '.join(known)}")
        points = found.setdefault(name, [])
        for point in _points(word, settings):
            if point not in points:
                points.append(point)
    return found


def _points(word: str, settings: str) -> list[RacePoint]:
    options: dict[str, list[Any]] = {}
    for part in settings.split(";"):
        option, equals, values = part.partition("=")
        option = option.strip().replace("-", "_")
        if not equals or not option or not all(value.strip() for value in values.split(",")):
            raise ValueError(f"--grid {word!r}: {part!r} is no OPTION=V,V such as steps=8,16,32")
        if option == "temperature":
            raise ValueError(
                f"--grid {word!r}: the temperature is the same for all: set --temperature"
            )
        if option in options:
            raise ValueError(f"--grid {word!r}: {option} is given twice: join its values")
        options[option] = [_value(value.strip()) for value in values.split(",")]
    return [
        RacePoint(dict(zip(options, values, strict=True))) for values in product(*options.values())
    ]


def _value(word: str) -> Any:
    """The word as an int, float or bool if possible, else as text."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(word, word)


ROUNDS = "rounds"
"""The folder of the rounds' records."""


@dataclass(frozen=True)
class Entrant:
    """A model that races."""

    name: str
    """Unique in the race, and the name of its folder."""
    model: Model = field(repr=False)


@dataclass(frozen=True)
class Lane:
    """One entrant, one point, one way."""

    entrant: Entrant
    point: RacePoint
    way: str
    options: Any
    """Resolved."""
    card: RunCard = field(repr=False)
    requests: tuple[tuple[Request, ...], ...] = field(repr=False)
    """The samples of each problem."""
    folder: Path

    @property
    def key(self) -> str:
        """The lane's name in the race."""
        return f"{self.entrant.name}/{self.folder.name}"

    @property
    def samples(self) -> int:
        """Samples of each problem."""
        return len(self.requests[0])

    def decode(self, number: int, sample: int) -> Trace:
        """One sample of a problem, alone in its batch."""
        request, model = self.requests[number][sample], self.entrant.model
        [trace] = model.decode([request], self.options, self.card.seeds[0])
        return trace

    def run(self) -> Run:
        """The lane's run folder, created or continued."""
        return Run.create(self.folder, self.card)


def named(models: Sequence[Model]) -> list[Entrant]:
    """Entrants, named by the last part of the model's name, with a number if that is taken."""
    counts = Counter({ROUNDS: 1})  # reserved: the rounds' folder lies beside the entrants'
    found = []
    for model in models:
        short = "".join(c if c.isalnum() or c in "-_." else "_" for c in Path(model.name).name)
        counts[short] += 1
        found.append(Entrant(short if counts[short] == 1 else f"{short}-{counts[short]}", model))
    if len({each.name for each in found}) < len(found):
        raise ValueError("two models would share a name: rename one of their folders")
    return found


def make_lanes(
    job: RaceJob,
    entrants: Sequence[Entrant],
    subject: SamplingTask,
    grids: Mapping[str, Sequence[RacePoint]],
) -> list[Lane]:
    """All lanes, checked: nothing is written or computed."""
    found = []
    for entrant in entrants:
        model = entrant.model
        slots = model.card.max_new_tokens
        for point in points_of(entrant.name, model.family, grids, model.net, slots):
            given = ways(entrant.model.family, job.temperature, job.samples)
            for way, options in given.items():
                try:
                    found.append(_lane(job, entrant, point, way, options, subject))
                except ValueError as error:
                    where = f"{entrant.name} at {point.label or 'its defaults'}"
                    raise ValueError(f"{where}: {error}") from None
    twice = [key for key, count in Counter(lane.key for lane in found).items() if count > 1]
    if twice:
        raise ValueError(f"two settings would share the folder {twice[0]}: leave one out")
    return found


def _lane(
    job: RaceJob,
    entrant: Entrant,
    point: RacePoint,
    way: str,
    options: Mapping[str, Any],
    subject: SamplingTask,
) -> Lane:
    model, drawn = entrant.model, way == SEVERAL
    given = {**options, **point.options}
    folder = job.out / entrant.name / (f"{point.slug}-drawn" if drawn else point.slug)
    samples = job.samples if drawn else 1
    same = {name: getattr(job, name) for name in ("task", "data", "limit", "seed", "device")}
    sampling = SampleJob(model=model.name, samples=samples, batch=1, out=folder, **same)
    line = command("sample", sampling, given)
    planned = plan_run(sampling, given, model, subject, command=line)
    rows = planned.requests
    requests = tuple(tuple(rows[at : at + samples]) for at in range(0, len(rows), samples))
    return Lane(entrant, point, way, planned.options, planned.card, requests, folder)


RACE_FILE = "race.json"
SETTINGS = (
    *("models", "task", "data", "limit", "samples", "temperature", "grid", "seed", "threads"),
    "device",
)
"""The fields of a job that its rounds depend on."""


@dataclass(frozen=True)
class RacePlan:
    """A race, checked and ready to run."""

    job: RaceJob
    entrants: list[Entrant]
    fairness: Fairness
    task: Task
    subject: SamplingTask
    lanes: list[Lane]
    gaps: list[Gap]
    """Gaps for every entrant that can fill."""
    gaps_left_out: int
    """Programs that some of these entrants cannot hold."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, weights and data that identify this race."""
        record = {name: getattr(self.job, name) for name in SETTINGS}
        record["digests"] = {each.name: each.model.digest for each in self.entrants}
        record["data_digest"] = self.task.digest
        # Through JSON, so that it compares equal to what `claim` reads back (tuples become lists).
        return dict(json.loads(json.dumps(record)))


def planned(job: RaceJob) -> RacePlan:
    """Check the job and plan the race; nothing is written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a race ends with a figure: pip install 'anyorder[report]'")
    job = _with_models(job)
    if len(set(job.models)) < len(job.models):
        raise ValueError("a model is named twice: name each once")
    entrants = named([load(name, device=job.device) for name in job.models])
    fairness = compare([facts_of(each.name, each.model) for each in entrants])
    if not job.unequal:
        refuse_unequal(fairness)
    families = dict.fromkeys(each.model.family.name for each in entrants)
    known = list(dict.fromkeys([*(each.name for each in entrants), *families]))
    grids = parse_grids(job.grid, known)
    job = _with_task(job, entrants)
    assert job.task is not None
    task = find_task(job.task, entrants[0].model.trained_on, data=job.data)
    subject = SamplingTask.of(task, job.limit)
    ungraded = [problem.task_id for problem in subject.problems if not problem.checks]
    if ungraded:
        raise ValueError(f"{ungraded[0]} has no checks to grade by: race on another task")
    if any(problem.middle is not None for problem in subject.problems):
        raise ValueError(f"{job.task} has gaps, and a race makes its own: race on another task")
    _same_problems(job, entrants, task)
    lanes = make_lanes(job, entrants, subject, grids)
    gaps = gaps_of(task.problems(job.infill)) if job.infill else []
    usable = usable_gaps(fillers(job, entrants), gaps)
    left_out = len(gaps) - len(usable)
    return RacePlan(job, entrants, fairness, task, subject, lanes, usable, left_out)


def fillers(job: RaceJob, entrants: Sequence[Entrant]) -> dict[Model, dict[str, Any]]:
    """The models that can fill gaps, with their decoding options."""
    return {
        each.model: ways(each.model.family, job.temperature, 1)[ONE] | own_options(each.model.net)
        for each in entrants
        if can_fill(each.model)
    }


def _with_models(job: RaceJob) -> RaceJob:
    """The job with the shipped models of its task, if it names none."""
    if job.models:
        return job
    task = job.task or TRAILS.task
    story = DEMOS.get(task.partition(":")[0])
    if story is None:
        raise ValueError(f"no shipped models were trained for {task}: name the models to race")
    # The planner is an mdm with a further training, so it does not race under equal conditions.
    names = [story.models + name for name in MODELS if name in DESCRIPTIONS]
    models = tuple(name for name in names if (shipped_folder(name) / CONFIG_FILE).is_file())
    return replace(job, models=models, task=task)


def _with_task(job: RaceJob, entrants: Sequence[Entrant]) -> RaceJob:
    """The job with the task of its models' corpus, if it names none."""
    if job.task is not None:
        return job
    first = entrants[0]
    task = corpus_task(first.model.trained_on)
    if task is None:
        raise ValueError(f"{first.name} was not trained on a corpus with a task: name a --task")
    return replace(job, task=task)


def _same_problems(job: RaceJob, entrants: list[Entrant], task: Task) -> None:
    """Refuse entrants whose training data give the task other held-out problems."""
    assert job.task is not None
    for each in entrants[1:]:
        other = find_task(job.task, each.model.trained_on, data=job.data)
        if other.digest != task.digest:
            raise ValueError(
                f"{job.task} is a task of other problems for {each.name} than for "
                f"{entrants[0].name}, by the data that they were trained on: race models of one "
                "corpus"
            )


def claim(plan: RacePlan) -> None:
    """Reserve the folder for this race; refuse a folder with another race or other files."""
    path = plan.job.out / RACE_FILE
    if path.exists():
        try:
            stored = json.loads(path.read_bytes())["settings"]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is damaged: restore it, or choose another --out") from None
        different = [name for name, value in plan.settings.items() if stored.get(name) != value]
        if different:
            raise ValueError(
                f"{plan.job.out} holds another race, which differs in {', '.join(different)}: "
                "choose another --out, or repeat the command that made it"
            )
        return
    foreign = sorted(item.name for item in plan.job.out.iterdir() if item.name != LOCK_FILE)
    if foreign:
        raise ValueError(
            f"{plan.job.out} is not empty ({foreign[0]}) and not a race: choose another --out"
        )
    write_json(path, {"status": "running", "settings": plan.settings})


def release(plan: RacePlan) -> None:
    """Undo `claim` if no sample is stored yet."""
    rounds = plan.job.out / ROUNDS
    folders = [lane.folder for lane in plan.lanes if (lane.folder / CARD_FILE).is_file()]
    runs = [Run.open(folder) for folder in folders]
    if any(run.done_parts() for run in runs):
        return
    for run in runs:
        run.discard_if_empty()
    (plan.job.out / RACE_FILE).unlink(missing_ok=True)
    folders = [*(lane.folder for lane in plan.lanes), *(lane.folder.parent for lane in plan.lanes)]
    for folder in (*folders, rounds):
        with suppress(OSError):  # absent, or it holds a file that is not ours
            folder.rmdir()
