"""The trees that similarity compares: ASTD, Coarse and TSED (appendix B).

A tree is two rows: labels and depths in preorder.

ASTD: the nodes of Python's `ast`, children in the order of its fields. A label is the node's kind
and its values: `Constant(1)`, `Attribute(append)`. Names of variables, arguments, functions and
classes become placeholders, numbered by first occurrence (`v0, v1, ...`) or all alike (`v`).
Literals keep their values. Docstrings of the module and of its definitions are left out, and so are
the empty pieces that some releases of Python find in f-strings.

Coarse: the statements of the same tree, each below the nearest statement around it; nodes between
are collapsed into the label of their statement.

TSED: the named nodes of tree-sitter's Python grammar, labelled by type, as the public TSED counts
them; comments and docstrings are nodes. Releases of the grammar differ in what they call a node
(some drop `expression_statement`), not always with a new version: `fingerprint` digests the parse
of a fixed program, and every table of TSED carries it.

The paper leaves open what `TreeOptions` names; docs/similarity.md says what each choice does.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from anyorder.measure.syntax import is_string

TREE_MEASURES = ("order", "diversity", "similarity")
"""Measures of statement trees: for programs only."""


class Tree(NamedTuple):
    """Node 0 is the root; a node's parent is the last one before it that is one level higher."""

    labels: tuple[str, ...]
    depths: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.labels)

    def __str__(self) -> str:
        """One node per line, indented."""
        rows = zip(self.labels, self.depths, strict=True)
        return "\n".join(f"{'  ' * depth}{label}" for label, depth in rows)


_DEFINITIONS = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

# Python refuses to print longer integers in decimal.
LONGEST_DECIMAL_BITS = 8_000


@dataclass(frozen=True)
class TreeOptions:
    """What the definitions of the paper leave open; the defaults are its most literal reading."""

    placeholders: str = "indexed"
    """indexed: v0, v1, ... by first occurrence; single: every name is the same."""
    contexts: bool = False
    """Whether the Load, Store and Del below every name are nodes."""
    nested_docstrings: bool = True
    """Whether docstrings of methods and of functions inside functions stay."""
    attribute_names: bool = True
    """Whether names of attributes and keyword arguments stay; else they are placeholders."""
    statement_labels: str = "kind"
    """Coarse: kind: the label is the kind of statement; expression: kind and all below it."""
    comments: bool = True
    """TSED: whether comments are nodes, as in the public code."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}: choose one of {', '.join(choices)}"
                )


_CHOICES = {"placeholders": ("indexed", "single"), "statement_labels": ("kind", "expression")}

# Fields that hold a name chosen by the programmer. Other strings and numbers stay in the label.
_NAMES = {
    **dict.fromkeys(("FunctionDef", "AsyncFunctionDef", "ClassDef", "ExceptHandler"), "name"),
    **dict.fromkeys(("MatchAs", "MatchStar", "TypeVar", "ParamSpec", "TypeVarTuple"), "name"),
    **dict.fromkeys(("Global", "Nonlocal"), "names"),
    "Name": "id",
    "arg": "arg",
    "alias": "asname",
    "MatchMapping": "rest",
}
_ATTRIBUTES = {"Attribute": "attr", "keyword": "arg", "MatchClass": "kwd_attrs"}

# Fields without meaning: how a string was spelt, type comments, parentheses.
_SILENT = {"kind", "type_comment", "simple", "type_ignores"}

# The fields whose values are part of the label.
_VALUES: dict[str, tuple[str, ...]] = {
    "Constant": ("value",),
    "Attribute": ("attr",),
    "keyword": ("arg",),
    "alias": ("name", "asname"),
    "ImportFrom": ("module", "level"),
    "FormattedValue": ("conversion",),
    "comprehension": ("is_async",),
    "MatchSingleton": ("value",),
    "MatchClass": ("kwd_attrs",),
    **{kind: (name,) for kind, name in _NAMES.items() if kind != "alias"},
}


def ast_tree(module: ast.Module, options: TreeOptions | None = None) -> Tree:
    """The anonymised syntax tree of a program, as ASTD compares it."""
    return _flattened(module, options or TreeOptions())[0]


def coarse_tree(module: ast.Module, options: TreeOptions | None = None) -> Tree:
    """The statement-level tree of a program, as Coarse compares it."""
    return ast_and_coarse(module, options or TreeOptions())[1]


def ast_and_coarse(module: ast.Module, options: TreeOptions) -> tuple[Tree, Tree]:
    """Both, from one walk."""
    tree, statements = _flattened(module, options)
    return tree, _COARSE[options.statement_labels](tree, statements)


def _flattened(module: ast.Module, options: TreeOptions) -> tuple[Tree, list[bool]]:
    """The tree, and whether each node is a statement (the module is one)."""
    labels: list[str] = []
    depths: list[int] = []
    statements: list[bool] = []
    plans = _plans(options)
    names = _Names(options.placeholders == "indexed")
    # A stack, not recursion: programs may be deeper than Python's recursion limit.
    stack: list[tuple[Any, int]] = [(module, 0)]
    while stack:
        node, depth = stack.pop()
        cls = node.__class__
        plan = plans.get(cls)
        if plan is None:
            plan = plans[cls] = _plan(cls, options)
        labels.append(plan.describe(node, names) if plan.describe else plan.kind)
        depths.append(depth)
        statements.append(plan.is_statement)
        below: list[Any] = []
        for field in plan.fields:
            value = getattr(node, field, None)
            if value.__class__ is list:
                below += value
            elif value is not None:
                below.append(value)
        if plan.has_docstring and (depth <= 1 or not options.nested_docstrings):
            body = node.body
            if body and is_string(body[0]):
                below = [item for item in below if item is not body[0]]
        elif cls is ast.JoinedStr:
            below = [item for item in below if getattr(item, "value", None) != ""]
        depth += 1
        # A dictionary's `**rest` has no key, and keyword-only arguments may have no default.
        stack += [(item, depth) for item in reversed(below) if item is not None]
    return Tree(tuple(labels), tuple(depths)), statements


class _Names:
    """Placeholders of one program."""

    def __init__(self, indexed: bool) -> None:
        self.indexed = indexed
        self.known: dict[str, str] = {}

    def __call__(self, name: str | None) -> str:
        if name is None:
            return ""
        if not self.indexed:
            return "v"
        if name not in self.known:
            self.known[name] = f"v{len(self.known)}"
        return self.known[name]


@dataclass(frozen=True)
class _Plan:
    """How to label the nodes of one class, and where their children are."""

    kind: str
    describe: Callable[[Any, _Names], str] | None
    """None: the kind is the whole label."""
    fields: tuple[str, ...]
    """The fields that hold children."""
    is_statement: bool
    has_docstring: bool


@cache
def _plans(options: TreeOptions) -> dict[type, _Plan]:
    """A dict per options, which `_flattened` fills: a plan is made once per class."""
    return {}


def _plan(cls: type, options: TreeOptions) -> _Plan:
    kind = cls.__name__
    values = _VALUES.get(kind, ())
    replaced = {_NAMES.get(kind)}
    if not options.attribute_names:
        replaced.add(_ATTRIBUTES.get(kind))
    unseen = {*values, *_SILENT} | (set() if options.contexts else {"ctx"})
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    return _Plan(
        kind,
        _description(kind, values, replaced) if values else None,
        tuple(name for name in fields if name not in unseen),
        issubclass(cls, ast.stmt | ast.Module),
        issubclass(cls, _DEFINITIONS),
    )


def _description(
    kind: str, values: tuple[str, ...], replaced: set[str | None]
) -> Callable[[Any, _Names], str]:
    """A function that writes the label of such a node."""
    steps = tuple((name, name in replaced) for name in values)

    def describe(node: Any, names: _Names) -> str:
        parts = []
        for name, is_replaced in steps:
            value = getattr(node, name)
            if value.__class__ is list:
                texts = [names(item) if is_replaced else item for item in value]
                parts.append(",".join(texts))
            else:
                parts.append(names(value) if is_replaced else _shown(value))
        return f"{kind}({','.join(parts)})"

    return describe


def _shown(value: Any) -> str:
    if value.__class__ is int and value.bit_length() > LONGEST_DECIMAL_BITS:
        return hex(value)
    return repr(value)


def _open_statements(tree: Tree, statements: list[bool]) -> Iterator[tuple[int, int, int]]:
    """Per node: its index, the index of its statement, and that statement's depth."""
    around: list[int] = []
    for index, (depth, is_statement) in enumerate(zip(tree.depths, statements, strict=True)):
        while around and tree.depths[around[-1]] >= depth:
            around.pop()
        if is_statement:
            around.append(index)
        yield index, around[-1], len(around) - 1


def _kinds(tree: Tree, statements: list[bool]) -> Tree:
    kept = [
        (tree.labels[index].partition("(")[0], depth)
        for index, owner, depth in _open_statements(tree, statements)
        if index == owner
    ]
    labels, depths = zip(*kept, strict=True)
    return Tree(labels, depths)


def _expressions(tree: Tree, statements: list[bool]) -> Tree:
    texts: dict[int, list[str]] = {}
    depths = []
    for index, owner, depth in _open_statements(tree, statements):
        if index == owner:
            texts[index] = [tree.labels[index]]
            depths.append(depth)
        else:
            texts[owner].append(f"{tree.depths[index] - tree.depths[owner]}{tree.labels[index]}")
    return Tree(tuple(" ".join(parts) for parts in texts.values()), tuple(depths))


_COARSE = {"kind": _kinds, "expression": _expressions}


# Covers the places where releases of the grammar are known to differ, and some more.
PROBE = '''
import math as m
@d
async def f(x: int = 1, *args, **kw) -> str:
    """Doc."""
    y = x + 1  # comment
    print(f"{y!r:>{x}}", end="")
    for i, (a, b) in enumerate(z[1:-1]):
        if a < b <= 2 and not a: continue
        elif a: a += lambda q: q ** 2
        else: del a
    with open("f") as g: return [v async for v in g if v] or {**kw, "k": (yield)}
    try: assert x is not None, "no"
    except (A, B) as e: raise C from e
    match x:
        case {"a": [1, *rest]} | P(n=2): pass
class D(E, metaclass=M): z: int = ...
'''


def grammar_tree(source: str, options: TreeOptions | None = None) -> Tree:
    """The named nodes of a program."""
    comments = (options or TreeOptions()).comments
    cursor = _parser().parse(source.encode("utf-8", "surrogatepass")).walk()
    labels: list[str] = []
    depths: list[int] = []
    depth = 0
    while True:
        node = cursor.node
        down = False
        # A node without a name has no named nodes below it.
        if node.is_named and (comments or node.type != "comment"):
            labels.append(node.type)
            depths.append(depth)
            down = cursor.goto_first_child()
        if down:
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return Tree(tuple(labels), tuple(depths))
            depth -= 1


@cache
def fingerprint() -> str:
    """A digest of the probe's tree; the same for grammars that agree on the probe."""
    tree = grammar_tree(PROBE)
    rows = "\n".join(f"{depth} {label}" for label, depth in zip(*tree, strict=True))
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


@cache
def _parser() -> Any:
    # Imported here because most measures need no parser.
    import tree_sitter
    import tree_sitter_python

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
