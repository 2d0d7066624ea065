"""GSM8K solutions -> Python programs, through their calculator annotations `<<48/2=24>>`.

Each annotation becomes an assignment. A number that an earlier step computed becomes that step's
variable (of several with one value the latest), so that the program computes what the solution
says; all other numbers stay numbers. A variable's name is made of the words behind the annotation,
"<<48/2=24>>24 clips in May" -> `clips_may`.

    def simple_math_problem():
        clips_may = 48 / 2
        clips_altogether = 48 + clips_may
        result = clips_altogether
        return result

Programs are not run: `evaluate` walks the tree of the finished text and knows + - * / // % ** on
numbers, nothing else. What it returns must be the number behind `####` (integers equal, otherwise
within 1e-3), as the task gsm8k grades it. Every step must also agree with its annotation to one
part in a hundred: solutions round.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable
from typing import Any

FUNCTION = "simple_math_problem"
STEP_TOLERANCE = 0.01
ANSWER_TOLERANCE = 1e-3
MOST_EXPONENT = 64
NAME_WORDS = 3

_ANNOTATION = re.compile(r"<<([^<>=]*)=([^<>]*)>>")
_GOLD = re.compile(r"####\s*(-?[\d,]*\.?\d+)\s*$")
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.?\d*|\.\d+)")
_WORDS_BEHIND = re.compile(r"[ $]*(?:\d[\d,]*)?(?:\.\d+)?[ %]*((?:[A-Za-z]+ ?){1,8})")
_EMPTY_WORDS = frozenset(
    (
        *("a", "all", "an", "and", "are", "as", "at", "be", "by", "each", "for", "from", "had"),
        *("has", "have", "he", "her", "his", "in", "is", "it", "its", "of", "on", "or", "per"),
        *("she", "so", "that", "the", "their", "then", "there", "they", "this", "to", "was"),
        *("were", "will", "with", "would"),
    )
)
_PRINTED = {"result", FUNCTION}


class NoProgram(ValueError):
    """The solution cannot be made a program; the message is the reason, in a few words."""


def program_of(answer: str) -> str:
    """The program of a solution, evaluated and found right."""
    gold = _GOLD.search(answer)
    if gold is None:
        raise NoProgram("no answer")
    steps = list(_ANNOTATION.finditer(answer))
    if not steps:
        raise NoProgram("no annotations")
    names: dict[str, float] = {}
    lines = []
    for number, step in enumerate(steps, start=1):
        expression = _expression(step[1])
        value = _compute(expression, {})
        if not _close(value, _number(step[2]), STEP_TOLERANCE):
            raise NoProgram("annotation is wrong")
        text = _with_variables(expression, names)
        name = _name(answer[step.end() :], names, number)
        lines.append(f"{name} = {text}")
        names[name] = value
    lines += [f"result = {list(names)[-1]}", "return result"]
    program = f"def {FUNCTION}():\n" + "\n".join(f"    {line}" for line in lines)
    wanted = _number(gold[1])
    found = evaluate(program)
    if found != wanted and abs(found - wanted) > ANSWER_TOLERANCE:
        raise NoProgram("another answer")
    return program


def evaluate(program: str) -> float:
    """What a function of assignments returns, by walking its tree; NoProgram for all else."""
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NoProgram("not arithmetic") from None
    match tree.body:
        case [ast.FunctionDef(args=ast.arguments(args=[]), body=body)]:
            pass
        case _:
            raise NoProgram("not arithmetic")
    names: dict[str, float] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _walk(value, names)
            case ast.Return(value=ast.expr() as value):
                return _walk(value, names)
            case _:
                raise NoProgram("not arithmetic")
    raise NoProgram("returns nothing")


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > MOST_EXPONENT:
        raise NoProgram("too large a power")
    value = base**exponent
    if isinstance(value, complex):
        raise NoProgram("not arithmetic")
    return float(value) if isinstance(base, float) else value


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def _walk(node: ast.expr, names: dict[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            try:
                return _OPERATORS[type(op)](_walk(left, names), _walk(right, names))
            except (ZeroDivisionError, OverflowError):
                raise NoProgram("divides by zero") from None
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
            return _SIGNS[type(op)](_walk(operand, names))
    raise NoProgram("not arithmetic")


def _expression(text: str) -> str:
    """An annotation's left side as Python: no thousands, currency or leading zeros; % as 1/100."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text).replace("$", "")
    text = re.sub(r"(?<=\d)\s*[xX\u00d7]\s*(?=[\d(.])", "*", text)
    text = re.sub(r"(\d+\.?\d*|\.\d+)%(?!\s*[\d(])", r"(\1/100)", text)
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", text)
    try:
        return ast.unparse(ast.parse(text.strip(), mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NoProgram("not arithmetic") from None


def _compute(expression: str, names: dict[str, float]) -> float:
    return _walk(ast.parse(expression, mode="eval").body, names)


def _with_variables(expression: str, names: dict[str, float]) -> str:
    """Numbers that earlier steps computed, by these steps' names."""
    latest = {value: name for name, value in names.items()}

    def name_of(match: re.Match[str]) -> str:
        value = _number(match[0])
        return next((latest[known] for known in latest if _close(known, value, 1e-9)), match[0])

    return _NUMBER.sub(name_of, expression)


def _name(behind: str, names: dict[str, float], number: int) -> str:
    match = _WORDS_BEHIND.match(behind)
    words = [word.lower() for word in (match[1].split() if match else [])]
    told = [word for word in words if word not in _EMPTY_WORDS][:NAME_WORDS]
    base = "_".join(told) or f"step_{number}"
    if keyword.iskeyword(base) or base in _PRINTED:
        base += "_count"
    name, again = base, 2
    while name in names:
        name, again = f"{base}_{again}", again + 1
    return name


def _number(text: str) -> float:
    digits = re.sub(r"[,$%\s]", "", text)
    try:
        return float(digits) if "." in digits else int(digits)
    except ValueError:
        raise NoProgram("not a number") from None


def _close(left: float, right: float, tolerance: float) -> bool:
    return abs(left - right) <= tolerance * max(1.0, abs(left), abs(right))
