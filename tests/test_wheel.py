"""The package as a user gets it: built as a wheel, installed elsewhere, started."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HELP_CPU_SECONDS = 0.5


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without an environment of its own, from what the development install holds."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("anyorder-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    pip("install", "--no-deps", "--target", str(target), str(wheel))
    return target


def environment(target: Path) -> dict[str, str]:
    """The installed copy first on the path; our dependencies come from this interpreter."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return {**kept, "PYTHONPATH": str(target), "COLUMNS": "100"}


def run(command: list[str], target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=target, env=environment(target), capture_output=True, text=True, timeout=240
    )


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    expected = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "anyorder").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".tmp"
    }
    assert "anyorder/py.typed" in shipped
    assert shipped == expected
    assert not [name for name in names if "stud" in name], "the study stays in the repository"
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_the_code_of_the_study(tmp_path: Path) -> None:
    """Its records, tens of megabytes, are in the repository alone."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = tmp_path.glob("anyorder-*.tar.gz")
    with tarfile.open(built) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    code = {path.relative_to(ROOT).as_posix() for path in (ROOT / "studies").rglob("*.py")}
    assert len(code) > 10
    assert {name for name in inside if name.startswith("studies/")} == code


def test_the_plain_install_brings_the_parser_and_old_extras_stay(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode("utf-8"))
    requirements = metadata.get_all("Requires-Dist", [])
    core = {re.split(r"[<>=!~ ]", line)[0] for line in requirements if "extra ==" not in line}
    assert {"tree-sitter", "tree-sitter-python", "jinja2", "filelock"} <= core
    extras = set(metadata.get_all("Provides-Extra", []))
    assert {"hf", "report", "syntax", "lm-eval", "dev"} <= extras


def test_help_runs_from_the_wheel(installed: Path) -> None:
    done = run([str(installed / "bin" / "anyorder"), "--help"], installed)
    assert done.returncode == 0, done.stderr
    assert "train" in done.stdout
    assert "sample" in done.stdout


def test_help_is_quick(installed: Path) -> None:
    """In CPU seconds, the best of three, so that a busy machine does not decide."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run([str(installed / "bin" / "anyorder"), "--help"], installed)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < HELP_CPU_SECONDS


def test_help_imports_neither_torch_nor_another_copy(installed: Path) -> None:
    code = (
        "import sys\n"
        "sys.argv = ['anyorder', '--help']\n"
        "import anyorder.cli\n"
        "try:\n"
        "    anyorder.cli.main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'numpy' not in sys.modules\n"
        "print(anyorder.__file__, file=sys.stderr)\n"
    )
    done = run([sys.executable, "-c", code], installed)
    assert done.returncode == 0, done.stderr
    assert Path(done.stderr.strip().splitlines()[-1]).is_relative_to(installed)
