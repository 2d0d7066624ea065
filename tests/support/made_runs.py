"""Run folders made by hand for the tests of the report: no model, no sandbox, all measures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from made_traces import flexmdm, latentmdm, mdm, trace_of

from anyorder.bench.grade import Grading, Verdict, VerdictTable
from anyorder.measure.placement_scores import Commit, Dense, place
from anyorder.measure.placement_table import CanvasRow, PlacementTable, to_table, write_file
from anyorder.trace import Run, RunCard, Trace
from anyorder.trace.run import TRACES_FILE

TASKS = 6
ABOUT = {"stride": 16, "region": "code"}
OTHER = ["def f(", "plums", ", ", "bags", "):", "\n", "    return ", "bags", "\n"]


def program(tokens: Sequence[str], steps: Sequence[int], **about: Any) -> Trace:
    """A sample whose tokens come at these steps."""
    return trace_of(list(tokens), list(steps), forwards=len(tokens), seconds=0.5, **about)


def make_run(
    folder: Path,
    traces: Sequence[Trace],
    *,
    family: str,
    options: dict[str, Any],
    right: Callable[[Trace], bool] | None = None,
    **card: Any,
) -> Path:
    """A finished run, graded where `right` says what passes."""
    samples = max(trace.sample for trace in traces) + 1
    config = {"family": family, "model": f"models/{family}", "task": "stories", "samples": samples}
    about = {"model_digest": family, "data_digest": "stories", "device": "cpu", "dtype": "float32"}
    config |= {"options": options, "batch": card.pop("batch", 4)}
    command = f"anyorder sample models/{family} --task stories --out {folder.name}"
    run = Run.create(folder, RunCard(command, config, seeds=(0,), **(about | card)))
    named = [replace(trace, family=family, policy=options.get("policy")) for trace in traces]
    run.append(0, named)
    run.finish()
    if right is not None:
        table = VerdictTable(folder, Grading("stories", "stories", "first"))
        keys = [(trace.task_id, trace.sample) for trace in named]
        table.append(
            [
                Verdict(key, "passed" if right(trace) else "wrong", level=3)
                for key, trace in zip(keys, named, strict=True)
            ]
        )
        table.finish({key: number for number, key in enumerate(keys)})
    return folder


def add_placement(folder: Path) -> None:
    """What `anyorder measure --placement` leaves: torn at first, sure later."""
    torn, sure = [[0.6, 0.4], [0.4, 0.6]], [[1.0, 0.0], [0.0, 1.0]]
    rows = []
    for task in range(TASKS):
        for step, table in ((0, torn), (16, sure)):
            placed = place(Dense.of(range(2), table), [Commit(0, 0)])
            rows.append(
                CanvasRow(
                    task_id=f"t/{task}",
                    sample=0,
                    step=step,
                    steps=27,
                    time=None,
                    span="text",
                    open=2,
                    masked=2,
                    placed=placed,
                    log_prob=np.log(placed.committed),
                )
            )
    write_file(folder / "placement.parquet", to_table(rows, ABOUT).to_batches(), ABOUT)
    digest = Run.open(folder).card.files[TRACES_FILE]
    found = PlacementTable.of_rows(rows, ABOUT).to_record()
    record = {"schema": 1, "traces": digest, "versions": {}, "placement": found}
    (folder / "measures.json").write_text(json.dumps(record))


def all_runs(folder: Path) -> list[Path]:
    """Runs for every section: three orders, insertion at two temperatures, lines, repetition."""
    plain = {"temperature": 0.0}
    steps = list(range(1, 28))
    first = [mdm(f"t/{i}", i) for i in range(TASKS)]
    again = [replace(mdm(f"t/{i}", 9), sample=s) for i in range(TASKS) for s in range(4)]
    in_order = [program([*first[0].pieces], steps, task_id=f"t/{i}") for i in range(TASKS)]
    random = [
        program(OTHER, np.random.default_rng(i).permutation(9) + 1, task_id=f"t/{i}")
        for i in range(TASKS)
    ]
    grown = [flexmdm(f"t/{i}", i) for i in range(TASKS)]
    lines = [replace(latentmdm(), task_id=f"t/{i}") for i in range(TASKS)]
    options = {name: plain | {"policy": name} for name in ("confidence", "left_to_right", "random")}

    def made(name: str, traces: Sequence[Trace], family: str, chosen: Any, of: int) -> Path:
        def right(trace: Trace) -> bool:
            return (int(trace.task_id[2:]) + trace.sample) % of > 0

        return make_run(folder / name, traces, family=family, options=chosen, right=right)

    slow = {"policy": "confidence", "temperature": 0.8}
    runs = [
        made("mdm-confidence", first, "mdm", options["confidence"], 6),
        made("mdm-left", in_order, "mdm", options["left_to_right"], 6),
        made("mdm-random", random, "mdm", options["random"], 2),
        made("mdm-again", again, "mdm", slow, 3),
    ]
    for value in (0.5, 1.0):
        chosen = options["confidence"] | {"insertion_temperature": value, "clock": "steps"}
        runs.append(made(f"flexmdm-{value}", grown, "flexmdm", chosen, 3))
    for k in (1, 2):
        chosen = plain | {"policy": "average", "k": k}
        runs.append(made(f"latentmdm-{k}", lines, "latentmdm", chosen, 5))
    runs.append(made("ar", in_order, "ar", plain | {"policy": "left_to_right"}, 7))
    for run in (runs[0], runs[6]):
        add_placement(run)
    return runs
