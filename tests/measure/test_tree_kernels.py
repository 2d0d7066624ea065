"""Starting is light, and a machine without a place for compiled code still computes."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import pytest

from anyorder import _kernel
from anyorder.measure import tree_kernels

COMPUTE = (
    "from anyorder.measure.trees import Tree\n"
    "from anyorder.measure.tree_edit import distance\n"
    "print(distance(Tree(('a', 'b'), (0, 1)), Tree(('a',), (0,))))"
)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **environment},
    )


def test_importing_loads_no_compiler() -> None:
    heavy = ["numba", "rapidfuzz", "tree_sitter", "torch"]
    code = (
        "import sys, anyorder.measure.similarity_scores\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


def test_without_a_place_for_the_cache_a_kernel_is_still_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def njit(**options: bool) -> object:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("no locator available for file 'x'")
        return numba.njit(**options)

    monkeypatch.setattr(_kernel, "njit", njit)
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        kernel = _kernel.kernel(lambda x: x)
    assert asked == [{"nogil": True, "cache": True}, {"nogil": True}]
    assert kernel(3) == 3


def test_kernels_are_cached_where_there_is_a_place() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(tree_kernels.fill, numba.core.registry.CPUDispatcher)
    assert tree_kernels.fill._cache.cache_path, "a closure would not be cached"


@pytest.mark.long
def test_an_installation_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = python(
        COMPUTE,
        NUMBA_CACHE_DIR=str(file / "below"),
        NUMBA_CACHE_LOCATOR_CLASSES="_UserProvidedCacheLocator",
    )
    assert done.stdout.strip() == "1", done.stderr
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in done.stderr
    assert done.stderr.count("RuntimeWarning") == 1, "said once"
