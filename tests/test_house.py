"""The house rules that a machine can check: sizes, headings, words, and where chance comes from."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from anyorder.families.descriptions import DESCRIPTIONS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = sorted((ROOT / "src" / "anyorder").rglob("*.py"))
STUDY = sorted((ROOT / "studies").rglob("*.py"))

FILE_LINES = 600
FUNCTION_LINES = 60
FOLDER_FILES = 20

UNWANTED = {
    "a note to self": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b"),
    "an emoji": re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]"),
    "a path of one machine": re.compile(r"(?<![\w.~}/])/(home|root|Users|wo" + r"rk|mnt)/\w"),
    "a package index": re.compile(r"--(extra-)?index" + r"-url|--find-links|\bPIP_INDEX"),
    "remote code": re.compile(r"trust_remote_code\s*=\s*True"),
}

# Chance is an argument: these draw from a hidden stream. Seeded generators are fine.
GLOBAL_STREAMS = re.compile(
    r"\b(?:"
    r"torch\.(?:rand|randn|randint|randperm|multinomial|bernoulli|normal|manual_seed)"
    r"|(?:np|numpy)\.random\.(?:rand|randn|randint|random|choice|permutation|shuffle|seed|normal)"
    r"|random\.(?:random|randint|randrange|choice|choices|shuffle|sample|uniform|gauss|seed)"
    r")$"
)
KEYED_ROOMS = ("process", "decode", "data")

# Only these folders know families by name; everything else asks a description for a property.
FAMILY_ROOMS = ("families", "recipes")
FAMILY_NAMES_LEFT = {
    "hub/formats.py": 4,  # which family a published checkpoint is of
    "trace/recorders/adapters.py": 6,  # the formats of `anyorder import`
}
"""How many are left where. A ratchet: numbers fall and files go, nothing is added."""


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def unwanted(text: str) -> list[str]:
    return [
        f"{number}: {what}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in UNWANTED.items()
        if pattern.search(line)
    ]


def hidden_draws(source: str) -> list[str]:
    """Calls that take chance from a global stream; a `generator=` argument makes one fine."""
    return [
        f"{node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and GLOBAL_STREAMS.match(ast.unparse(node.func))
        and not any(keyword.arg == "generator" for keyword in node.keywords)
    ]


def unsafe_loads(source: str) -> list[int]:
    """Lines with a `torch.load` that would run what it reads."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "torch.load"
        and not any(
            keyword.arg == "weights_only" and ast.unparse(keyword.value) == "True"
            for keyword in node.keywords
        )
    ]


def long_functions(source: str) -> list[str]:
    return [
        f"{node.lineno}: {node.name} has {(node.end_lineno or node.lineno) - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES
    ]


ORDINARY = {"block"}
"""Names of families that are also a word for other things: slots, settings, fenced text."""


def family_names(source: str) -> list[str]:
    """String constants that are a family's name; docstrings are none."""
    return [
        f"{node.lineno}: {node.value}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and node.value in DESCRIPTIONS.keys() - ORDINARY
    ]


def text_files() -> list[Path]:
    """What git knows or would add (all text of the project), or a walk where there is no git."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listing.stdout.split("\0") if listing.returncode == 0 else []
    found = [ROOT / name for name in names if name]
    found = found or [*SOURCE, *ROOT.glob("*"), *ROOT.glob("docs/**/*"), *ROOT.glob("tests/**/*")]
    kinds = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".html", ".js", ".css", ""}
    return [path for path in found if path.is_file() and path.suffix in kinds]


@pytest.mark.parametrize("path", [*SOURCE, *STUDY], ids=named)
def test_a_source_file_is_one_idea_of_bounded_size(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    heading = ast.get_docstring(ast.parse(source))
    assert len((heading or "").split()) >= 4, "open the file with what it is"
    lines = len(source.splitlines())
    assert lines <= FILE_LINES, f"{lines} lines: give one of its ideas a file of its own"
    assert not long_functions(source), "cut these into steps that have names"


@pytest.mark.parametrize("path", [*SOURCE, *STUDY], ids=named)
def test_loading_never_runs_what_it_reads(path: Path) -> None:
    assert not unsafe_loads(path.read_text(encoding="utf-8")), "pass weights_only=True"


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCE if path.relative_to(ROOT).parts[2] in KEYED_ROOMS],
    ids=named,
)
def test_chance_is_an_argument(path: Path) -> None:
    assert not hidden_draws(path.read_text(encoding="utf-8")), "key the noise: process/noise.py"


def test_families_are_known_by_their_descriptions() -> None:
    package = ROOT / "src" / "anyorder"
    found = {
        path.relative_to(package).as_posix(): names
        for path in SOURCE
        if path.relative_to(package).parts[0] not in FAMILY_ROOMS
        and (names := family_names(path.read_text(encoding="utf-8")))
    }
    new = {name: names for name, names in found.items() if name not in FAMILY_NAMES_LEFT}
    assert not new, f"ask families/descriptions.py for a property: {new}"
    counts = {name: len(names) for name, names in found.items()}
    assert counts == FAMILY_NAMES_LEFT, "more names than before; or fewer: lower the numbers"


def test_words_that_do_not_belong() -> None:
    files = [path for path in text_files() if path.name != Path(__file__).name]
    assert len(files) > 10
    found = [
        f"{named(path)}:{line}"
        for path in files
        for line in unwanted(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_rules_can_fail() -> None:
    assert len(unwanted("# TO" + "DO: later")) == 1
    assert len(unwanted("read /ho" + "me/someone/x")) == 1
    assert unwanted("a todo list; ./wo" + "rk/x; https://example.org/wo" + "rk/x; ~/home") == []
    assert long_functions("def f():\n" + "    pass\n" * FUNCTION_LINES)
    assert not long_functions("def f():\n" + "    pass\n" * (FUNCTION_LINES - 1))
    assert hidden_draws("x = torch.rand(3)\ny = np.random.choice(4)\nz = random.shuffle(a)")
    assert len(hidden_draws("torch.rand(3)\nnp.random.choice(4)\nrandom.shuffle(a)")) == 3
    assert not hidden_draws(
        "torch.rand(3, generator=g)\nrandom.Random(0).shuffle(a)\nrng.choice(4)"
    )
    assert family_names("if run.family == 'mdm':\n    x = {'duo': 1, 'mdm-2': 2}") == [
        "1: mdm",
        "2: duo",
    ]
    assert not family_names('"""About mdm."""\nx = f\'the mdm of {y}\'\nz = \'mdms\'')
    assert unsafe_loads("torch.load(p)\ntorch.load(p, weights_only=False)") == [1, 2]
    assert not unsafe_loads("torch.load(p, weights_only=True)")


FILES, LINES = 273, 67_920
"""Today's size of the package, a ratchet; CHANGELOG.md states what grew, and why. Version 0.2.0 had
224 files and 56,000 lines."""


def test_the_package_does_not_grow_silently() -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE)
    assert len(SOURCE) <= FILES and lines <= LINES, (len(SOURCE), lines)


def test_a_folder_can_be_overlooked() -> None:
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in SOURCE)
    large = {folder: size for folder, size in sizes.items() if size > FOLDER_FILES}
    assert not large, "make folders of what belongs together"


def type_names(source: str) -> list[tuple[str, str]]:
    """Public classes and type aliases, each with its definition.

    An alias is a name in capitals and small letters that is assigned at the top of a file. Two
    equal aliases are one thing; two classes, or a class and an alias, never are.
    """
    tree = ast.parse(source)
    found = [(node.name, "") for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[0].isupper() and not name.isupper():
                found.append((name, ast.unparse(node.value)))
    return [(name, definition) for name, definition in found if not name.startswith("_")]


def shared_names(sources: dict[str, str]) -> dict[str, list[str]]:
    """The names of types that stand for several things, with their files."""
    homes: dict[str, list[tuple[str, str]]] = {}
    for place, source in sources.items():
        for name, definition in type_names(source):
            homes.setdefault(name, []).append((place, definition))
    return {
        name: [place for place, _ in found]
        for name, found in homes.items()
        if len(found) > 1 and (len({what for _, what in found}) > 1 or not found[0][1])
    }


def test_no_public_type_name_stands_for_two_things() -> None:
    assert not shared_names({named(path): path.read_text(encoding="utf-8") for path in SOURCE})


def test_a_type_name_with_two_meanings_is_found() -> None:
    sources = {
        "a.py": "Row = dict[str, int]\nKey = tuple[str, int]\nROW = 1\n_Way = str",
        "b.py": "class Row: pass\nKey = tuple[str, int]\nROW = 2\n_Way = int",
        "c.py": "class Run: pass\nWay = str",
        "d.py": "class Run: pass\nWay = int",
    }
    assert shared_names(sources).keys() == {"Row", "Run", "Way"}
