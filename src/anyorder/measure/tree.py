"""An ordered labelled tree as two rows: labels and depths in preorder. Only the data."""

from __future__ import annotations

from typing import NamedTuple


class Tree(NamedTuple):
    """Node 0 is the root; a node's parent is the last one before it that is one level higher."""

    labels: tuple[str, ...]
    depths: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.labels)

    def checked(self) -> Tree:
        """Itself, or a ValueError where the two rows are no tree."""
        if len(self.labels) != len(self.depths) or not self.depths:
            raise ValueError("a tree has one label and one depth per node, and at least a root")
        steps = zip(self.depths, self.depths[1:], strict=False)
        if self.depths[0] != 0 or any(not 1 <= after <= before + 1 for before, after in steps):
            raise ValueError("depths of a tree begin with 0, then 1 to one more than the last")
        return self

    def __str__(self) -> str:
        """One node per line, indented."""
        rows = zip(self.labels, self.depths, strict=True)
        return "\n".join(f"{'  ' * depth}{label}" for label, depth in rows)
