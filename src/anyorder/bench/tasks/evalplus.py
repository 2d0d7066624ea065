"""evalplus's native format: inputs, and a canonical solution that says the answers.

JSON has neither tuples nor complex numbers, so the native inputs of MBPP+ have lost some types.
They are found again from the row's own `assertion` text, whose calls are Python: where every
example has a tuple, the input gets a tuple. For the few problems where evalplus does otherwise, and
for numbers that are written as strings, there are tables. The result equals the inputs of the
OriginFmt file, which are Python as well (a test compares all 378).

Answers are compared as in the OriginFmt file: exactly, else within `atol` (1e-6 for floats where it
is 0); as sets in seven problems; and in three by whether anything but None came back.

The OriginFmt tests let two kinds of wrong programs through, which `tightened` stops. `np.allclose`
stretches what has another shape, and of nothing everything is close: `return []` passes wherever a
float is expected. And where the answer is computed beside the call, from the same objects, a
program that empties its argument is asked for the answer to nothing.

Mbpp/255 asks for all combinations: five of its 112 inputs have answers of 6 to 130 million values,
a gigabyte and more, and are left out in both formats.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from anyorder.bench.checks import Calls
from anyorder.bench.tasks.names import parsed
from anyorder.bench.tasks.rows import Row

AS_SETS = frozenset({2, 7, 111, 140, 232, 579, 769})
NOT_NONE = frozenset({737, 787, 794})

LISTS_UP_TO = {98: 2, 104: 2, 140: 2, 145: 2}
"""Problems whose inputs stay lists: no tuple above this depth (1: the argument itself)."""
TUPLES_UP_TO = {596: 1}
"""Problems whose inputs are tuples at this depth only."""
NESTED_TUPLES = frozenset({580, 791})
"""Problems whose inputs are tuples all the way down, deeper than any example."""
NUMBERS: dict[int, tuple[Callable[[Any], Any], ...]] = {124: (float, complex), 252: (complex,)}
"""Problems whose arguments are numbers written as strings, and what each is."""

LEFT_OUT = {255: "5 inputs whose answers have millions of values are left out"}
ALL_INPUTS = "for i, inp in enumerate(inputs):\n    assertion(combinations_colors("
"""How the OriginFmt test of Mbpp/255 goes through its inputs."""
SMALL_INPUTS = f"inputs = [inp for inp in inputs if len(inp[0]) < 4 or inp[1] < 70]\n{ALL_INPUTS}"

_STRETCHED = "        assert np.allclose(out, exp, rtol=1e-07, atol=atol)\n"
_SAME_SHAPE = (
    "        out = np.asarray(out)\n"  # once: a program's object may answer otherwise the next time
    "        assert out.shape == np.shape(exp) and "
    "np.allclose(out, exp, rtol=1e-07, atol=atol)\n"
)
_SHARED, _COPIED = "(*inp), ref_func(*inp)", "(*deepcopy(inp)), ref_func(*inp)"
COPYING = "from copy import deepcopy\n"

_WHETHER = """
_found_by_reference = {function}
def {function}(*arguments):
    found = _found_by_reference(*arguments)
    return found if isinstance(found, bool) else found is not None
"""


def tightened(test: str) -> str:
    """A test of an OriginFmt file, less what lets wrong programs through (see above)."""
    test = test.replace(_STRETCHED, _SAME_SHAPE)
    return COPYING + test.replace(_SHARED, _COPIED) if _SHARED in test else test


def reference_calls(
    function: str, inputs: Sequence[Sequence[Any]], program: str, atol: float
) -> Calls:
    """Calls whose answers come from a reference, floats compared as evalplus does."""
    return Calls(function, tuple(map(tuple, inputs)), reference=program, compare="close", atol=atol)


def mbpp_calls(row: Row, number: int, program: str, *, plus: bool) -> Calls:
    """The check of one native row of MBPP+, with or without evalplus's additional inputs."""
    function: str = row["entry_point"]
    given = [*row["base_input"], *(row["plus_input"] if plus else [])]
    if number in LEFT_OUT:
        given = [arguments for arguments in given if len(arguments[0]) < 4 or arguments[1] < 70]
    inputs = tuple(restored_inputs(number, function, row["assertion"], given))
    if number in NOT_NONE:
        program += _WHETHER.format(function=function)
        return Calls(function, inputs, reference=program, compare="not_none")
    compare = "set_equal" if number in AS_SETS else "close"
    return Calls(function, inputs, reference=program, compare=compare, atol=float(row["atol"]))


def restored_inputs(
    number: int, function: str, assertion: str, inputs: Sequence[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """The inputs of a problem with the types that JSON has lost."""
    if number in NUMBERS:
        return [
            tuple(kind(value) for kind, value in zip(NUMBERS[number], arguments, strict=True))
            for arguments in inputs
        ]
    if number in NESTED_TUPLES:
        return [tuple(map(_nested, arguments)) for arguments in inputs]
    calls = [
        node.args
        for node in ast.walk(parsed(assertion))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == function
    ]
    depths = range(LISTS_UP_TO.get(number, 0) + 1, TUPLES_UP_TO.get(number, 1000) + 1)
    return [
        tuple(
            _like(value, [call[place] for call in calls if place < len(call)], depths)
            for place, value in enumerate(arguments)
        )
        for arguments in inputs
    ]


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _like(value: Any, examples: list[ast.expr], depths: range, depth: int = 1) -> Any:
    """`value` with tuples where all the examples at its place have them, at the given depths."""
    if isinstance(value, dict):
        inner = [item for node in examples if isinstance(node, ast.Dict) for item in node.values]
        return {key: _like(item, inner, depths, depth + 1) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    sequences = [node for node in examples if isinstance(node, ast.List | ast.Tuple)]
    inner = [item for node in sequences for item in node.elts]
    items = [_like(item, inner, depths, depth + 1) for item in value]
    all_tuples = bool(sequences) and all(isinstance(node, ast.Tuple) for node in sequences)
    return tuple(items) if all_tuples and depth in depths else items
