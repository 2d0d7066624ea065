"""Honest programs that are often wrong: small seeded changes to canonical solutions.

Each mutant differs from its origin in one place: an operator, a comparison, a constant, a
condition, a name, an argument or a statement. No change aims at the grader.
"""

from __future__ import annotations

import ast
import copy
import random
import warnings
from collections.abc import Callable, Iterator

OPERATORS: list[type[ast.operator]] = [ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod]
COMPARISONS: list[type[ast.cmpop]] = [ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq]


def mutants(program: str, seed: int, count: int, within: str | None = None) -> Iterator[str]:
    """Up to `count` distinct mutants of a program, none of them equal to it.

    `within`: change this function only.
    """
    chance = random.Random(f"{seed}:{program}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes in the solutions
        tree = ast.parse(program)
    seen = {ast.unparse(tree)}
    for _ in range(20 * count):
        changed = copy.deepcopy(tree)
        scope = next(
            (node for node in changed.body if getattr(node, "name", "") == within), changed
        )
        places = [node for node in ast.walk(scope) if type(node) in CHANGES]
        if not places:
            return
        node = chance.choice(places)
        CHANGES[type(node)](node, chance)
        text = ast.unparse(ast.fix_missing_locations(changed))
        if text not in seen:
            seen.add(text)
            yield text
            if len(seen) > count:
                return


def _operator(node: ast.BinOp, chance: random.Random) -> None:
    node.op = chance.choice(OPERATORS)()


def _comparison(node: ast.Compare, chance: random.Random) -> None:
    node.ops[0] = chance.choice(COMPARISONS)()


def _constant(node: ast.Constant, chance: random.Random) -> None:
    if isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node.value, int | float):
        node.value += chance.choice([-1, 1])
    elif isinstance(node.value, str):
        node.value = node.value[1:] if node.value else " "


def _condition(node: ast.If | ast.IfExp, chance: random.Random) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _returned(node: ast.Return, chance: random.Random) -> None:
    if node.value is not None:
        kinds: list[Callable[[ast.expr], ast.expr]] = [
            lambda value: ast.List([value], ast.Load()),
            lambda value: ast.Tuple([value, value], ast.Load()),
            lambda value: ast.Call(ast.Name("str", ast.Load()), [value], []),
            lambda value: ast.Call(ast.Name("iter", ast.Load()), [value], []),
            lambda value: ast.UnaryOp(ast.Not(), value),
            lambda value: ast.Constant(None),
        ]
        node.value = chance.choice(kinds)(node.value)


def _call(node: ast.Call, chance: random.Random) -> None:
    if node.args:
        del node.args[chance.randrange(len(node.args))]


def _block(node: ast.FunctionDef | ast.For, chance: random.Random) -> None:
    del node.body[chance.randrange(len(node.body))]
    node.body = node.body or [ast.Pass()]


def _joined(node: ast.BoolOp, chance: random.Random) -> None:
    node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()


def _assigned(node: ast.AugAssign, chance: random.Random) -> None:
    node.op = chance.choice(OPERATORS)()


CHANGES: dict[type, Callable[..., None]] = {
    ast.BinOp: _operator,
    ast.Compare: _comparison,
    ast.Constant: _constant,
    ast.If: _condition,
    ast.IfExp: _condition,
    ast.Return: _returned,
    ast.Call: _call,
    ast.FunctionDef: _block,
    ast.For: _block,
    ast.BoolOp: _joined,
    ast.AugAssign: _assigned,
}
