"""What the documentation says is where: every file and every name that a page refers to is there.

A reference is `folder/file.py`, or `folder/file.py: name, Class.method`, in backticks. The folder
may be left out where only one file has the name.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = ("src", "tests", "benchmarks", "recipes", "studies")
REFERENCE = re.compile(r"`([a-z_0-9/]+\.py)(?::\s*([\w.,() ]+?))?`")
SHAPE = ("config.py", "net.py", "loss.py", "decode.py", "family.py")
NAME = re.compile(r"[A-Za-z_][\w.]*")
WRITTEN = re.compile(r"```\w+ file=(\S+)|(?:as|this as|task,|is) `(\w+\.py)`")
"""Files that the reader of a page writes: they are not in the repository."""
PYTHON_PATH = re.compile(r"`((?:anyorder|studies)\.[\w.]+)`")


@lru_cache
def files() -> list[str]:
    found = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def homes(reference: str) -> list[str]:
    """The files that a reference can mean."""
    return [path for path in files() if f"/{path}".endswith(f"/{reference}")]


def is_known_alone(name: str) -> bool:
    """A file at the top of the package, or one that every family has."""
    return name in SHAPE or (ROOT / "src" / "anyorder" / name).is_file()


@lru_cache
def names(path: str) -> frozenset[str]:
    """Every name that a file defines, attributes of classes included."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return frozenset(found)


def unresolved(text: str) -> list[str]:
    written = {name for pair in WRITTEN.findall(text) for name in pair if name}
    found = []
    for reference, named in REFERENCE.findall(text):
        if reference in written:
            continue
        places = homes(reference)
        if not places:
            found.append(f"{reference}: no such file")
        elif "/" not in reference and len(places) > 1 and not is_known_alone(reference):
            found.append(f"{reference}: could be {' or '.join(places)}")
        wanted = NAME.findall(re.sub(r"\([^)]*\)", "", named))
        found += [
            f"{reference}: no {name}"
            for name in wanted
            if not any(set(name.split(".")) <= names(place) for place in places)
        ]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_refers_to_is_there(page: Path) -> None:
    assert unresolved(page.read_text(encoding="utf-8")) == []


def test_a_reference_that_leads_nowhere_is_found() -> None:
    assert unresolved("`process/masking.py: corrupt`") == []
    assert unresolved("`process/attic.py`") == ["process/attic.py: no such file"]
    assert unresolved("`process/masking.py: corrupt, dance`") == ["process/masking.py: no dance"]


def new_paths(page: str) -> list[str]:
    """The Python paths in the right columns of a page's tables."""
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `anyorder.")]
    return [path for row in rows for path in PYTHON_PATH.findall(row[2])]


def leads_somewhere(path: str) -> bool:
    """Whether a path is a module, or an attribute of one."""
    try:
        resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True


def test_every_new_path_of_the_migration_page_imports() -> None:
    paths = new_paths((ROOT / "docs" / "migration.md").read_text(encoding="utf-8"))
    assert len(paths) > 300
    assert [path for path in paths if not leads_somewhere(path)] == []


def test_a_path_that_leads_nowhere_is_found() -> None:
    page = "| `anyorder.attic` | `anyorder.files`; `anyorder.attic.Chest`, in the `attic` |"
    assert new_paths(page) == ["anyorder.files", "anyorder.attic.Chest"]
    assert [leads_somewhere(path) for path in new_paths(page)] == [True, False]
