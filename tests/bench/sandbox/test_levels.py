"""Levels are proved: what each needs, what happens where it is not there, and who may have it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from anyorder.bench.sandbox import (
    Broken,
    CanaryResult,
    Failed,
    Limits,
    Sandbox,
    canaries,
    client,
    probe,
)
from anyorder.bench.sandbox.client import Probe

SOURCE = Path(client.__file__).resolve().parents[3]

linux = pytest.mark.skipif(sys.platform != "linux", reason="confinement of Linux")


@linux
@pytest.mark.parametrize("level", [3, 2, 1])
def test_each_level_is_proved_by_its_mechanisms(
    sandboxes: Callable[[int], Sandbox], level: int
) -> None:
    sandbox = sandboxes(level)
    assert sandbox.level == level
    assert set(sandbox.applied) == canaries.LEVELS[level]
    assert all(check.held for check in sandbox.checks)
    assert {check.mechanism for check in sandbox.checks} == canaries.LEVELS[level]
    with sandbox.start("def f(x): return x + 1", Limits()) as child:
        assert child.call("f", (1,)) == 2


@linux
def test_level_one_protects_against_little(sandboxes: Callable[[int], Sandbox]) -> None:
    """The canaries of what is missing would not hold: nothing is called proved that is not."""
    with canaries.bait() as grader:
        pretended = dict.fromkeys(("rlimits", "seccomp", "landlock"), "pretended")
        checks = list(canaries.prove(sandboxes(1).start, pretended, grader, []))
    broken = {check.name for check in checks if not check.held}
    assert {"tcp socket", "udp socket", "socket", "read a file outside", "write a file"} <= broken
    assert canaries.level_of(pretended, checks) == 1
    assert not any(check.mechanism == "rlimits" and not check.held for check in checks)


@linux
@pytest.mark.parametrize("without", ["seccomp", "landlock", "rlimits"])
def test_less_than_asked_for_is_refused_with_a_remedy(without: str) -> None:
    if probe().level < 2:
        pytest.skip("this machine offers less anyhow")
    use = [name for name in ("rlimits", "seccomp", "landlock") if name != without]
    with pytest.raises(ValueError, match=r"level [01] only, and level 2 is required.*in a Linux"):
        Sandbox(use=use)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="no mechanism 'prayer'"):
        Sandbox(use=["prayer"])


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ValueError, match=r"cannot be confined on Windows.*WSL2"):
        Sandbox(minimum_level=1)


def test_a_mechanism_counts_when_all_its_canaries_hold() -> None:
    applied = dict.fromkeys(("rlimits", "seccomp", "landlock", "namespaces"), "")
    checks = [CanaryResult(name, name, True, "") for name in applied]
    assert canaries.level_of(applied, checks) == 3
    for broken, level in {"namespaces": 2, "landlock": 1, "seccomp": 1, "rlimits": 0}.items():
        assert canaries.level_of(applied, [*checks, CanaryResult("x", broken, False, "")]) == level
    assert canaries.level_of({"seccomp": "", "landlock": ""}, checks) == 0


@linux
def test_the_probe_names_what_it_tried() -> None:
    found = probe()
    assert isinstance(found, Probe) and probe() is found
    assert found.level in (1, 2, 3)
    names = [check.name for check in found.checks]
    assert len(set(names)) == len(names) and {"memory", "processor time", "file size"} <= set(names)
    assert all(check.detail for check in found.checks)


@linux
def test_proving_a_level_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandboxes: Callable[[int], Sandbox]
) -> None:
    """Not for a moment, so that a grader killed at its start leaves nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o777)
    before = tmp_path.stat().st_mtime_ns
    with canaries.bait() as grader:
        assert grader["new"].startswith(str(tmp_path))
        for level in (3, 2):
            sandbox = sandboxes(level)
            assert all(c.held for c in canaries.prove(sandbox.start, sandbox.applied, grader, []))
    assert list(tmp_path.iterdir()) == [] and tmp_path.stat().st_mtime_ns == before


def refuse(monkeypatch: pytest.MonkeyPatch, *, wrapped: bool) -> None:
    """A system without namespaces for us, and perhaps for bubblewrap."""
    real: Any = client.Link.__init__

    def begin(self: Any, use: Any, preload: Any, grader: Any, *, wrap: bool) -> None:
        if "namespaces" in use and (not wrap or wrapped):
            raise client.Refused("Operation not permitted")
        real(self, use, preload, grader, wrap=wrap)

    monkeypatch.setattr(client.Link, "__init__", begin)


@linux
def test_without_namespaces_it_goes_on_a_level_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    if probe().level < 2:
        pytest.skip("this machine offers less anyhow")
    refuse(monkeypatch, wrapped=True)
    with Sandbox() as sandbox:
        assert sandbox.level == 2
        assert sandbox.notes[0] == "no namespaces: Operation not permitted"
    with pytest.raises(ValueError, match=r"level 2 only, and level 3 is required.*minimum_level=2"):
        Sandbox(minimum_level=3)


def test_the_command_for_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/somewhere/{name}")
    command = client._wrapper()
    assert command[0] == "/somewhere/bwrap" and command[-1] == "--"
    assert {"--unshare-all", "--die-with-parent", "--as-pid-1"} <= set(command)
    pairs = list(pairwise(command))
    assert ("--cap-drop", "ALL") in pairs and ("--tmpfs", canaries.OUTSIDE) in pairs
    assert [b for a, b in pairs if a in ("--bind", "--dev-bind")] == [os.devnull]


@linux
@pytest.mark.skipif(not shutil.which("bwrap") or os.geteuid() == 0, reason="bubblewrap, not root")
def test_bubblewrap_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, wrapped=False)
    with Sandbox(minimum_level=3) as sandbox:
        assert sandbox.applied["namespaces"] == "bubblewrap"


UNPRIVILEGED = """
import sys
sys.path.insert(0, {source!r})
from anyorder.bench.sandbox import Limits, Sandbox
for level, use in ((3, ["rlimits", "seccomp", "landlock", "namespaces"]),
                   (2, ["rlimits", "seccomp", "landlock"]), (1, ["rlimits"])):
    with Sandbox(minimum_level=0, use=use) as sandbox:
        with sandbox.start("import threading\\ndef f(x):\\n    t = threading.Thread(); t.start()\\n"
                           "    t.join()\\n    return x + 1", Limits()) as child:
            print(level, sandbox.level, child.call("f", (1,)), sandbox.notes)
"""


AS_NOBODY: dict[str, Any] = {
    "user": 65534,
    "group": 65534,
    "extra_groups": [],
    "cwd": "/",
    "env": {"PATH": "/usr/bin:/bin"},
    "capture_output": True,
    "text": True,
}


def readable_interpreter() -> str | None:
    """A Python of our version that another user can run."""
    name = f"python3.{sys.version_info.minor}"
    check = "import ctypes, sys; sys.path.append(sys.argv[1]); import anyorder"
    for found in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        with suppress(OSError):
            done = subprocess.run([found, "-c", check, str(SOURCE)], **AS_NOBODY)
            if done.returncode == 0:
                return found
    return None


@linux
@pytest.mark.skipif(sys.platform == "linux" and os.geteuid() != 0, reason="root can be others")
def test_a_user_without_privileges_proves_the_same_levels() -> None:
    python = readable_interpreter()
    if python is None:
        pytest.skip("no interpreter that another user could run")
    done = subprocess.run([python, "-c", UNPRIVILEGED.format(source=str(SOURCE))], **AS_NOBODY)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[:3] for line in done.stdout.splitlines()]
    assert [int(asked) for asked, _, _ in lines] == [3, 2, 1]
    assert all(int(result) == 2 for _, _, result in lines)
    if probe().level >= 2:
        assert [int(level) for _, level, _ in lines][1:] == [2, 1]
        assert int(lines[0][1]) in (2, 3), "user namespaces may be closed to users"


@linux
def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_BOOTSTRAP", "raise SystemError('no such luck')")
    with pytest.raises(Broken, match="did not start: SystemError: no such luck"):
        Sandbox()


@linux
def test_what_is_not_installed_is_noted() -> None:
    if probe().level < 2:
        pytest.skip("no sandbox here")
    with Sandbox(preload=["math", "no_such_module"]) as sandbox:
        assert "no_such_module is not installed" in sandbox.notes
        with sandbox.start("import no_such_module", Limits()) as child, pytest.raises(Failed):
            child.load()
