"""The corpora of the paper as recipes: columns -> (prompt, answer), with each one's filters.

    tinygsm            question -> program of TinyGSM; docstring and blank lines taken out; a
                       newline ends the prompt; each line is tokenised alone, and is a segment
    gsm8k-programs     the same of GSM8K's training questions
    the code sources   five instruction corpora (appendix D), by their aliases
    code-mixture       all five: every one but OpenCodeInstruct is read twice an epoch

`mode`: compat is what the release does, row by row, with its substring filter; exact wants every
answer to parse as Python, and OpenCodeInstruct's to define or import something (filters.py).

Limits, in tokens:

    tinygsm            prompt, answer and eos <= 512; compat also drops more than 16 lines, or one
                       of 32 tokens or more, which the paper truncates when it trains
    code               BOS, prompt, PAD, answer <= 768; compat drops 768 itself too

`without_demonstration` takes example calls off the end of a program, as the published pipeline
does. With "keep" a top-level definition or import whose name is not that of a demonstration, and
"tail" the statements after the last keep, the program is left as it is if

    it does not parse, it has no keep or no tail, or another statement precedes the last keep;
    it is a Flask app, or reads `sys.argv` or `input()`; or the prompt asks for a script

and otherwise loses its tail if all of that is demonstration (demo-named definitions, a main guard,
calls, assignments, loops over such), or if it prints more than twice. Banner comments such as
`# Example usage:` before the tail go too. A Flask app whose tail has a main guard drops the row.

`program_of` makes GSM8K solutions Python, through their annotations `<<48/2=24>>`. Each becomes an
assignment. A number that an earlier step computed becomes that step's variable (of several with one
value the latest); other numbers stay. A variable's name is made of the words behind the annotation,
"<<48/2=24>>24 clips in May" -> `clips_may`.

    def simple_math_problem():
        clips_may = 48 / 2
        clips_altogether = 48 + clips_may
        result = clips_altogether
        return result

Programs are not run: `evaluate` walks the tree and knows + - * / // % ** on numbers, nothing else.
The result must be the number behind `####` (integers equal, otherwise within 1e-3), as the task
gsm8k grades it. Every step must agree with its annotation to one part in a hundred: solutions
round.

Not here: reading files, tokenising, counting, writing. Licences are those of the datasets' cards;
docs/data.md says which card could not be read.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from anyorder.checks import refuse_unknown
from anyorder.data.filters import (
    LOOKS_LIKE_PYTHON,
    extract_python,
    parsed,
    whole_program,
    without_blank_lines,
    without_docstring,
)
from anyorder.data.segments import SegmentConfig

MOST_PRINTS = 2

_DEMO_NAME = re.compile(
    r"(?:test|example|demo|sample)\w*|usage|driver|main|run|\w*_(?:tests?|examples?|demo|usage|sample)",
    re.IGNORECASE,
)
_BANNER = re.compile(
    r"\s*#.*\b(?:examples?|usage|tests?|testing|demo|demonstration|sample|driver)\b", re.IGNORECASE
)
_SCRIPT = re.compile(
    r"\b(?:scripts?|programs?|command[- ]line|cli|argparse|argv|standard input)\b", re.IGNORECASE
)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


class FlaskApp(ValueError):
    """A web application whose main guard would serve it: the row is left out."""


def without_demonstration(code: str, prompt: str) -> str:
    """The program without its tail of example calls, ending with a newline; or as it is."""
    tree = parsed(code)
    if tree is None:
        return code
    keeps = [at for at, node in enumerate(tree.body) if _is_kept(node, prompt)]
    if not keeps:
        return code
    tail = tree.body[keeps[-1] + 1 :]
    flask = _uses_flask(tree)
    if flask and any(_is_main_guard(node) for node in tail):
        raise FlaskApp("a Flask app with a main guard")
    elsewhere = len(keeps) <= keeps[-1]  # another statement precedes the last keep
    if not tail or elsewhere or flask or _reads_input(tree) or _SCRIPT.search(prompt):
        return code
    if not all(_is_demo(node, prompt) for node in tail) and _prints(tail) <= MOST_PRINTS:
        return code
    lines = code.split("\n")[: _first_line(tail[0]) - 1]
    while lines and (not lines[-1].strip() or _BANNER.match(lines[-1])):
        lines.pop()
    shorter = "\n".join(lines) + "\n"
    return shorter if parsed(shorter) is not None else code


def _is_kept(node: ast.stmt, prompt: str) -> bool:
    if isinstance(node, _IMPORTS):
        return True
    return isinstance(node, _DEFINITIONS) and not _is_demo_name(node.name, prompt)


def _is_demo_name(name: str, prompt: str) -> bool:
    return _DEMO_NAME.fullmatch(name) is not None and name not in prompt


def _is_demo(node: ast.stmt, prompt: str) -> bool:
    """Whether a statement of the tail only demonstrates."""
    if isinstance(node, _DEFINITIONS):
        return _is_demo_name(node.name, prompt)
    if _is_main_guard(node):
        assert isinstance(node, ast.If)
        return not node.orelse and all(_is_demo(inner, prompt) for inner in node.body)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.For | ast.While):
        return all(_is_demo(inner, prompt) for inner in (*node.body, *node.orelse))
    return isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)


def _is_main_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    condition = ast.unparse(node.test)
    return "__name__" in condition and "__main__" in condition


def _uses_flask(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) in ("Flask", "flask.Flask")
        for node in ast.walk(tree)
    )


def _reads_input(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.argv":
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "input":
            return True
    return False


def _prints(tail: list[ast.stmt]) -> int:
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        for statement in tail
        for node in ast.walk(statement)
    )


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


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
    """The program of a solution, checked against its answer."""
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
    """The result of a function of assignments, by walking its tree; else NoProgram."""
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
    if abs(exponent) > MOST_EXPONENT:  # a huge integer would take all memory
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
    """The expression with the names of earlier steps for the numbers that they computed."""
    latest = {value: name for name, value in names.items()}

    def name_of(match: re.Match[str]) -> str:
        value = _number(match[0])
        return next((latest[known] for known in latest if _close(known, value, 1e-9)), match[0])

    return _NUMBER.sub(name_of, expression)


def _name(behind: str, names: dict[str, float], number: int) -> str:
    match = _WORDS_BEHIND.match(behind)
    words = [word.lower() for word in (match[1].split() if match else [])]
    telling = [word for word in words if word not in _EMPTY_WORDS][:NAME_WORDS]
    base = "_".join(telling) or f"step_{number}"
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


CorpusMode = Literal["exact", "compat"]
CorpusRecord = Mapping[str, Any]
Render = Callable[[CorpusRecord, CorpusMode], tuple[str, str]]

TRUE_WORDS = frozenset({"1", "true", "yes", "y", "pass", "passed"})
LEAST_SCORE = 0.9


class LeftOut(Exception):
    """The row does not pass a filter; the message is the reason, as it is counted."""


@dataclass(frozen=True)
class CorpusSource:
    """One published dataset, and how its rows are read."""

    alias: str
    hub: str
    """The dataset's id on the hub."""
    config: str | None
    columns: tuple[str, ...]
    """The columns that a row must have."""
    optional: tuple[str, ...]
    """Columns that a row may have."""
    render: Render
    licence: str
    commercial: bool = True
    """Whether the licence allows commercial use."""
    repeat: int = 1
    """How often an epoch reads each training row."""


@dataclass(frozen=True)
class SourceLimits:
    """The limits of a row, in tokens."""

    total: int
    """Prompt, answer and the special ids around them."""
    around: int
    segments: SegmentConfig | None = None
    """Also drop rows that do not fit these; None: of any number and length."""


@dataclass(frozen=True)
class CorpusRecipe:
    """A corpus: its sources, how its answers are cut, and its limits by mode."""

    name: str
    sources: tuple[CorpusSource, ...]
    vocab: str
    """The vocabulary of the paper's models."""
    limits: Mapping[str, SourceLimits]
    """By mode; a missing mode has no published counterpart."""
    by_line: bool
    """Whether each line is tokenised alone, and kept as a segment."""
    validation: float
    """The share of the rows that is never trained on."""


def _text(record: CorpusRecord, column: str) -> str:
    value = record.get(column)
    if not isinstance(value, str) or not value.strip():
        raise LeftOut(f"no {column}")
    return value.strip()


def is_true(value: object) -> bool:
    """A boolean, a number, or a word for true."""
    if isinstance(value, str):
        return value.strip().lower() in TRUE_WORDS
    return bool(value)


def _program(code: str, mode: CorpusMode) -> str:
    """An answer that is a program: unchanged (compat), or only if it parses (exact)."""
    if mode == "compat":
        return code
    found = whole_program(code)
    if found is None:
        raise LeftOut("not Python")
    return found


def _rstar_seed(record: CorpusRecord, mode: CorpusMode) -> tuple[str, str]:
    if not is_true(record.get("is_passed")):
        raise LeftOut("not passed")
    question, starter = _text(record, "question"), record.get("starter_code")
    if isinstance(starter, str) and starter.strip():
        question = f"{question}\n\nStarter code:\n{starter.strip()}"
    return question, _program(_text(record, "code"), mode)


def _rstar_synthetic(record: CorpusRecord, mode: CorpusMode) -> tuple[str, str]:
    if "is_passed" in record and not is_true(record["is_passed"]):
        raise LeftOut("not passed")
    return _text(record, "question"), _program(_text(record, "code"), mode)


def _opc(record: CorpusRecord, mode: CorpusMode) -> tuple[str, str]:
    return _text(record, "instruction"), _program(_text(record, "code"), mode)


def _kodcode(record: CorpusRecord, mode: CorpusMode) -> tuple[str, str]:
    first = record.get("4o_solution")
    column = "4o_solution" if isinstance(first, str) and first.strip() else "solution"
    return _text(record, "question"), _program(_text(record, column), mode)


def _open_code(record: CorpusRecord, mode: CorpusMode) -> tuple[str, str]:
    prompt, answer = _text(record, "input"), _text(record, "output")
    try:
        score = float(record["average_test_score"])
    except (TypeError, ValueError):
        raise LeftOut("no average_test_score") from None
    if not score >= LEAST_SCORE:
        raise LeftOut("tests fail")
    code = extract_python(answer, mode)
    if code is None:
        raise LeftOut("not Python")
    try:
        code = without_demonstration(code, prompt)
    except FlaskApp:
        raise LeftOut("Flask app") from None
    if not LOOKS_LIKE_PYTHON[mode](code):
        raise LeftOut("not Python")
    return prompt, code


def _tinygsm(record: CorpusRecord, mode: CorpusMode) -> tuple[str, str]:
    question, code = _text(record, "question"), _text(record, "code")
    if mode == "exact" and parsed(code) is None:
        raise LeftOut("not Python")
    return f"{question}\n", without_blank_lines(without_docstring(code))


def _gsm8k(record: CorpusRecord, mode: CorpusMode) -> tuple[str, str]:
    try:
        return f"{_text(record, 'question')}\n", program_of(_text(record, "answer"))
    except NoProgram as reason:
        raise LeftOut(f"no program: {reason}") from None


CODE_SOURCES = (
    CorpusSource(
        "rstarcoder-seed-sft",
        "microsoft/rStar-Coder",
        "seed_sft",
        ("question", "code"),
        ("starter_code", "is_passed"),
        _rstar_seed,
        "CC BY 4.0",
    ),
    CorpusSource(
        "rstarcoder-synthetic-sft",
        "microsoft/rStar-Coder",
        "synthetic_sft",
        ("question", "code"),
        ("is_passed",),
        _rstar_synthetic,
        "CC BY 4.0",
    ),
    CorpusSource(
        "opc-sft-stage2-educational",
        "OpenCoder-LLM/opc-sft-stage2",
        "educational_instruct",
        ("instruction", "code"),
        (),
        _opc,
        "MIT",
    ),
    CorpusSource(
        "KodCode-V1-SFT-4o",
        "KodCode/KodCode-V1-SFT-4o",
        None,
        ("question",),
        ("4o_solution", "solution"),
        _kodcode,
        "CC BY-NC 4.0",
        commercial=False,
    ),
    CorpusSource(
        "OpenCodeInstruct-score1-py-all",
        "nvidia/OpenCodeInstruct",
        None,
        ("input", "output", "average_test_score"),
        (),
        _open_code,
        "CC BY 4.0",
    ),
)
"""The five of appendix D, by the release's aliases."""

TINYGSM = CorpusSource(
    "tinygsm", "TinyGSM/TinyGSM", None, ("question", "code"), (), _tinygsm, "MIT"
)
GSM8K = CorpusSource(
    "gsm8k-programs", "openai/gsm8k", "main", ("question", "answer"), (), _gsm8k, "MIT"
)

ONCE = "OpenCodeInstruct-score1-py-all"
"""The one source of the mixture that is not repeated."""

_MATHS = SourceLimits(total=512, around=1)
_CODE = {"exact": SourceLimits(total=768, around=2), "compat": SourceLimits(total=767, around=2)}


def _code_recipe(name: str, sources: tuple[CorpusSource, ...]) -> CorpusRecipe:
    return CorpusRecipe(
        name,
        sources,
        vocab="Dream-org/Dream-Coder-v0-Base-7B",
        limits=_CODE,
        by_line=False,
        validation=0.005,
    )


def _maths_recipe(source: CorpusSource, limits: Mapping[str, SourceLimits]) -> CorpusRecipe:
    return CorpusRecipe(
        source.alias,
        (source,),
        vocab="Qwen/Qwen2-0.5B",
        limits=limits,
        by_line=True,
        validation=0.02,
    )


_DROPPING = SegmentConfig(by="line", slots=16, segment_length=32, overflow="drop")

CORPORA: dict[str, CorpusRecipe] = {
    recipe.name: recipe
    for recipe in (
        _maths_recipe(TINYGSM, {"exact": _MATHS, "compat": replace(_MATHS, segments=_DROPPING)}),
        _maths_recipe(GSM8K, {"exact": _MATHS}),
        *(_code_recipe(source.alias, (source,)) for source in CODE_SOURCES),
        _code_recipe(
            "code-mixture",
            tuple(
                replace(source, repeat=1 if source.alias == ONCE else 2) for source in CODE_SOURCES
            ),
        ),
    )
}


def find_corpus(name: str) -> CorpusRecipe:
    """A data recipe by its name."""
    refuse_unknown("data recipe", name, CORPORA)
    return CORPORA[name]
