"""The exact tree edit distance, compiled: Zhang and Shasha's recurrence in gain form (numba).

Trees of one side lie one after another in postorder; node x has `first[x]`, its leftmost leaf, so
its subtree is first[x]..x. With unit costs of insertion, deletion and rename, the gain

    S(x, y) = |x| + |y| - TED(x, y)

of two subtrees obeys, over forests that end in x and y (the empty forest gains 0),

    H(x, y) = max( H(x-1, y), H(x, y-1), H(x-1, y-1) + 2 - [labels differ] )   both on the left path
    H(x, y) = max( H(x-1, y), H(x, y-1), H(first x - 1, first y - 1) + S(x, y) )   otherwise

and is never 0, so a 0 in the memo means "not computed". Identical subtrees share one number
(`class`), and S is kept per pair of classes, so parts that trees share are computed once. If S of
two keyroots is known, so is S of all pairs on their left paths: one pass fills them.

Flat arrays and unsigned indices: numba then omits the handling of negative ones, which costs half
the time. No Python objects and no GIL. All kernels are in this file because numba's cache does not
see changes in another one. tree_edit.py decides what to compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anyorder._kernel import kernel

Array = np.ndarray[Any, np.dtype[Any]]
U = np.uint64
ONE = np.uint64(1)

HASH_A, HASH_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
SHIFT = np.uint64(29)

BARRED = -1


@kernel
def postorder(labels: Array, depths: Array, starts: Array, mirror: bool) -> tuple[Array, Array]:
    """(labels, first) in postorder, from preorder; of the mirrored trees if `mirror`."""
    out_labels = np.empty_like(labels)
    first = np.empty(labels.size, np.uint32)
    stack = np.empty(labels.size + 1, np.int64)
    size = np.ones(labels.size, np.int64)
    for tree in range(starts.size - 1):
        begin, end = starts[tree], starts[tree + 1]
        top = 0
        for node in range(begin, end):
            while top > depths[node]:
                top -= 1
                size[stack[top]] = node - stack[top]
            stack[top] = node
            top += 1
        while top > 0:
            top -= 1
            size[stack[top]] = end - stack[top]
        for node in range(begin, end):
            # The preorder backwards is the postorder of the mirror image, so no second walk.
            place = node - depths[node] + size[node] - 1
            if mirror:
                place = begin + end - 1 - node
            out_labels[place] = labels[node]
            first[place] = place - size[node] + 1
    return out_labels, first


@kernel
def keyroots(first: Array, starts: Array) -> tuple[Array, Array, Array]:
    """(keyroots, the first of each tree, cells). Keyroots are roots and nodes with a left sibling.

    The table of two trees has cells[left] * cells[right] entries.
    """
    keys = np.empty(first.size, np.uint32)
    begins = np.zeros(starts.size, np.int64)
    cells = np.zeros(starts.size - 1, np.int64)
    top_of = np.empty(first.size, np.uint32)  # per leaf: the highest node of its left path
    count = 0
    for tree in range(starts.size - 1):
        begin, end = starts[tree], starts[tree + 1]
        for node in range(begin, end):
            top_of[first[node]] = node
        for node in range(begin, end):
            if top_of[first[node]] == node:
                keys[count] = node
                count += 1
                cells[tree] += node - first[node] + 1
        begins[tree + 1] = count
    return keys[:count].copy(), begins, cells


@kernel
def classes(labels: Array, first: Array) -> tuple[Array, int]:
    """(class of each node, number of classes): equal exactly if the subtrees are identical."""
    capacity = 16  # a power of two at most half full, so that linear probing stays short
    while capacity < 2 * labels.size:
        capacity *= 2
    mask = U(capacity - 1)
    table = np.full(capacity, -1, np.int64)
    hashes = np.empty(labels.size, np.uint64)
    found = np.empty(labels.size, np.uint32)
    count = 0
    for node in range(labels.size):
        low = np.int64(first[node])
        code = U(labels[node] + 1) * HASH_A + U(node - low)
        child = np.int64(node - 1)
        while child >= low:
            code = (code ^ (hashes[child] >> SHIFT)) * HASH_B + hashes[child]
            child = np.int64(first[child]) - 1
        hashes[node] = code
        place = (code ^ (code >> SHIFT)) & mask
        while True:
            other = table[place]
            if other < 0:
                table[place] = node
                found[node] = count
                count += 1
                break
            if hashes[other] == code and _identical(labels, first, node, other):
                found[node] = found[other]
                break
            place = (place + ONE) & mask
    return found, count


@kernel
def _identical(labels: Array, first: Array, node: int, other: int) -> bool:
    """Equal hashes are not proof: compare labels and sizes, which determine a tree in postorder."""
    if node - first[node] != other - first[other]:
        return False
    shift = node - other
    for place in range(np.int64(first[other]), other + 1):
        if labels[place] != labels[place + shift]:
            return False
        if first[place] + shift != first[place + shift]:
            return False
    return True


@kernel
def fill(a: Any, b: Any, s: int, r: int, work: Any) -> int:
    """TED of tree `s` of forest `a` and tree `r` of forest `b`; S of their subtrees into the memo.

    `a` and `b` are tree_edit.Forest, `work` is its Workspace. Row 0 and column 0 of the table stay
    zero.
    """
    memo, table, stride = work
    a_labels, a_first, a_class = a.labels, a.first, a.classes
    b_labels, b_first, b_class = b.labels, b.first, b.classes
    wide, step = U(b.subtrees), U(stride)
    for key_a in range(a.begins[s], a.begins[s + 1]):
        root_a = U(a.keys[key_a])
        low_a = U(a_first[root_a])
        known = U(a_class[root_a]) * wide
        for key_b in range(b.begins[r], b.begins[r + 1]):
            root_b = U(b.keys[key_b])
            # Known for the keyroots, hence for all pairs on their left paths.
            if memo[known + U(b_class[root_b])] > 0:
                continue
            low_b = b_first[root_b]
            shift, width = U(low_b), root_b - U(low_b) + ONE
            for x in range(low_a, root_a + ONE):
                below = U(a_first[x]) - low_a
                row = U(a_class[x]) * wide
                up = (x - low_a) * step + ONE
                here = up + step
                best = table[U(0)]  # 0, in the type of the table
                # The branch is outside the inner loop, so that both loops stay tight.
                if below == U(0):
                    label = a_labels[x]
                    for j in range(width):
                        y = shift + j
                        place = row + U(b_class[y])
                        if b_first[y] == low_b:
                            gain = table[up + j - ONE] + (2 if b_labels[y] == label else 1)
                            best = max(best, gain, table[up + j])
                            memo[place] = best
                        else:
                            best = max(best, memo[place], table[up + j])
                        table[here + j] = best
                else:
                    # May wrap below 0; adding first[y] >= shift wraps it back.
                    jump = below * step - shift
                    for j in range(width):
                        y = shift + j
                        gain = table[jump + U(b_first[y])] + memo[row + U(b_class[y])]
                        best = max(best, gain, table[up + j])
                        table[here + j] = best
    end_a, end_b = a.starts[s + 1] - 1, b.starts[r + 1] - 1
    nodes = (end_a - a.starts[s] + 1) + (end_b - b.starts[r] + 1)
    return int(nodes - memo[U(a_class[end_a]) * wide + U(b_class[end_b])])


@kernel
def all_pairs(a: Any, b: Any, work: Any) -> Array:
    """The distance of every tree of `a` to every tree of `b`."""
    out = np.empty((a.starts.size - 1, b.starts.size - 1), np.int64)
    for s in range(out.shape[0]):
        for r in range(out.shape[1]):
            out[s, r] = fill(a, b, s, r, work)
    return out


@kernel
def likeness(distance: int, left: int, right: int) -> float:
    """1 - distance / larger size, not below 0."""
    return max(0.0, 1.0 - distance / max(left, right))


@kernel
def search(a: Any, b: Any, bounds: Array, work: Any, best: Array, which: Array, offset: int) -> int:
    """Per tree of `a` its most similar tree of `b`, the first of equals; how many were computed.

    `bounds` are lower bounds of the distances, or BARRED for a pair that does not count. `best` and
    `which` hold the best match so far (-1 for none) and are updated; tree r of `b` has the number
    offset + r there. Trees are tried by their bound until none can be better.
    """
    computed = 0
    top = np.empty(b.starts.size - 1)
    for s in range(a.starts.size - 1):
        size = a.starts[s + 1] - a.starts[s]
        for r in range(top.size):
            top[r] = -1.0
            if bounds[s, r] != BARRED:
                top[r] = likeness(bounds[s, r], size, b.starts[r + 1] - b.starts[r])
        while True:
            r = int(np.argmax(top))
            if top[r] < max(best[s], 0.0):
                break
            # An equal bound can only win as the earlier of equals, so a later tree is skipped.
            if top[r] > best[s] or offset + r < which[s]:
                exact = fill(a, b, s, r, work)
                value = likeness(exact, size, b.starts[r + 1] - b.starts[r])
                computed += 1
                if value > best[s] or (value == best[s] and offset + r < which[s]):
                    best[s], which[s] = value, offset + r
            top[r] = -1.0
    return computed
