"""Structural similarity end to end, against apted on the same pairs.

    ours    text -> parse -> trees -> best match -> table with intervals, on all cores
    apted   the exact distance of every pair in pure Python, trees already made, one core

A seeded generator makes the programs: one function per prompt, and variants of it such as a sampler
at low temperature writes (renamed variables, other constants, swapped statements, other forms of a
loop, a guard, a helper variable). About half of them are repeated. apted is timed on a sample of
the pairs, drawn evenly over prompts and metrics, and scaled to all pairs. A second line scales it
to the distinct pairs of trees, as if apted computed each of them only once. Both sides must agree
on the sample. Times are wall-clock on this machine; compiled code is loaded before.

    python benchmarks/measures.py            20 prompts x 32 x 32, about a minute
    python benchmarks/measures.py --small    seconds, to try the script
"""

from __future__ import annotations

import argparse
import ast
import builtins
import random
import statistics
import time
from dataclasses import dataclass

import apted

from anyorder.measure.programs import METRICS, Preparation, ProgramOptions, Programs
from anyorder.measure.similarity_scores import SimilarityOptions, similarity
from anyorder.measure.tree_edit import cores, distances, identity
from anyorder.measure.trees import Tree
from tables import show

DOMINATES = """
Ours spends nine tenths of its time on parsing texts and preparing trees (Python's parser and ours).
The other tenth is the compiled kernel, on pairs of distinct trees that bounds leave undecided. The
floor by count is the distinct pairs, a twelfth of all; the rest of the ratio is compiled code
against interpreted code.
"""

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


SHAPES = (
    """def solve({given}):
    return [{value} for x in {given} if {condition}]
""",
    """def solve({given}):
    {result} = {start}
    for x in {given}:
        if {condition}:
            {step}
    return {result}
""",
    '''def solve({given}, limit=10):
    """Answer the question."""
    {result} = {start}
    skipped = 0
    for i in range(len({given})):
        x = {given}[i]
        if {condition} and i < limit:
            {step}
        else:
            skipped += 1
    if skipped == len({given}):
        return None
    return {result}
''',
    """def helper(x, limit):
    if x == limit:
        return x
    return limit

def solve({given}, limit=3):
    {result} = {start}
    previous = None
    for x in sorted({given}, key=str):
        if x != previous and {condition}:
            {step}
        previous = helper(x, limit)
    return {result}
""",
)


def base_program(number: int) -> str:
    """The function of a prompt: four shapes, ten topics."""
    result, given, start, step, condition = TOPICS[number % len(TOPICS)]
    value = "x" if number % 2 else "(x, str(x))"
    parts = {"result": result, "given": given, "start": start, "step": step}
    return SHAPES[number % len(SHAPES)].format(**parts, condition=condition, value=value)


class Variant(ast.NodeTransformer):
    """One way in which another sample differs: each rule applies with its own chance."""

    def __init__(self, chance: random.Random, rate: float) -> None:
        self.chance, self.rate = chance, rate

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
            test = ast.Compare(
                ast.Name(node.target.id, ast.Load()), [ast.Lt()], node.iter.args[-1:]
            )
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
        if self.happens() and len(node.body) > 2:
            place = self.chance.randrange(len(node.body) - 2)
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
        if not hasattr(builtins, node.id) and node.id not in self.names:
            new = self.chance.choice(NAMES)
            taken = new in self.names.values()
            self.names[node.id] = node.id if taken or self.chance.random() < 0.7 else new
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def samples(number: int, count: int, rate: float, seed: int) -> list[str]:
    """The programs of one policy for one prompt. About half are among the few most likely ones."""
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


class Costs(apted.Config):
    """Trees as (label, children), for apted."""

    def __init__(self, rename_cost: int) -> None:
        self.rename_cost = rename_cost

    def rename(self, node1: tuple, node2: tuple) -> int:
        return self.rename_cost if node1[0] != node2[0] else 0

    def children(self, node: tuple) -> list:
        return node[1]


def nested(tree: Tree) -> tuple:
    path: list[tuple] = []
    for label, depth in zip(*tree, strict=True):
        node = (label, [])
        del path[depth:]
        if path:
            path[-1][1].append(node)
        path.append(node)
    return path[0]


@dataclass(frozen=True)
class Size:
    """How much to compare."""

    prompts: int = 20
    samples: int = 32
    timed_pairs: int = 600
    """On which apted is timed, over all metrics."""
    repeats: int = 5


SMALL = Size(prompts=4, samples=8, timed_pairs=60, repeats=2)


def time_ours(policy: Programs, reference: Programs, repeats: int) -> float:
    options = SimilarityOptions(ceiling=False)
    seconds = []
    for turn in range(repeats + 1):  # the first only loads and compiles
        started = time.perf_counter()
        similarity(policy, reference, options)
        if turn:
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def time_apted(pairs: list[tuple[str, Tree, Tree]]) -> float:
    """Seconds for these pairs; checks that both find the same distances."""
    seconds = 0.0
    for metric, left, right in pairs:
        cost = METRICS[metric]
        one, other = nested(left), nested(right)
        started = time.perf_counter()
        found = apted.APTED(one, other, Costs(cost)).compute_edit_distance()
        seconds += time.perf_counter() - started
        assert found == distances([left], [right], cost)[0, 0]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="similarity against apted")
    parser.add_argument("--small", action="store_true", help="seconds, to try the script")
    size = SMALL if parser.parse_args().small else Size()
    tasks = {str(number): number for number in range(size.prompts)}
    policy, reference = (
        Programs.of_texts(
            name, {task: samples(n, size.samples, rate, seed) for task, n in tasks.items()}
        )
        for name, rate, seed in (("policy", 0.2, 1), ("reference", 0.1, 2))
    )
    ours = time_ours(policy, reference, size.repeats)
    prepare = Preparation(ProgramOptions())
    left, right = prepare.by_task(policy), prepare.by_task(reference)
    pairs = [
        (metric, a.trees[metric], b.trees[metric])
        for metric in METRICS
        for task in tasks
        for a in left[task]
        for b in right[task]
    ]
    distinct = {(m, identity(a, METRICS[m]), identity(b, METRICS[m])) for m, a, b in pairs}
    sample = pairs[:: max(1, len(pairs) // size.timed_pairs)]
    each = time_apted(sample) / len(sample)
    nodes = statistics.mean(a.size for metric, a, _ in pairs if metric == "ASTD")
    rows = [[f"ours, end to end, {cores()} cores", f"{len(pairs):,}", f"{ours:.2f}", "1"]]
    for what, count in (("all pairs", len(pairs)), ("distinct pairs", len(distinct))):
        seconds = each * count
        rows.append([f"apted, {what}", f"{count:,}", f"{seconds:,.0f}", f"{seconds / ours:,.0f}"])
    title = (
        f"{size.prompts} prompts x {size.samples} x {size.samples}, {', '.join(METRICS)}, "
        f"{nodes:.0f} nodes (ASTD, mean); apted scaled from {len(sample)} pairs at "
        f"{1 / each:.1f} a second"
    )
    show(title, ["", "pairs", "wall s", "ratio"], rows)


if __name__ == "__main__":
    main()
