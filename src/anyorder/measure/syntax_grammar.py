"""The tree of TSED: what tree-sitter's Python grammar makes of a program (appendix B).

Named nodes only, labelled by their type, as the public TSED counts them; comments and docstrings
are nodes. Releases of the grammar differ in what they call a node (some drop
`expression_statement`) and do not always say so in their version: `fingerprint` digests the parse
of a fixed program, and every table of TSED carries it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

from anyorder.measure.syntax_ast import TreeOptions
from anyorder.measure.tree import Tree

# Touches the places where releases of the grammar are known to differ, and some more.
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


def grammar_tree(source: str, options: TreeOptions = TreeOptions()) -> Tree:  # noqa: B008
    """The named nodes of a program."""
    cursor = _parser().parse(source.encode("utf-8", "surrogatepass")).walk()
    labels: list[str] = []
    depths: list[int] = []
    depth = 0
    while True:
        node = cursor.node
        down = False
        # Below what is not named stands nothing that is.
        if node.is_named and (options.comments or node.type != "comment"):
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
    """A digest of the probe's tree: equal digests, equal grammar as far as the probe can see."""
    tree = grammar_tree(PROBE)
    rows = "\n".join(f"{depth} {label}" for label, depth in zip(*tree, strict=True))
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


@cache
def _parser() -> Any:
    # Imported here because most measures need no parser.
    import tree_sitter
    import tree_sitter_python

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
