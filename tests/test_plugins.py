"""A package from outside: all that it adds is found by name when it is installed.

The package is tests/outside/. It is built into a wheel and installed into a folder of the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "outside"
BUILD = (
    "import os, sys; from hatchling.build import build_wheel; os.chdir(sys.argv[1]); "
    "print(build_wheel(sys.argv[2]))"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, as `pip install --target` leaves it."""
    folder = tmp_path_factory.mktemp("site")
    told = subprocess.run(
        [sys.executable, "-c", BUILD, str(PACKAGE), str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    with zipfile.ZipFile(folder / told.stdout.split()[-1]) as wheel:
        wheel.extractall(folder)
    return folder


def python(site: Path, folder: Path, code: str) -> str:
    """Run code where the package is installed."""
    path = os.pathsep.join([str(site), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


STORY = """
import json, sys
import anyorder
from anyorder.cli import main

def run(*words):
    code = main(list(words))
    assert code == 0, (words, code)

run("train", "tiny/backward", "--out", "runs/backward", "--json",
    "--logger", "lines", "--logger-arg", "file=lines.txt")
run("sample", "runs/backward", "--task", "stories", "--limit", "2", "--temperature", "1",
    "--policy", "right_to_left", "--out", "runs/samples", "--json")
run("sample", "mdm", "--task", "fruit", "--policy", "alternating", "--out", "runs/fruit", "--json")
run("report", "runs/samples", "--out", "report.html", "--json")
trace = next(iter(anyorder.Run.open("runs/samples").traces()))
other = next(iter(anyorder.Run.open("runs/fruit").traces()))
shown = [step for step, piece in zip(trace.reveal_step, trace.pieces) if piece]
print(json.dumps({
    "family": trace.family,
    "backwards": shown == sorted(shown, reverse=True),
    "model": anyorder.load("runs/backward").family.name,
    "policy": other.policy,
    "measure": len(anyorder.measure.lengths(anyorder.Run.open("runs/samples"))),
    "title": "Backward" in open("report.html", encoding="utf-8").read(),
    "colour": "#663399" in open("report.html", encoding="utf-8").read(),
}))
"""


def test_an_installed_package_is_found_by_name(site: Path, tmp_path: Path) -> None:
    told = json.loads(python(site, tmp_path, STORY).splitlines()[-1])
    name, *rows, status = (tmp_path / "lines.txt").read_text().splitlines()
    assert (name, status) == ("backward", "done")
    assert [row.split()[1] for row in rows] == ["train", "validation"]
    assert told == {
        "family": "backward",
        "backwards": True,
        "model": "backward",
        "policy": "alternating",
        "measure": 2,
        "title": True,
        "colour": True,
    }


def test_it_races(site: Path, tmp_path: Path) -> None:
    code = (
        "from anyorder.cli import main\n"
        "import sys\n"
        "train = ['train', 'tiny/backward', '--data.layout', '1', '--out', 'one', '--json']\n"
        "assert main(train) == 0\n"
        "sys.exit(main(['race', 'ar', 'one', '--limit', '2', '--texts', '0', '--infill', '0',\n"
        "    '--unequal', '--allow-weak-isolation', '--out', 'race', '--json']))\n"
    )
    python(site, tmp_path, code)
    lanes = json.loads((tmp_path / "race" / "race.json").read_text())["lanes"]
    assert {"ar", "backward"} <= {lane["family"] for lane in lanes}


def test_its_task_is_among_the_names_of_tasks(site: Path, tmp_path: Path) -> None:
    code = (
        "from anyorder.bench.tasks import find_task\n"
        "from anyorder.cli import main\n"
        "try: find_task('fruits', {})\n"
        "except ValueError as error: print(error)\n"
        "main(['sample', '--help'])"
    )
    told, *shown = python(site, tmp_path, code).splitlines()
    assert told.endswith("gsm8k, fruit; did you mean fruit?")
    assert "Tasks of installed packages: fruit." in " ".join(" ".join(shown).split())


def test_reading_descriptions_needs_no_torch(site: Path, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from anyorder.families.descriptions import describe\n"
        "print(describe('backward').title, 'torch' in sys.modules)"
    )
    assert python(site, tmp_path, code).split() == ["Backward", "False"]


def test_a_broken_package_is_named_and_the_rest_works(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    info = broken / "broken-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[anyorder.families]\nlost = lost_package\n")
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    from anyorder.families.descriptions import describe\n"
        "from anyorder.families import find_family\n"
        "print(describe('mdm').title, str(told[0].message))\n"
        "try: find_family('lost')\n"
        "except ValueError as error: print(error)"
    )
    first, second = python(broken, tmp_path, code).splitlines()
    assert first.startswith("MDM the package broken adds 'lost'")
    assert "repair it or uninstall it" in second
