"""The small parts: who the server becomes, where its root is put together, lines and changes."""

from __future__ import annotations

import os
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.bench.sandbox import Failed, decode, encode
from anyorder.bench.sandbox.handle import apply
from anyorder.bench.sandbox.limits import DETAIL_CHARACTERS, one_line

if sys.platform == "linux":
    from anyorder.bench.sandbox import confine as identity
    from anyorder.bench.sandbox import confine as landlock
    from anyorder.bench.sandbox import confine as namespaces

linux = pytest.mark.skipif(sys.platform != "linux", reason="confinement of Linux")

VALUES = st.recursive(
    st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=4)
        | st.dictionaries(st.text(max_size=2), inner, max_size=4).map(OrderedDict)
        | st.dictionaries(st.text(max_size=2), inner, max_size=4).map(
            lambda d: defaultdict(None, d)
        )
        | st.dictionaries(st.text(max_size=2), st.integers(), max_size=4).map(Counter)
        | st.sets(st.integers(), max_size=4)
        | st.lists(inner, max_size=4).map(deque)
        | st.binary().map(bytearray)
    ),
    max_leaves=10,
)


@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_changes_make_the_old_value_equal_to_the_new(before: list[Any], after: list[Any]) -> None:
    result = apply(before, decode(encode(after)))
    assert result is before and encode(before) == encode(after)


def test_changes_keep_inner_objects() -> None:
    row, kept = [1], {"a": [2]}
    before = [row, kept, kept["a"]]
    apply(before, [[1, 9], {"a": [3], "b": 4}, [3], 5])
    assert before[0] is row and before[1] is kept
    assert before == [[1, 9], {"a": [3], "b": 4}, [3], 5]


def test_changes_of_arrays() -> None:
    array = np.zeros(3)
    assert apply(array, np.ones(3)) is array and array.sum() == 3
    other = np.ones(4)
    assert apply(array, other) is other


@given(st.text())
def test_details_are_one_short_printable_line(text: str) -> None:
    line = one_line(text)
    assert len(line) <= DETAIL_CHARACTERS and line.isprintable() and line == line.strip()
    assert one_line(line) == line


def test_details_say_what_they_can() -> None:
    assert one_line(" a\n\tb\x1b[31m ") == "a b [31m"
    assert one_line("x" * 10**6).endswith("xxx...")
    assert str(Failed("error", "TypeError: no")) == "error: TypeError: no"


@linux
def test_a_server_has_a_number_that_nobody_has() -> None:
    host = "         0          0 4294967295\n"
    assert {identity.own_number(host, pid) for pid in range(1000)} == set(
        range(0x70000000, 0x70000000 + 1000)
    )
    container = "0 100000 65536\n"
    numbers = {identity.own_number(container, pid) for pid in range(5000)}
    assert all(number is not None and 60_000 < number < 65_534 for number in numbers)
    assert identity.own_number("0 1000 1\n", 7) is None
    assert identity.own_number("0 1000 1\n1 100000 65536\n", 7) is not None


@linux
def test_what_others_can_read(tmp_path: Path) -> None:
    assert identity.others_can_read("/") and identity.others_can_read("/etc/passwd")
    closed = tmp_path / "closed"
    inside = closed / "inside"
    inside.mkdir(parents=True)
    for path in (tmp_path, *tmp_path.parents):
        if "pytest" in str(path):
            path.chmod(0o755)
    inside.chmod(0o755)
    closed.chmod(0o755)
    if not identity.others_can_read(str(tmp_path)):
        pytest.skip("pytest's folder is in one that is closed to others")
    assert identity.others_can_read(str(inside))
    closed.chmod(0o700)
    assert not identity.others_can_read(str(inside)) and not identity.others_can_read(str(closed))
    closed.chmod(0o711)
    assert identity.others_can_read(str(inside)) and not identity.others_can_read(str(closed))


@linux
def test_a_root_is_put_together_where_it_hides_no_source() -> None:
    assert namespaces._stage(["/usr/lib"]) == "/tmp"
    assert namespaces._stage(["/usr/lib", "/tmp/venv/lib"]) != "/tmp"
    everywhere = [f"{folder}/x" for folder in namespaces._STAGES]
    with pytest.raises(FileNotFoundError, match="no folder to put a root together in"):
        namespaces._stage(everywhere)


@linux
def test_paths_appear_with_the_links_that_lead_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "opt" / "python-3.11.7"
    (real / "lib").mkdir(parents=True)
    (tmp_path / "opt" / "python").symlink_to("python-3.11.7")
    (tmp_path / "current").symlink_to(tmp_path / "opt" / "python")
    (tmp_path / "around").symlink_to("opt/../opt/./python")
    (tmp_path / "circle").symlink_to("circle")
    bound: list[str] = []

    def bind(self: Any, path: str) -> None:
        bound.append(path)
        os.makedirs(self.stage + path, exist_ok=True)
        self.taken.add(path)

    monkeypatch.setattr(namespaces._NewRoot, "_bind", bind)
    stage = tmp_path / "stage"
    garden = namespaces._NewRoot(str(stage))
    for name in ("current/lib", "around/lib", "opt/python-3.11.7/lib"):
        garden.plant(str(tmp_path / name))
    assert bound == [str(real / "lib")]
    inner = Path(f"{stage}{tmp_path}")
    assert os.readlink(inner / "current") == str(tmp_path / "opt" / "python")
    assert os.readlink(inner / "opt" / "python") == "python-3.11.7"
    garden.plant(str(real))
    garden.plant(str(real / "lib"))
    assert bound == [str(real / "lib"), str(real)]


@linux
def test_landlock_knows_its_versions() -> None:
    try:
        version = landlock.version()
    except OSError:
        pytest.skip("no Landlock here")
    assert version >= 1
    bits = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 7: 16}
    found = {v: landlock._FILE_RIGHTS.get(v, landlock._FILE_RIGHTS_NOW) for v in bits}
    assert found == bits
