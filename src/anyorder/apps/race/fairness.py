"""Whether models may be compared: parameters, data and training texts, equal within 2 %.

What is known of a model comes from its own files: the parameters are counted, the corpus is in its
recipe (config.json), and the training texts are in card.json where that describes these very
weights (shipped models), else steps x batch of the recipe. A model that began with another one has
seen that one's texts too; they are added if it can be found. What no file says is said to be
unknown, and is no reason to refuse: only what is known to differ is.

Texts, not tokens: families make different numbers of predictions of the same text (a canvas is
filled with EOS, an insertion model sees a part), so texts of one corpus, in one vocabulary, are the
common unit; then the data's tokens are equal as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anyorder.files import sha256_of
from anyorder.model import CONFIG_FILE, WEIGHTS_FILE, Model, load, shipped_folder
from anyorder.training.checkpoint import checkpoints, read_state
from anyorder.training.loop import ABOUT, CHECKPOINTS

TOLERANCE = 0.02
CORPUS = ("source", "layout", "wording", "seed")
"""What says which texts a model was trained on; what of it is missing is said."""
COMPARED = (
    *CORPUS,
    *("state_layout", "split", "prompt_field", "answer_field", "documents", "canvas"),
)
"""With what else may tell texts apart: compared between the models whose recipes have it."""
SAVED_CARD = "card.json"


@dataclass(frozen=True)
class Facts:
    """What is known of an entrant's size and training."""

    name: str
    family: str
    parameters: int
    texts: int | None
    """Training texts, with those of what it began with; None: not known."""
    corpus: dict[str, Any]
    """The fields in COMPARED, as far as they are known."""
    vocabulary: str
    """Its digest."""
    unknown: tuple[str, ...] = ()
    """What no file says, a sentence each."""


@dataclass(frozen=True)
class Fairness:
    """What the entrants have in common."""

    facts: tuple[Facts, ...]
    differences: tuple[str, ...]
    """What is known to differ, a sentence each."""
    unknown: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing is known to differ."""
        return not self.differences

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "equal": self.equal,
            "tolerance": TOLERANCE,
            "differences": list(self.differences),
            "unknown": list(self.unknown),
            "entrants": [asdict(each) for each in self.facts],
        }


def facts_of(name: str, model: Model) -> Facts:
    """What the files of a model say."""
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
    """Where a model that was loaded by this name has its files."""
    return Path(name) if (Path(name) / CONFIG_FILE).is_file() else shipped_folder(name)


def compare(facts: Sequence[Facts]) -> Fairness:
    """What differs between the entrants by more than 2 %, and what cannot be told."""
    differences = _apart("parameters", {each.name: each.parameters for each in facts})
    differences += _apart(
        "training texts", {each.name: each.texts for each in facts if each.texts is not None}
    )
    for name in COMPARED:
        told = {each.name: each.corpus[name] for each in facts if name in each.corpus}
        if len(set(map(str, told.values()))) > 1:
            differences.append(f"the data differ in {name}: {_listed(told)}")
    if len({each.vocabulary for each in facts}) > 1:
        differences.append("the vocabularies differ, and with them the tokens of a text")
    return Fairness(
        tuple(facts), tuple(differences), tuple(line for each in facts for line in each.unknown)
    )


def refuse_unequal(fairness: Fairness) -> None:
    """Say no, with the way round it."""
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
    return [f"{what} differ by {_percent(low, high)}: {_listed(values)}"]


def _percent(low: int, high: int) -> str:
    return f"{100 * (high / low - 1):.1f} %" if low else "more than any factor"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in values.items()
    )


def _texts(
    folder: Path, recipe: Mapping[str, Any], later: tuple[Path, ...] = ()
) -> tuple[int | None, str]:
    """Training texts, or why they are not known; `later` are the models that began with this."""
    told = _carded(folder)
    if told is not None:
        return told, ""
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
        return None, f"it began with {start}, which is not there as it was: its texts are not known"
    told = json.loads((place / CONFIG_FILE).read_bytes()).get("recipe", {})  # others' have none
    before, why = _texts(place, told, chain)
    return (None, f"{start}: {why}") if before is None else (own + before, "")


def _start_of(folder: Path, start: str, chain: Sequence[Path]) -> Path | None:
    """What a model began with: where `load` finds it, or beside the model.

    Never one of the chain that led here, which cannot have begun with what it became; and never
    other weights than those whose digest training wrote down.
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
    """The digest of what training began with, if its checkpoints are still there."""
    found = checkpoints(folder / CHECKPOINTS)
    recorded = read_state(found[-1])["run"].get(f"{ABOUT}start") if found else None
    return None if recorded is None else str(recorded)


def _carded(folder: Path) -> int | None:
    """What card.json says, if it is the card of these weights."""
    path = folder / SAVED_CARD
    if not path.is_file():
        return None
    card = json.loads(path.read_bytes())
    weights = folder / WEIGHTS_FILE
    if not weights.is_file() or card.get("weights") != sha256_of(weights):
        return None
    return card.get("texts")
