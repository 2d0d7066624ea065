"""`anyorder data` under SIGKILL: the same bytes, in less than a gigabyte of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from made_corpora import made_rows, write_rows
from waiting import kill_after

from anyorder.data.published import CODE_SOURCES
from anyorder.files import sha256_of

# One that is to be killed never ends by itself, however late its killer comes.
CODE = """
import re, sys, time
from anyorder.apps import pipeline
from anyorder.cli import main
if {doomed}:
    pipeline._finish = lambda *_: time.sleep(1200)
code = main()
if sys.platform == "linux":
    peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
    print("PEAK", peak, file=sys.stderr)
sys.exit(code)
"""
ROWS, SHARD = 400, 50
MEMORY = 1_000_000


def start(words: list[str], *, doomed: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE.format(doomed=doomed), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(words: list[str]) -> None:
    process = start(words, doomed=False)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    if "PEAK" in errors:
        assert int(errors.rsplit("PEAK", 1)[1]) < MEMORY


def rows_done(folder: Path) -> int:
    path = folder / "work" / "progress.json"
    if not path.exists():
        return 0
    return sum(counts["read"] for counts in json.loads(path.read_text())["counts"].values())


def has_done(folder: Path, rows: float) -> bool:
    return rows_done(folder) >= rows


def digests(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): sha256_of(path) for path in found}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_killed_half_way_and_repeated_gives_the_same_shards(tmp_path: Path) -> None:
    words = ["data", "code-mixture", "--vocab", "bytes", "--max-tokens", "4096"]
    words += ["--against", "none", "--shard-rows", str(SHARD), "--source"]
    for seed, source in enumerate(CODE_SOURCES):
        path = tmp_path / f"{source.alias}.jsonl"
        words.append(f"{source.alias}={write_rows(path, made_rows(source.alias, seed, ROWS))}")
    finish([*words, "--out", str(tmp_path / "whole")])
    out = tmp_path / "killed"
    for share in (0.2, 0.5):
        enough = share * ROWS * len(CODE_SOURCES)
        process = start([*words, "--out", str(out)], doomed=True)
        kill_after(process, partial(has_done, out, enough), seconds=600)
    finish([*words, "--out", str(out)])
    assert digests(out) == digests(tmp_path / "whole")
