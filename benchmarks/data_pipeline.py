"""The data pipeline on made rows: memory, speed, a kill half-way, and what was planted.

Makes the five code sources in their own columns (JSON lines, gzipped JSON lines and Parquet), with
rows drawn from thousands of words. Plants rows among them: every problem of HumanEval (or, without
its file, of a benchmark made from the built-in corpus), unchanged, rewritten (other names, layout
and comments), and unchanged again; and repeats of made rows, unchanged and rewritten. Then runs
`anyorder data code-mixture` twice in a separate process: once to the end with one process, and once
with workers, killed with SIGKILL half-way and repeated. Prints which planted rows were found, which
clean rows were dropped, the peak memory according to the kernel, and whether both runs wrote the
same bytes.

    python benchmarks/data_pipeline.py --rows 6000                      a made benchmark, to try it
    python benchmarks/data_pipeline.py --benchmark HumanEval.jsonl.gz   200,000 rows
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

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from made_corpora import (
    in_columns,
    made_program,
    made_prompt,
    planted_problems,
    planted_repeats,
    write_rows,
)

from anyorder.bench.tasks import find_task
from anyorder.data.published import CODE_SOURCES
from anyorder.files import sha256_of
from tables import show

DOMINATES = """
Most of the time of a row is looking for the benchmark's n-grams (55 %) and parsing programs (20 %),
in Python and compiled loops; at this size starting up is a fifth of the whole. Python's own parser
does the parsing. So if everything else were free, a row would still take a fifth of its time: it is
at five times that floor. Nothing here is near the bandwidth of a disk. More workers help, and the
bytes stay the same.
"""

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
    """Made rows with planted ones between them; `kinds` gets the kind of each row."""
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
    """Wait for a run and return its peak memory in megabytes."""
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


def made_benchmark(path: Path, count: int = 164) -> Path:
    """Problems of the built-in corpus in HumanEval's columns: a docstring asks."""
    with gzip.open(path, "wt") as file:
        for number, problem in enumerate(find_task("stories", {}).problems(count)):
            assert problem.solution is not None
            header, body = problem.solution.split("\n", 1)
            row = {
                "task_id": f"Stories/{number}",
                "prompt": f'{header}\n    """{problem.prompt.strip()}"""\n',
                "canonical_solution": body,
                "test": "",
                "entry_point": problem.entry_point,
            }
            file.write(json.dumps(row) + "\n")
    return path


def show_found(folder: Path, kinds: dict[str, list[str]]) -> None:
    """Print how many rows of each kind were kept or dropped."""
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
    every = (*outcomes, *others)
    lines = [
        [kind, *(f"{table[kind, outcome]:,}" for outcome in every)]
        for kind in ("made", "copy", "near copy", "copy again", "repeat", "near repeat")
    ]
    show("what became of the rows", ["rows", *every], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmark", type=Path, help="HumanEval.jsonl.gz; unset: a made one")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2, help="processes of the second run")
    parser.add_argument("--folder", type=Path, help="where to work; unset: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if compare(given, folder) else 1)


def compare(given: argparse.Namespace, folder: Path) -> bool:
    """Do both runs and print their results; return whether they wrote the same bytes."""
    benchmark = given.benchmark or made_benchmark(folder / "made.jsonl.gz")
    with gzip.open(benchmark, "rt") as file:
        problems = [json.loads(line) for line in file]
    kinds: dict[str, list[str]] = {}
    words = ["data", "code-mixture", "--vocab", "bytes", "--max-tokens", "4096"]
    words += ["--shard-rows", str(max(100, given.rows // 40)), "--against", str(benchmark)]
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
    show_found(folder / "whole", kinds)
    files = len(digests(folder / "whole"))
    lines = [
        ["wall s", f"{seconds:,.0f}"],
        ["CPU s", f"{busy:,.0f}"],
        ["rows a CPU second", f"{total / busy:,.0f}"],
        ["peak memory, MB", f"{peak:,.0f}"],
        ["state in memory, bytes a kept row", manifest["state_bytes_per_row"]],
    ]
    show(f"{total:,} rows in one process", ["", "value"], lines)
    print(f"\n{given.workers} workers, killed after {at:,} rows, repeated: ", end="")
    print(f"all {files} files are the same bytes." if same else "FILES DIFFER.")
    return same


if __name__ == "__main__":
    main()
