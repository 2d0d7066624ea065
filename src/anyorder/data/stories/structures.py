"""How beginnings and operations compose into structures, and which compositions are held out.

A structure is a beginning and two operations, or a beginning with a helper function and one. Its
composition is the ordered pair of operations, or for the latter the beginning and its operation.
The compositions of a fixed list are held out: no structure with one of them is ever in `train`,
whatever its beginning, while each beginning and each operation is, and in each place.

What this file does not do: choose names or values, render text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from anyorder.data.stories.operations import BEGINNINGS, OPERATIONS, Operation, Statement

MAX_QUANTITIES = 4
"""So that the parameter list fits in a line of ten tokens."""

HELD_OUT: frozenset[tuple[str, str]] = frozenset(
    {
        ("gain", "share"),
        ("share", "gain"),
        ("lose", "double"),
        ("double", "lose"),
        ("half", "at_most"),
        ("at_most", "half"),
        ("fill", "rest"),
        ("rest", "fill"),
        ("at_least", "lose"),
        ("share", "at_least"),
        ("gain", "until"),
        ("until", "double"),
        ("bonus", "share"),
        ("half", "bonus"),
        ("daily", "rest"),
        ("lose", "daily"),
        ("double_both", "rest"),
        ("double_both", "until"),
        ("halve_both", "gain"),
        ("halve_both", "at_most"),
    }
)
"""The compositions that only the split `heldout` has, under every beginning they can follow."""

_SCALING = frozenset({"double", "half"})
"""Next to one another, or after a helper that does the same, these would be pointless."""


@dataclass(frozen=True)
class Structure:
    """A beginning and its operations."""

    begin: Operation
    operations: tuple[Operation, ...]

    @property
    def name(self) -> str:
        """Such as "two-lose-share"."""
        return "-".join(step.name for step in self.steps)

    @property
    def steps(self) -> tuple[Operation, ...]:
        """The beginning and the operations, in order."""
        return (self.begin, *self.operations)

    @property
    def composition(self) -> tuple[str, str]:
        """What is held out or not."""
        names = [step.name for step in (self.steps if self.begin.helper else self.operations)]
        assert len(names) == 2
        return names[0], names[1]

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The program's statements, quantities numbered in the order of the prompt."""
        lines: list[Statement] = []
        quantities = 0
        for step in self.steps:
            lines += [statement.shifted(quantities) for statement in step.statements]
            quantities += len(step.roles)
        define = Statement("define", operand=tuple(range(quantities)))
        lines = [define if line.kind == "define" else line for line in lines]
        return (*lines, Statement("return"))


def _all_structures() -> list[Structure]:
    found = []
    for begin in BEGINNINGS.values():
        for first in OPERATIONS.values():
            if begin.helper:  # the helper's own lines are length enough: one operation follows
                if first.name not in _SCALING:
                    found.append(Structure(begin, (first,)))
                continue
            for second in OPERATIONS.values():
                quantities = sum(len(step.roles) for step in (begin, first, second))
                pointless = first is second or {first.name, second.name} == _SCALING
                if quantities <= MAX_QUANTITIES and not pointless:
                    found.append(Structure(begin, (first, second)))
    return found


@cache
def structures(split: str) -> dict[str, tuple[Structure, ...]]:
    """All structures of a split, by the name of their beginning."""
    table: dict[str, tuple[Structure, ...]] = {}
    for structure in _all_structures():
        if (structure.composition in HELD_OUT) == (split == "heldout"):
            table[structure.begin.name] = (*table.get(structure.begin.name, ()), structure)
    return table
