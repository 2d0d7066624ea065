"""Reports about texts that are no programs, of models that no command can load; by anchor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from made_traces import mdm, trace_of

import anyorder
from anyorder.apps import report as reporting
from anyorder.apps.jobs import ReportJob
from anyorder.apps.report import report
from anyorder.cli import main
from anyorder.report.runs import Material, gather
from anyorder.report.sections import all_sections
from anyorder.report.tables import Absent, Section
from anyorder.report.traces import pack
from anyorder.trace import Run, RunCard

PROMPTS = ["CC", "CN", "CO"]
ALPHABET = "CNO=()1 "


@pytest.fixture(scope="module")
def model() -> anyorder.Model:
    """A model that writes molecules; nobody can load it by a name."""
    import torch

    vocab = anyorder.Vocab.bytes()

    class Random(torch.nn.Module):
        def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            noise = torch.Generator().manual_seed(int(ids.sum()))
            logits = torch.full((*ids.shape, vocab.size), -9.0)
            chosen = [vocab.encode(letter)[0] for letter in ALPHABET]
            logits[..., chosen] = torch.randn(*ids.shape, len(chosen), generator=noise)
            return logits

    return anyorder.wrap(Random(), vocab, max_new_tokens=12)


@pytest.fixture
def wrapped(tmp_path: Path, model: anyorder.Model) -> Path:
    """A run as docs/diagnose.md makes one: in Python, without a task."""
    config = {"model": "mine", "family": "mdm", "options": {"policy": "confidence"}}
    run = Run.create(
        tmp_path / "wrapped", RunCard("a script", config, vocab_digest=model.vocab.digest())
    )
    run.append(0, model.sample(PROMPTS, policy="confidence", seed=0))
    run.finish()
    return tmp_path / "wrapped"


def test_what_is_missing_can_be_had(
    wrapped: Path, model: anyorder.Model, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(all_sections(Material(gather([wrapped]), ())))
    assert [each.slug for each in found if isinstance(each, Section)] == ["models", "order"]
    absent = {each.title: each.commands for each in found if isinstance(each, Absent)}
    assert absent == {
        "How the parts of a block are written": (f"anyorder measure {wrapped} --language python",),
        "Does the model know where its words belong?": (
            f"anyorder.measure.placement({str(wrapped)!r}, model, any_model=True)",
        ),
    }
    # Both do what they promise: with them, nothing is missing but what needs other runs.
    (call,) = absent["Does the model know where its words belong?"]
    eval(call, {"anyorder": anyorder, "model": model})
    (words,) = absent["How the parts of a block are written"]
    assert main(words.split()[1:]) == 0, capsys.readouterr().err
    gathered = gather([wrapped])
    assert gathered.runs[0].code
    # Not because there is an order: earlier versions took one of any text.
    path = wrapped / "measures.json"
    stored = json.loads(path.read_text())
    assert stored.pop("language") == "python"
    path.write_text(json.dumps(stored))
    (run,) = gather([wrapped]).runs
    assert not run.code and not {"order", "diversity", "similarity"} & run.measures.keys()
    path.write_text(json.dumps(stored | {"language": "python"}))
    then = list(all_sections(Material(gathered, ())))
    slugs = [each.slug for each in then if isinstance(each, Section)]
    assert slugs == ["models", "order", "placement"]
    titles = [each.title for each in then if isinstance(each, Absent)]
    assert not {*absent} & {*titles}


def test_the_page_speaks_of_texts(wrapped: Path, tmp_path: Path) -> None:
    found = report(ReportJob((wrapped,), out=tmp_path / "r.html", figures=False), progress=False)
    text = found.page.read_text(encoding="utf-8")
    assert "This page looks at 3 texts" in text and "Every text of this report" in text
    assert "statement tree" not in text.split("<script")[0]
    assert "The same finished texts" in text and "finished programs" not in text
    assert "nan" not in text.split("<script")[0].replace("financ", "")
    assert [each.topic for each in found.findings] == ["Order"]
    told = report(
        ReportJob((wrapped,), out=tmp_path / "p.html", figures=False, language="python"),
        progress=False,
    )
    assert "3 programs" in told.page.read_text(encoding="utf-8")


def test_texts_have_no_tree_in_the_player(
    wrapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_run(tmp_path / "code", [mdm()], family="mdm", options={"policy": "random"})
    packed: list[dict[str, Any]] = []

    def watched(groups: Any) -> dict[str, Any]:
        packed.append(pack(groups))
        return packed[-1]

    monkeypatch.setattr(reporting, "pack", watched)
    job = ReportJob((wrapped, program), out=tmp_path / "r.html", figures=False)
    report(job, progress=False)
    assert ["tree" in each for each in packed[0]["samples"]] == [False] * 3 + [True]


def test_texts_are_not_compared_as_programs(tmp_path: Path) -> None:
    """Molecules that parse as Python, in two orders: similarity is neither shown nor advised."""
    runs = [
        make_run(
            tmp_path / policy,
            [trace_of(["C", "*", "O"], steps, task_id="t/0")],
            family="mdm",
            options={"policy": policy},
        )
        for policy, steps in (("left_to_right", [1, 2, 3]), ("random", [2, 3, 1]))
    ]
    for folder in runs:
        card = json.loads((folder / "run.json").read_text())
        card["config"]["task"] = "molecules"
        (folder / "run.json").write_text(json.dumps(card))
    found = report(ReportJob(tuple(runs), out=tmp_path / "r.html", figures=False), progress=False)
    assert not found.material.comparisons
    assert "Does choosing the order change what is written?" not in dict(found.absent)
    assert dict(found.absent)["How often is the program right?"] == tuple(
        f"anyorder grade {folder}" for folder in runs
    )


def test_the_order_is_shown_by_anchor(tmp_path: Path) -> None:
    """Top to bottom from the start, bottom to top from the goal: both are outwards."""
    lines = ["def f():\n", "    a = start\n", "    b = a\n", "    goal = b\n", "    return goal\n"]
    anchors = {"t/0": ("start", [1, 2, 3, 4, 5]), "t/1": ("goal", [5, 4, 3, 2, 1])}
    folder = make_run(
        tmp_path / "run",
        [
            trace_of(lines, steps, task_id=task, entry_point="f")
            for task, (_, steps) in anchors.items()
        ],
        family="mdm",
        options={"policy": "confidence"},
        facts={
            task: {"anchor": name, "anchor_name": name, "language": "python"}
            for task, (name, _) in anchors.items()
        },
    )
    (order,) = (
        each
        for each in all_sections(Material(gather([folder]), ()))
        if isinstance(each, Section) and each.slug == "order"
    )
    (table,) = order.figures[-1].tables
    rows = {row[1].text: [cell.text for cell in row[2:]] for row in table.rows}
    assert list(rows) == ["start", "goal", "all"]
    assert rows["start"][0] == "1.00" and rows["goal"][0] == "\N{MINUS SIGN}1.00"
    assert rows["all"][0] == "0.00" and rows["all"][2] == "2"
    assert float(rows["start"][1]) == 1
