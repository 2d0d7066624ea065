"""The data pipeline on made rows: memory, speed, a kill half-way, and what was planted.

Makes the five code sources in their own columns (JSON lines, gzipped ones and Parquet), rows drawn
from thousands of words, and plants among them: every problem of HumanEval as it is, rewritten
(other names, layout and comments), and as it is again; and repeats of made rows, as they are and
rewritten. Then runs `anyorder data code-mixture` in a process of its own, twice: to the end in one
process, and with workers, killed with SIGKILL half-way and repeated. Prints what was found, what
was dropped that is clean, the peak memory as the kernel tells it, and whether all files are the
same bytes.

    python benchmarks/data_pipeline.py --benchmark HumanEval.jsonl.gz                 200,000 rows
    python benchmarks/data_pipeline.py --benchmark HumanEval.jsonl.gz --rows 6000     to try it
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "data"))

from made_corpora import (
    in_columns,
    made_program,
    made_prompt,
    planted_problems,
    planted_repeats,
    write_rows,
)

from anyorder.data.corpora import CODE_SOURCES
from anyorder.files import sha256_of

ENDINGS = (".parquet", ".parquet", ".jsonl.gz", ".parquet", ".jsonl")
CODE = """
import re, sys
from anyorder.cli import main
if __name__ == "__main__":
    code = main()
    status = open("/proc/self/status").read()
    print("PEAK", re.search(r"VmHWM:\\s+(\\d+)", status)[1], file=sys.stderr)
    sys.exit(code)
"""
SHARE_OF_REPEATS = 200
"""One made row in so many is repeated, once as it is and once rewritten."""


def rows_of(
    alias: str, seed: int, count: int, problems: list[Any], kinds: list[str]
) -> Iterator[Any]:
    """Made rows with planted ones between them; `kinds` is filled with what each is."""
    planted = planted_problems(problems, seed) + planted_repeats(seed, count // SHARE_OF_REPEATS)
    made = count - len(planted)
    every = made // (len(planted) + 1)
    for index in range(made):
        kinds.append("made")
        yield in_columns(alias, made_prompt(seed, index), made_program(seed, index), index)
        # Repeats are of the first rows, and come behind all of those.
        at = (index + 1) // every - 1
        if (index + 1) % every == 0 and at < len(planted):
            kind, _, prompt, program = planted[at]
            kinds.append(kind)
            yield in_columns(alias, prompt, program, made + at)


def start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> float:
    """Wait for a run; its peak memory in megabytes."""
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return int(errors.rsplit("PEAK", 1)[1]) / 1024


def rows_done(folder: Path) -> int:
    path = folder / "work" / "progress.json"
    if not path.exists():
        return 0
    return sum(counts["read"] for counts in json.loads(path.read_text())["counts"].values())


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def found_table(folder: Path, kinds: dict[str, list[str]]) -> list[str]:
    """What became of each kind of row."""
    reasons: dict[tuple[str, int], str] = {}
    for line in (folder / "dropped.jsonl").open():
        told = json.loads(line)
        reasons[told["source"], told["row"]] = told["reason"]
    table: Counter[tuple[str, str]] = Counter()
    for alias, planted in kinds.items():
        for row, kind in enumerate(planted):
            table[kind, reasons.get((alias, row), "kept")] += 1
    outcomes = ("kept", "contaminated", "duplicate", "near duplicate")
    others = sorted({outcome for _, outcome in table} - set(outcomes))
    lines = [
        "| rows | " + " | ".join((*outcomes, *others)) + " |",
        "|---" * (5 + len(others)) + "|",
    ]
    for kind in ("made", "copy", "near copy", "copy again", "repeat", "near repeat"):
        cells = (f"{table[kind, outcome]:,}" for outcome in (*outcomes, *others))
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmark", type=Path, required=True, help="HumanEval.jsonl.gz")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2, help="processes of the second run")
    parser.add_argument("--folder", type=Path, help="where to work; unset: a temporary one")
    given = parser.parse_args()
    with gzip.open(given.benchmark, "rt") as file:
        problems = [json.loads(line) for line in file]
    folder = given.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, list[str]] = {}
    words = ["data", "code-mixture", "--vocab", "bytes", "--max-tokens", "4096"]
    words += ["--shard-rows", str(max(100, given.rows // 40)), "--against", str(given.benchmark)]
    words += ["--source"]
    for seed, (source, ending) in enumerate(zip(CODE_SOURCES, ENDINGS, strict=True)):
        own = kinds.setdefault(source.alias, [])
        rows = rows_of(source.alias, seed, given.rows // len(ENDINGS), problems, own)
        words.append(f"{source.alias}={write_rows(folder / (source.alias + ending), rows)}")
    total = sum(map(len, kinds.values()))

    begun = time.perf_counter()
    peak = finish(start([*words, "--out", str(folder / "whole")]))
    seconds = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime
    second = [*words, "--workers", str(given.workers), "--out", str(folder / "killed")]
    killed = start(second)
    while rows_done(folder / "killed") < total // 2:
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    at = rows_done(folder / "killed")
    finish(start(second))

    manifest = json.loads((folder / "whole" / "manifest.json").read_text())
    same = digests(folder / "whole") == digests(folder / "killed")
    print("\n".join(found_table(folder / "whole", kinds)))
    print()
    print(f"{total:,} rows in one process: {seconds:,.0f} s, of which it was busy {busy:,.0f} s")
    print(f"peak memory {peak:,.0f} MB")
    print(f"state in memory: {manifest['state_bytes_per_row']} bytes a kept row")
    print(f"{given.workers} workers, killed after {at:,} rows, repeated: ", end="")
    print(
        f"all {len(digests(folder / 'whole'))} files are the same bytes" if same else "FILES DIFFER"
    )
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
