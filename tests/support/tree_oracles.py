"""Other ways to the same distances: a plain recursion, and apted. Random trees to try them on."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import apted

from anyorder.measure.trees import Tree

Node = tuple[str, tuple[Any, ...]]
Forest = tuple[Node, ...]


def random_tree(chance: random.Random, size: int, labels: str = "abc") -> Tree:
    """Any shape: the next node is a child of the last one or of any node above it."""
    depths = [0]
    for _ in range(size - 1):
        depths.append(chance.randint(1, depths[-1] + 1))
    return Tree(tuple(chance.choices(labels, k=size)), tuple(depths))


def nested(tree: Tree) -> Node:
    """The tree as (label, children)."""

    def build(place: int) -> tuple[Node, int]:
        children = []
        after = place + 1
        while after < tree.size and tree.depths[after] > tree.depths[place]:
            child, after = build(after)
            children.append(child)
        return (tree.labels[place], tuple(children)), after

    return build(0)[0]


def plain_distance(left: Tree, right: Tree, rename_cost: int) -> int:
    """The definition: delete, insert or match the last roots of two forests."""
    return _forests((nested(left),), (nested(right),), rename_cost)


@cache
def _size(forest: Forest) -> int:
    return sum(1 + _size(children) for _, children in forest)


@cache
def _forests(left: Forest, right: Forest, cost: int) -> int:
    if not left or not right:
        return _size(left) + _size(right)
    (a, below_a), (b, below_b) = left[-1], right[-1]
    matched = _forests(below_a, below_b, cost) + _forests(left[:-1], right[:-1], cost)
    return min(
        _forests(left[:-1] + below_a, right, cost) + 1,
        _forests(left, right[:-1] + below_b, cost) + 1,
        matched + (cost if a != b else 0),
    )


class _Costs(apted.Config):
    def __init__(self, rename_cost: int) -> None:
        self.rename_cost = rename_cost

    def rename(self, node1: Node, node2: Node) -> int:
        return self.rename_cost if node1[0] != node2[0] else 0

    def children(self, node: Node) -> tuple[Node, ...]:
        return node[1]


def apted_distance(left: Tree, right: Tree, rename_cost: int) -> int:
    """The same by apted."""
    costs = _Costs(rename_cost)
    return int(apted.APTED(nested(left), nested(right), costs).compute_edit_distance())
