"""Structural similarity end to end, against apted on the same pairs.

    ours    text -> parse -> trees -> best match -> table with intervals, on all cores
    apted   the exact distance of every pair, pure Python, one core; trees already made

Programs come from a seeded generator: per prompt one function and variants of it as a sampler at
low temperature writes them (renamed variables, other constants, swapped statements, other forms of
a loop, a guard, a helper variable), with duplicates. apted is timed on a sample of the pairs, drawn
evenly over prompts and metrics, and scaled to all of them; the sample's distances must agree.

    python benchmarks/measures.py            20 prompts x 32 x 32, about three minutes
    python benchmarks/measures.py --small    seconds, to try the script
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import statistics
import time
from collections.abc import Callable

TOPICS = (
    ("total", "xs", "0", "total += x", "x > 0"),
    ("count", "words", "0", "count += len(x)", "x.startswith('a')"),
    ("result", "items", "[]", "result.append(x * 2)", "x % 2 == 0"),
    ("seen", "values", "set()", "seen.add(x)", "x not in seen"),
    ("text", "lines", "''", "text = text + x.strip() + ' '", "len(x) > 3"),
    ("best", "numbers", "None", "best = x if best is None else max(best, x)", "x is not None"),
    ("table", "pairs", "{}", "table[x[0]] = table.get(x[0], 0) + x[1]", "x[1] != 0"),
    ("stack", "tokens", "[]", "stack.append(x) if x == '(' else stack.pop()", "x in '()'"),
    ("product", "factors", "1", "product = product * x % 1000007", "x > 1"),
    ("low", "heights", "10 ** 9", "low = min(low, x - low)", "x >= 0"),
)
NAMES = ("a", "b", "res", "out", "acc", "cur", "val", "tmp", "data", "seq", "item", "n", "k", "i")


def base_program(number: int) -> str:
    """The function of a prompt; two shapes over ten topics."""
    result, given, start, step, condition = TOPICS[number % len(TOPICS)]
    if number // len(TOPICS) % 2 == 0:
        return f'''def solve{number}({given}, limit=10):
    """Answer question {number}."""
    {result} = {start}
    skipped = 0
    for i in range(len({given})):
        x = {given}[i]
        if {condition} and i < limit:
            {step}
        else:
            skipped += 1
    if skipped == len({given}):
        return {start}
    return {result}
'''
    return f'''from typing import List

def helper{number}(x, limit):
    if {condition.replace("seen", "(limit,)")}:
        return x
    return limit

def solve{number}({given}, limit=3):
    {result} = {start}
    previous = None
    index = 0
    for x in sorted({given}, key=str):
        if x == previous:
            continue
        while index < limit and x != previous:
            {step}
            previous = helper{number}(x, limit)
            index += 1
    return {result}, [y for y in {given} if y == previous]
'''


class Variant(ast.NodeTransformer):
    """One way in which another sample differs: each rule applies with its own chance."""

    def __init__(self, chance: random.Random, rate: float) -> None:
        self.chance, self.rate = chance, rate
        self.names: dict[str, str] = {}

    def happens(self) -> bool:
        return self.chance.random() < self.rate

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and self.happens():
            return ast.Constant(node.value + self.chance.randint(1, 3))
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not self.happens() or not isinstance(node.target, ast.Name):
            return node
        read = ast.Name(node.target.id, ast.Load())
        return ast.Assign([node.target], ast.BinOp(read, node.op, node.value), lineno=0)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not self.happens():
            return node
        if isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range":
            begin = ast.Assign([node.target], ast.Constant(0), lineno=0)
            test = ast.Compare(ast.Name(node.target.id, ast.Load()), [ast.Lt()], node.iter.args[-1:])
            advance = ast.AugAssign(node.target, ast.Add(), ast.Constant(1))
            return [begin, ast.While(test, [*node.body, advance], [])]
        call = ast.Call(ast.Name("enumerate", ast.Load()), [node.iter], [])
        pair = ast.Tuple([ast.Name("j", ast.Store()), node.target], ast.Store())
        return ast.For(pair, call, node.body, [], lineno=0)

    def visit_Return(self, node: ast.Return) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not self.happens() or node.value is None:
            return node
        kept = ast.Assign([ast.Name("answer", ast.Store())], node.value, lineno=0)
        return [kept, ast.Return(ast.Name("answer", ast.Load()))]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if self.happens() and len(node.body) > 3:
            place = self.chance.randrange(1, len(node.body) - 2)
            node.body[place : place + 2] = node.body[place : place + 2][::-1]
        if self.happens():
            given = ast.Name(node.args.args[0].arg, ast.Load())
            guard = ast.If(ast.UnaryOp(ast.Not(), given), [ast.Return(ast.Constant(None))], [])
            node.body.insert(0, guard)
        return node


class Renaming(ast.NodeTransformer):
    """Other names for some variables: another text, the same anonymised tree."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.names = chance, dict[str, str]()

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in dir(__builtins__) and node.id not in self.names:
            new = self.chance.choice(NAMES)
            taken = new in self.names.values()
            self.names[node.id] = node.id if taken or self.chance.random() < 0.7 else new
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def samples(number: int, count: int, rate: float, seed: int) -> list[str]:
    """What one policy wrote for one prompt. About half are one of the few most likely programs."""
    chance = random.Random(f"{seed}/{number}/{rate}")
    base = base_program(number)
    usual = [variant(base, chance, rate / 2) for _ in range(3)]
    return [
        chance.choice(usual) if chance.random() < 0.5 else variant(base, chance, rate)
        for _ in range(count)
    ]


def variant(source: str, chance: random.Random, rate: float) -> str:
    tree = Renaming(chance).visit(Variant(chance, rate).visit(ast.parse(source)))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
