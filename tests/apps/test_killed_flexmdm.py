"""Sampling of flexmdm, killed by SIGKILL at random moments and repeated: the very same traces.

In mode compat all rows of a batch share one stream of noise, so that it also matters that batches
keep their composition. The network is untrained: only the bookkeeping is at stake.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import wait_until

from anyorder.apps.corpus import open_corpus
from anyorder.apps.jobs import SampleJob
from anyorder.apps.sample import sample_to_run
from anyorder.apps.train import model_card
from anyorder.model import build
from anyorder.recipes import find_recipe, override
from anyorder.trace import Run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Imports once, then a process for every line: [job, options, doomed], or "wait" for its exit code.
# A doomed one never ends by itself, however late its killer comes.
SERVER = """
import json, os, sys, time
from pathlib import Path
from anyorder.apps.jobs import SampleJob
from anyorder.apps.sample import sample_to_run
from anyorder.trace import Run
child = 0
for line in sys.stdin:
    asked = json.loads(line)
    if asked == "wait":
        answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    else:
        answer = child = os.fork()
        if not child:
            job, options, doomed = asked
            if doomed:
                Run.finish = lambda run: time.sleep(600)
            job = SampleJob(**job | {"out": Path(job["out"])})
            sample_to_run(job, options, command="test", progress=False)
            os._exit(0)
    print(answer, flush=True)
"""


class Server:
    """Starts sampling processes and tells how they ended."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: Any) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.process.communicate(timeout=240)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrained") / "flexmdm"
    small = {"net.width": 16, "net.layers": 2, "net.heads": 2, "net.mlp_width": 32}
    recipe = override(find_recipe("tiny/flexmdm"), small)
    corpus = open_corpus(recipe.data)
    found = build(model_card(recipe, corpus), corpus.vocab, name="untrained", seed=1)
    torch.nn.init.constant_(found.net.gap.outer.bias, 1.5)  # or it would hardly write a word
    found.save(folder)
    return folder


def kill(server: Server, asked: list[Any], parts: int, delay: float) -> None:
    """Kill a sampling process `delay` seconds after so many of its parts are there."""
    folder = Path(asked[0]["out"])
    child = server.ask([*asked, True])
    try:
        wait_until(lambda: len(list(folder.glob("parts/*.parquet"))) >= parts, pause=0.001)
        time.sleep(delay)
    finally:
        os.kill(child, signal.SIGKILL)
        ended = server.ask("wait")
    assert ended == -signal.SIGKILL
    run = Run.open(folder)
    assert not run.complete and len(run.done_parts()) >= parts


def traces(folder: Path) -> list[str]:
    """Spelled out to the last digit, since the NaN of frozen text is not equal to itself."""
    return [repr(row) for row in Run.open(folder).table().drop_columns(["seconds"]).to_pylist()]


STORIES: dict[str, Any] = {"task": "stories", "limit": 10, "samples": 2, "batch": 3}
PROMPT: dict[str, Any] = {"prompt": "Mia<fill>.<fill>", "samples": 20, "batch": 3}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "steps": (STORIES, {"steps": 40, "temperature": 0.8}),
    "events": (STORIES | {"max_new_tokens": 24}, {"clock": "events", "temperature": 0.8}),
    "fill": (PROMPT, {"steps": 40, "temperature": 0.8}),
    "compat": (
        STORIES | {"max_length": 80},
        {"steps": 40, "temperature": 0.8, "mode": "compat"},
    ),
}
OFTEN = ("fill", "compat")
"""Cases of the quick suite: rows of their own noise, and rows that share it."""


@pytest.mark.parametrize(
    ("what", "options"),
    [
        pytest.param(*case, id=name, marks=() if name in OFTEN else pytest.mark.long)
        for name, case in CASES.items()
    ],
)
def test_killed_sampling_equals_undisturbed(
    server: Server, model: Path, tmp_path: Path, what: dict[str, Any], options: dict[str, Any]
) -> None:
    job = {"model": str(model), "seed": 5, **what}
    whole = SampleJob(out=tmp_path / "whole", **job)
    sample_to_run(whole, options, command="test", progress=False)
    asked = [job | {"out": str(tmp_path / "killed")}, options]
    chance = random.Random(7)
    for parts in (1, 3, 4):
        kill(server, asked, parts, chance.uniform(0, 0.03))
    server.ask([*asked, False])
    assert server.ask("wait") == 0
    expected = traces(tmp_path / "whole")
    assert traces(tmp_path / "killed") == expected
    assert len(expected) == 20
    tokens = Run.open(tmp_path / "whole").table(["token_ids"]).to_pylist()
    assert len(set(map(str, tokens))) > 15
