"""The goldens: what anyorder did when they were stored, made anew from its public names alone.

    python tests/goldens/make.py                 store all of them again (minutes)
    python tests/goldens/make.py help runs-mdm   store these again
    python tests/goldens/make.py --list          their names

Store a golden again only where a change is meant, and read the difference before you commit it.
`tests/test_goldens.py` makes each golden in a temporary folder and compares it with the stored one.

Nothing here imports a module of anyorder except `anyorder` and `anyorder.cli`, so that the goldens
survive every move inside the package. What differs between two runs or two machines is replaced by
VARIES, key by key: see VARYING. Everything else is stored.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
from safetensors.numpy import load_file

import anyorder
from anyorder.cli import main

HERE = Path(__file__).resolve().parent

MODELS = ("ar", "mdm", "planner", "flexmdm", "latentmdm", "flexlatent", "duo", "sflm")
PLACED = ("mdm", "planner", "flexmdm", "latentmdm", "flexlatent")
"""The shipped models that `measure --placement` can ask again."""
VERBS = (
    *("demo", "train", "data", "sample", "grade", "measure", "report", "race", "paper", "play"),
    *("reproduce", "import", "export", "push", "doctor"),
)

VARIES = "(varies)"
VARYING = {
    "run": {"versions", "python", "platform", "created", "files"},
    # Digests of files that hold times; versions; how long it took.
    "measures": {"traces", "versions"},
    "traces": {"seconds"},
    # A level is what the machine's sandbox can do; attempts grow on a busy machine.
    "verdicts": {"level", "cpu_seconds", "wall_seconds", "attempts"},
    "metadata": {"traces"},
    "checkpoint": {"versions", "files", "sha256", "seconds"},
    "metrics": {"seconds", "tokens_per_second"},
    # Times, what is computed from them, and the machine.
    "race": {
        *("seconds", "median_seconds", "cpu_seconds", "total_seconds", "against", "front"),
        *("processors", "load", "busy"),
    },
}
"""The keys, at any depth, whose values are not compared, for each kind of record."""

# Other paths through the samplers than the defaults, so that a change to one of them shows.
WAYS = {
    "ar-drawn": ("ar", "--temperature", "0.8", "--top-p", "0.9"),
    "mdm-drawn": ("mdm", "--policy", "random", "--temperature", "0.7", "--steps", "24"),
    "mdm-margin": ("mdm", "--policy", "margin", "--steps", "16"),
    "mdm-threshold": ("mdm", "--quota", "threshold:0.8"),
    "mdm-blocks-cached": ("mdm", "--block", "16", "--cache", "block", "--cache-check", "0"),
    "mdm-compat": ("mdm", "--mode", "compat", "--steps", "32"),
    "mdm-remask": ("mdm", "--steps", "24", "--remask", "cap:0.2"),
    "flexmdm-events": ("flexmdm", "--clock", "events"),
    "flexmdm-steps": ("flexmdm", "--clock", "steps"),
    "flexmdm-corrected": ("flexmdm", "--steps", "24", "--temperature", "1", "--correct", "12"),
    "flexmdm-compat": ("flexmdm", "--mode", "compat", "--steps", "48"),
    "flexmdm-drawn": (
        *("flexmdm", "--clock", "steps"),
        *("--temperature", "0.7", "--insertion-temperature", "0.6"),
    ),
    "latentmdm-candidates": ("latentmdm", "--candidates"),
    "latentmdm-compat": ("latentmdm", "--mode", "compat"),
    "latentmdm-tail-first": ("latentmdm", "--tail", "first"),
    "latentmdm-two": ("latentmdm", "--policy", "minimum", "--k", "2"),
    "flexlatent-events": ("flexlatent", "--clock", "events"),
    "flexlatent-corrected": ("flexlatent", "--steps", "4", "--correct", "8"),
    "duo-greedy": ("duo", "--steps", "16", "--tail", "greedy"),
    "sflm-exact": ("sflm", "--velocity", "exact"),
}

GAPPED = "def solve(plums, lemons):\n    total = plums + lemons\n<fill>\n    return total\n"

# A large epsilon makes Adam's step a smooth function of the gradient. With the usual one a gradient
# near zero moves its weight by the whole learning rate, in a direction that rounding decides.
TRAINING = (
    *("--steps", "2", "--warmup", "1", "--batch", "4", "--eps", "1e-3"),
    *("--validate-every", "0", "--log-every", "1", "--json"),
    *("--first-weights", "in_order"),  # as all weights began when these were stored
)
RECIPES: dict[str, tuple[str, ...]] = {f"tiny/{name}": () for name in (*MODELS, "block")}
RECIPES |= {"tiny/planner-grpo": ("--start", "planner")}

RACE = (
    *("--unequal", "--limit", "2", "--samples", "1", "--texts", "1", "--infill", "1"),
    *("--workers", "1", "--grid", "mdm:steps=8", "flexmdm:steps=16", "latentmdm:k=4"),
    *("flexlatent:steps=8", "duo:steps=8", "sflm:steps=8"),
)


# --- running a command -----------------------------------------------------------------------


def said(*words: str) -> str:
    """What a command prints on standard output, at a fixed width and without colours."""
    out, plain = io.StringIO(), {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb"}
    with (
        patch.dict(os.environ, plain),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()) as complaints,
    ):
        try:
            code = main(list(words))
        except SystemExit as stop:  # the parser ends the program after --help
            code = int(stop.code or 0)
    if code:
        raise RuntimeError(f"anyorder {' '.join(words)} ended with {code}: {complaints.getvalue()}")
    return out.getvalue()


def without(record: Any, keys: set[str]) -> Any:
    """The record with VARIES in place of the values of these keys, at any depth."""
    if isinstance(record, dict):
        return {
            key: VARIES if key in keys and value is not None else without(value, keys)
            for key, value in record.items()
        }
    return [without(each, keys) for each in record] if isinstance(record, list) else record


def read(path: Path, kind: str) -> Any:
    return without(json.loads(path.read_text(encoding="utf-8")), VARYING[kind])


# --- what is stored --------------------------------------------------------------------------


def helps() -> dict[str, str]:
    """The help of the program, of every verb, and of every tiny recipe, by file name."""
    commands = [(), *((verb,) for verb in VERBS), *(("train", name) for name in RECIPES)]
    return {
        f"{'-'.join(words).replace('/', '-') or 'anyorder'}.txt": said(*words, "--help")
        for words in commands
    }


def run(model: str) -> dict[str, Any]:
    """A shipped model on three problems: the run folder after sample, grade and measure."""
    folder = Path("runs", model)
    said("sample", model, "--task", "stories", "--limit", "3", "--out", str(folder))
    said("grade", str(folder), "--workers", "1", "--allow-weak-isolation")
    placement = ("--placement", model, "--stride", "16") if model in PLACED else ()
    said("measure", str(folder), *placement)
    traces = list(anyorder.Run.open(folder).traces())
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "run.json": read(folder / "run.json", "run"),
        "measures.json": read(folder / "measures.json", "measures"),
        "traces": rows(folder / "traces.parquet", "traces"),
        "verdicts": rows(folder / "verdicts.parquet", "verdicts"),
        "schemas": {path.name: schema(path) for path in sorted(folder.glob("*.parquet"))},
        "jsonl": json.loads(traces[0].to_jsonl()),
        "jsonl keys": list(json.loads(traces[0].to_jsonl())),
        "replayed halfway": str(traces[0].replay(traces[0].steps // 2)),
        "order": [str(token) for token in traces[0].order()],
    }


def rows(path: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of a table. Of a complaint only its class is kept: Python words the rest."""
    found = without(pq.read_table(path).to_pylist(), VARYING[kind])
    for row in found:
        if row.get("detail"):
            row["detail"] = row["detail"].split(":")[0]
    return found


def schema(path: Path) -> dict[str, Any]:
    """Columns with their types, and the metadata that we wrote."""
    found = pq.read_schema(path)
    about = {key.decode(): json.loads(value) for key, value in (found.metadata or {}).items()}
    return {
        "columns": {
            field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in found
        },
        "metadata": without(about, VARYING["metadata"]),
    }


def ways() -> dict[str, Any]:
    """One problem, sampled along paths that the defaults do not take."""
    found = {}
    for name, (model, *flags) in WAYS.items():
        folder = Path("runs", name)
        said("sample", model, "--task", "stories", "--limit", "1", *flags, "--out", str(folder))
        card = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        traces = rows(folder / "traces.parquet", "traces")
        for trace in traces:  # the runs above hold the rest
            for key in ("prompt", "program", "prompt_ids", "char_end", "entry_point"):
                del trace[key]
        found[name] = {"options": card["config"]["options"], "traces": traces}
    return found


def gaps() -> dict[str, Any]:
    """Texts with gaps, filled through `anyorder.load` and `Model.sample`."""
    found = {}
    for model in ("mdm", "flexmdm", "latentmdm", "flexlatent"):
        [filled] = anyorder.load(model).sample([GAPPED], seed=3)
        found[model] = json.loads(filled.to_jsonl())
    return found


def trained(recipe: str) -> dict[str, Any]:
    """Two steps of a tiny recipe: configuration, losses, and the weights in sums."""
    folder = Path("models", recipe.replace("/", "-"))
    told = json.loads(said("train", recipe, *RECIPES[recipe], *TRAINING, "--out", str(folder)))
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    [checkpoint] = (folder / "checkpoints").iterdir()
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "said": told,
        "config.json": json.loads((folder / "config.json").read_text(encoding="utf-8")),
        "metrics": [without(json.loads(line), VARYING["metrics"]) for line in lines],
        "weights": {
            name: {
                "shape": list(tensor.shape),
                "sum": float(tensor.sum(dtype="float64")),
                "squares": float((tensor.astype("float64") ** 2).sum()),
            }
            for name, tensor in sorted(load_file(folder / "model.safetensors").items())
        },
        "checkpoint": {
            "state.json": read(checkpoint / "state.json", "checkpoint"),
            "tensors": {
                path.name: sorted(load_file(path)) for path in sorted(checkpoint.glob("*.safe*"))
            },
        },
    }


def race() -> dict[str, Any]:
    """The smallest race of all shipped models. Times vary, and so does what follows from them."""
    folder = Path("runs", "race")
    said("race", *MODELS, *RACE, "--allow-weak-isolation", "--out", str(folder), "--json")
    record = json.loads((folder / "race.json").read_text(encoding="utf-8"))
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "race.json": without(record, VARYING["race"]),
    }


def demo() -> dict[str, Any]:
    """The whole demo on stories: what it prints, and the verdicts of all its runs."""
    plain = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "anyorder", "demo", "--task", "stories", "--out", "runs/demo"],
        env=os.environ | plain,
        capture_output=True,
        text=True,
        check=True,
    )
    return demo_record(done.stdout, Path("runs", "demo"))


def demo_record(printed: str, folder: Path) -> dict[str, Any]:
    """Lines that name a place or a time are left out."""
    kept = [line for line in printed.splitlines() if "minutes here" not in line]
    kept = [line for line in kept if "file://" not in line and " play" not in line]
    verdicts = {
        path.parent.name: [row["verdict"] for row in rows(path, "verdicts")]
        for path in sorted(folder.glob("*/verdicts.parquet"))
    }
    return {"printed": [line.rstrip() for line in kept], "verdicts": verdicts}


MAKERS: dict[str, Callable[[], Any]] = {
    "help": helps,
    **{f"runs-{model}": (lambda model=model: run(model)) for model in MODELS},
    "ways": ways,
    "gaps": gaps,
    **{f"train-{name[5:]}": (lambda name=name: trained(name)) for name in RECIPES},
    "race": race,
    "demo": demo,
}
"""Every golden by name."""


# --- storing and reading ---------------------------------------------------------------------


@contextlib.contextmanager
def elsewhere(folder: Path) -> Iterator[None]:
    """Work in `folder`, so that no record holds a path of this machine."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def made(name: str, folder: Path) -> Any:
    """The golden as today's code makes it."""
    with elsewhere(folder):
        return MAKERS[name]()


def short(value: Any) -> Any:
    """Numbers to eight digits, which is far below every tolerance."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    return [short(each) for each in value] if isinstance(value, list | tuple) else value


def dumped(value: Any, depth: int = 0) -> str:
    """JSON with a line for each key, and lists of plain values on one line: a diff is readable."""
    inner, outer = " " * (depth + 1), " " * depth
    if isinstance(value, dict) and value:
        parts = (f"{inner}{json.dumps(k)}: {dumped(v, depth + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(parts) + f"\n{outer}}}"
    if isinstance(value, list) and any(isinstance(each, dict | list | str) for each in value):
        return "[\n" + ",\n".join(inner + dumped(v, depth + 1) for v in value) + f"\n{outer}]"
    return json.dumps(value, ensure_ascii=False)


def store(name: str, value: Any) -> None:
    if name == "help":
        (HERE / "help").mkdir(exist_ok=True)
        for old in (HERE / "help").glob("*.txt"):
            old.unlink()
        for file, text in value.items():
            (HERE / "help" / file).write_text(text, encoding="utf-8")
    else:
        (HERE / f"{name}.json").write_text(dumped(short(value)) + "\n", encoding="utf-8")


def stored(name: str) -> Any:
    if name == "help":
        found = sorted((HERE / "help").glob("*.txt"))
        return {path.name: path.read_text(encoding="utf-8") for path in found}
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def store_all(names: list[str]) -> None:
    for name in names or MAKERS:
        with tempfile.TemporaryDirectory() as folder:
            store(name, made(name, Path(folder)))
        print(f"stored {name}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(*MAKERS, sep="\n")
    elif unknown := set(sys.argv[1:]) - MAKERS.keys():
        sys.exit(f"no golden {', '.join(sorted(unknown))}: choose from {', '.join(MAKERS)}")
    else:
        store_all(sys.argv[1:])
