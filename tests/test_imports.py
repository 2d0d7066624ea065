"""Who may import whom: parses every file of the package and enforces the one direction.

Imports inside functions and under TYPE_CHECKING count like any other, and so does
`import_module("...")` with a literal name. A room may always import itself.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

SHARED = {"checks", "plugins"}  # import nothing of ours, and every room may use them

ROOMS = {
    "checks": set(),
    "plugins": set(),
    "files": set(),  # files whole or not at all: every room writes through it
    "_kernel": set(),
    "descriptions": set(),  # families/descriptions.py alone: plain facts about families
    "vocab": {"files"},
    "trace": {"vocab", "files"},
    "process": set(),
    "nets": {"vocab", "files"},
    "data": {"vocab", "_kernel"},
    "hub": {"nets", "vocab", "files"},
    "decode": {"vocab", "process", "nets", "trace", "data"},
    "measure": {"trace", "vocab", "files", "_kernel"},
    "bench": {"data", "trace", "measure", "vocab", "files"},
    "report": {"trace", "measure", "bench", "vocab", "files", "descriptions"},
}
MODELS = {"vocab", "trace", "process", "nets", "hub", "data", "decode", "files"}
TRAINING = MODELS | {"families"}
ALL_ROOMS = set(ROOMS) | {"families", "training", "recipes", "model", "loading"}
RULES: dict[str, set[str]] = {
    **ROOMS,
    "families": MODELS | {"descriptions"},
    "training": TRAINING - {"decode", "trace"},
    "recipes": TRAINING | {"training"},
    "model": TRAINING | {"training", "recipes", "loading", "descriptions"},  # `load` alone, lazily
    "loading": TRAINING | {"training", "recipes", "model"},
    "apps": ALL_ROOMS,
    "cli": ALL_ROOMS | {"apps"},
    "__main__": {"cli"},
    "__init__": ALL_ROOMS | {"apps"},  # lazily: see test_importing_is_light
}
EXCEPTIONS = {
    ("anyorder.measure", "anyorder.apps.placement.placement"),
    ("anyorder.trace.trace", "anyorder.report.notebook.trace_html"),
    ("anyorder.trace.run", "anyorder.report.notebook.run_html"),
}
"""The public measure that asks a network: named by `anyorder.measure`, found in apps. And what a
notebook shows of a trace and of a run: it asks the object, the report draws."""

TORCH = {"torch", "transformers", "peft"}
FILES = {"io", "json", "os", "pathlib", "pyarrow", "safetensors", "shutil", "tempfile"}
FOREIGN_BANS = {
    "descriptions": TORCH,
    "checks": TORCH | FILES,
    "plugins": TORCH,
    "measure": TORCH,
    "trace": TORCH,
    "vocab": TORCH,
    "_kernel": TORCH,
    "process": FILES,  # pure tensor functions
}
SHAPES = "anyorder.nets.shapes"
"""The backbone's shape: the one thing besides each other that the settings of families import."""
LAZY_ONLY = {"cli": TORCH, "__init__": TORCH}


@dataclass(frozen=True)
class Import:
    name: str
    """The dotted name, absolute: `anyorder.decode.policy`, `torch.nn`."""
    line: int
    lazy: bool
    """Inside a function, hence not run by importing the file."""


def imports(source: str, module: str, *, package: bool) -> Iterator[Import]:
    """Every import of a file whose dotted name is `module` (a package: its `__init__`)."""

    def absolute(node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        kept = parts[: len(parts) - node.level + package]
        return ".".join([*kept, node.module] if node.module else kept)

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:  # `from anyorder import vocab` names a module with its alias
                yield Import(f"{absolute(node)}.{alias.name}", node.lineno, lazy)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                yield Import(str(first.value), node.lineno, lazy)
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, lazy)

    yield from walk(ast.parse(source), False)


def room_of(name: str) -> str:
    if name.startswith("anyorder.families.descriptions"):
        return "descriptions"  # lighter than the rest of its folder, so that reports may read it
    return name.split(".")[1] if "." in name else "__init__"


def is_settings(name: str) -> bool:
    """Whether a dotted name is, or is in, the config.py of families or of one family."""
    parts = name.split(".")
    return parts[:2] == ["anyorder", "families"] and "config" in parts[2:4]


def settings_violations(source: str, module: str) -> list[str]:
    """Settings are data: who reads them pays for no network, and they know settings only."""
    found = []
    for item in imports(source, module, package=False):
        top, where = item.name.split(".")[0], f"{module}:{item.line} imports {item.name}"
        shared = room_of(item.name) in SHARED
        known = shared or is_settings(item.name) or item.name.startswith(f"{SHAPES}.")
        if top in TORCH:
            found.append(f"{where}: settings never import torch")
        elif top == "anyorder" and not known:
            found.append(f"{where}: settings import nothing of ours but settings")
    return found


def violations(source: str, module: str, *, package: bool = False) -> list[str]:
    """What is forbidden in this file, one line each."""
    room = room_of(module)
    found = []
    if room not in RULES:
        return [f"{module}: no import rule for the room {room!r}; add one to tests/test_imports.py"]
    if is_settings(module):
        return settings_violations(source, module)
    for item in imports(source, module, package=package):
        top = item.name.split(".")[0]
        where = f"{module}:{item.line} imports {item.name}"
        if top == "anyorder":
            target = room_of(item.name)
            if (module, item.name) in EXCEPTIONS:
                continue
            if room in ("descriptions", "report") and is_settings(item.name):
                continue  # data without torch: what describes a family
            if target not in RULES[room] | SHARED | {room, "__version__"}:
                found.append(f"{where}: {room} may import {sorted(RULES[room]) or 'none of ours'}")
        elif top == "studies":
            found.append(f"{where}: the study uses the package, never the other way round")
        elif top in FOREIGN_BANS.get(room, set()):
            found.append(f"{where}: {room} never imports {top}")
        elif top in LAZY_ONLY.get(room, set()) and not item.lazy:
            found.append(f"{where}: only inside a function, so that starting stays quick")
    return found


def source_files() -> list[Path]:
    return sorted((SOURCE / "anyorder").rglob("*.py"))


def dotted(path: Path) -> tuple[str, bool]:
    parts = list(path.relative_to(SOURCE).with_suffix("").parts)
    package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if package else parts), package


def test_every_import_obeys_the_rules() -> None:
    files = source_files()
    assert files, f"no source below {SOURCE}"
    found = []
    for path in files:
        module, package = dotted(path)
        found += violations(path.read_text(encoding="utf-8"), module, package=package)
    assert not found, "\n".join(found)


FORBIDDEN = {
    "absolute": ("anyorder.vocab", "import anyorder.trace.store"),
    "from a room": ("anyorder.nets.transformer", "from anyorder.process import masking"),
    "from the package": ("anyorder.process.masking", "from anyorder import nets"),
    "public name": ("anyorder.families.mdm.decode", "from anyorder import load"),
    "relative": ("anyorder.nets.transformer", "from ..process.masking import loss"),
    "relative package": ("anyorder.process.masking", "from .. import nets"),
    "in a function": ("anyorder.process.noise", "def f():\n    import anyorder.nets.hub"),
    "for types only": (
        "anyorder.training.loop",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from anyorder.decode import mdm",
    ),
    "by string": (
        "anyorder.data.keyed",
        "import importlib\nimportlib.import_module('anyorder.nets')",
    ),
    "upwards": ("anyorder.decode.canvas", "from anyorder.families import FAMILIES"),
    "nobody imports the command line": ("anyorder.apps.demo", "from anyorder.cli import main"),
    "nobody imports the study": ("anyorder.apps.demo", "from studies.plan import Plan"),
    "networks in a report": ("anyorder.report.runs", "from anyorder.families import family"),
    "families in a task": (
        "anyorder.bench.grade",
        "from anyorder.families.descriptions import describe",
    ),
    "torch in a description": ("anyorder.families.descriptions", "import torch"),
    "ours in a description": ("anyorder.families.descriptions", "from anyorder import vocab"),
    "torch in trace": ("anyorder.trace.store", "def f():\n    from torch import Tensor"),
    "torch in measure": ("anyorder.measure.order_scores", "import torch.nn.functional as F"),
    "torch at the top of the command line": ("anyorder.cli", "import torch"),
    "files in process": ("anyorder.process.masking", "from pathlib import Path"),
    "torch in settings": ("anyorder.families.mdm.config", "import torch"),
    "a decoder in settings": (
        "anyorder.families.mdm.config",
        "def f():\n    from anyorder.decode.policy import Policy",
    ),
    "a network in settings": (
        "anyorder.families.config",
        "from anyorder.nets.transformer import Transformer",
    ),
    "a row in settings": (
        "anyorder.families.mdm.config",
        "from anyorder.families.family import Family",
    ),
    "a family's shape in nets": (
        "anyorder.nets.transformer",
        "from anyorder.families.flexmdm.config import FlexConfig",
    ),
    "a family's shape in hub": (
        "anyorder.hub.formats",
        "from anyorder.families.flexmdm.config import FlexConfig",
    ),
    "room without a rule": ("anyorder.attic.junk", "import math"),
}


@pytest.mark.parametrize(("module", "source"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


ALLOWED = {
    "own room, relative": (
        "anyorder.decode.loop",
        "from .policy import Policy\nfrom . import draw",
    ),
    "down": (
        "anyorder.families.mdm.decode",
        "from anyorder.trace import Trace\nimport anyorder.nets",
    ),
    "descriptions in a report": (
        "anyorder.report.runs",
        "from anyorder.families.descriptions import describe",
    ),
    "settings of another family": (
        "anyorder.families.flexlatent.config",
        "from anyorder.families.latentmdm.config import LatentConfig\n"
        "from anyorder.families.config import DrawOptions\n"
        "from anyorder.nets.shapes import TransformerConfig",
    ),
    "others' names": ("anyorder.trace.store", "import torchlike\nimport numpy as np"),
    "lazy torch": ("anyorder.cli", "def f():\n    import torch"),
    "version": ("anyorder.trace.run", "from anyorder import __version__"),
}


@pytest.mark.parametrize(("module", "source"), ALLOWED.values(), ids=ALLOWED)
def test_an_allowed_import_is_let_through(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_relative_imports_of_a_package_count_from_itself() -> None:
    assert violations("from . import policy", "anyorder.decode", package=True) == []
    assert violations("from .. import process", "anyorder.nets", package=True) != []


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LIGHT = (
    *("anyorder", "anyorder.vocab", "anyorder.trace", "anyorder.cli"),
    "anyorder.families.descriptions",
)


@pytest.mark.parametrize("module", LIGHT)
def test_importing_is_light(module: str) -> None:
    """What the rules promise on paper, seen in the interpreter."""
    assert run_python(f"import {module}; print('torch' in sys.modules)") == "False"


def test_public_names_resolve_and_are_listed() -> None:
    code = (
        "import anyorder\n"
        "missing = [name for name in anyorder.__all__ if not hasattr(anyorder, name)]\n"
        "assert set(anyorder.__all__) == {*anyorder._HOME, 'measure'}, anyorder.__all__\n"
        "assert set(anyorder.__all__) <= set(dir(anyorder))\n"
        "print(missing, hasattr(anyorder, 'nonsense'), hasattr(anyorder.measure, 'nonsense'))"
    )
    assert run_python(code) == "[] False False"


def test_measures_are_functions() -> None:
    code = (
        "import anyorder, types\n"
        "from anyorder.measure import arness_scores, order_scores, placement_scores\n"
        "from anyorder.measure import similarity_scores\n"
        "for name in anyorder.measure.__all__:\n"
        "    if name != 'placement':\n"
        "        assert isinstance(getattr(anyorder.measure, name), types.FunctionType), name\n"
        "from anyorder.measure.arness_scores import arness\n"
        "print(anyorder.measure.arness([]) == arness([]), 'torch' in sys.modules)\n"
        "print(isinstance(anyorder.measure.placement, types.FunctionType))"
    )
    assert run_python(code) == "True False\nTrue"


def test_no_module_has_the_name_of_a_measure_or_of_a_public_function() -> None:
    """Python binds a loaded module over any name of its parent: then the function would be gone."""
    for folder, names in (("measure", ("order", "arness", "similarity", "diversity", "placement")),
                          ("", ("train", "load", "wrap"))):  # fmt: skip
        found = {path.stem for path in (SOURCE / "anyorder" / folder).iterdir()}
        assert not found & set(names)


def test_train_can_be_called_whatever_was_imported_before() -> None:
    stub = (
        "import types\n"
        "stub = types.ModuleType('anyorder.apps.train')\n"
        "stub.train = lambda recipe, **kw: (recipe, kw)\n"
        "import anyorder.apps\n"
        "sys.modules['anyorder.apps.train'] = stub\n"
    )
    call = "import anyorder; print(anyorder.train('tiny/mdm', steps=2))"
    expected = "('tiny/mdm', {'steps': 2})"
    assert run_python(f"{stub}{call}") == expected
    assert run_python(f"{stub}import anyorder.training\n{call}") == expected
    assert run_python(f"{stub}from anyorder.training.config import TrainConfig\n{call}") == expected


def test_names_and_settings_of_families_cost_no_torch() -> None:
    """The folders of families all have settings and a row, and recipes read the settings alone."""
    code = (
        "from importlib import import_module\n"
        "from anyorder.families import FAMILIES, family_names\n"
        "for name in family_names():\n"
        "    import_module(f'anyorder.families.{name}.config')\n"
        "import anyorder.recipes\n"
        "print('mdm' in FAMILIES, 'nonsense' in FAMILIES, 'torch' in sys.modules)\n"
    )
    assert run_python(code) == "True False False"
    rows = {path.parent.name for path in (SOURCE / "anyorder" / "families").glob("*/family.py")}
    assert rows == {
        path.parent.name for path in (SOURCE / "anyorder" / "families").glob("*/config.py")
    }
