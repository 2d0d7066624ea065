"""Tables of similarity: by hand, filters and verdicts, pairs of policies, real run folders."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anyorder.measure.programs import ProgramOptions, Programs, TreeLimits, stored_verdicts
from anyorder.measure.similarity_scores import SimilarityOptions, similarity
from anyorder.measure.trees import TreeOptions
from anyorder.trace import Run, RunCard, Trace

ADD = "def f(x):\n    y = x + 1\n    return y\n"
SAME = "def g(a):\n    b = a + 1\n    return b\n"
SHORT = "def f(x):\n    return x + 2\n"
NONE = "def f(x):\n    return x\n"
BROKEN = "def f(x:\n"

REFERENCE = Programs.of_texts("l2r", {"q1": [ADD, NONE], "q2": [ADD], "q3": [BROKEN]})
QUICK = SimilarityOptions(resamples=200)


def scores(table: object, policy: str, name: str = "valid") -> dict[str, float]:
    row = table.row(policy, name)  # type: ignore[attr-defined]
    return {metric: score.estimate for metric, score in row.scores.items()}


def test_by_hand() -> None:
    policy = Programs.of_texts("p", {"q1": [SHORT, SAME], "q2": [SHORT, BROKEN], "q3": [ADD]})
    table = similarity(policy, REFERENCE, QUICK)
    row = table.row("p")
    # SHORT against ADD: ASTD 5 of 12, TSED 4 of 14, Coarse 1 of 4; against NONE 3 of 9, 2 of 10, 0.
    assert row.per_prompt["q1"]["ASTD"] == pytest.approx((max(1 - 5 / 12, 1 - 3 / 9) + 1) / 2)
    assert row.per_prompt["q1"]["TSED"] == pytest.approx((max(1 - 4 / 14, 1 - 2 / 10) + 1) / 2)
    assert row.per_prompt["q1"]["Coarse"] == 1.0
    assert row.per_prompt["q2"] == pytest.approx(
        {"ASTD": 1 - 5 / 12, "TSED": 1 - 4 / 14, "Coarse": 1 - 1 / 4}
    )
    assert set(row.per_prompt) == {"q1", "q2"}, "no reference of q3 parses"
    assert (row.prompts, row.samples, row.of_samples) == (2, 3, 5)
    assert row.scores["ASTD"].estimate == pytest.approx((5 / 6 + 7 / 12) / 2)
    assert row.scores["ASTD"].n == 2
    assert table.statuses == {
        "p": {"parsed": 4, "unparsable": 1},
        "l2r (reference)": {"parsed": 3, "unparsable": 1},
    }


def test_runs_of_other_tasks_are_named() -> None:
    policies = [Programs.of_texts("p", {"q1": [ADD]}), Programs.of_texts("far", {"z1": [ADD]})]
    notes = similarity(policies, REFERENCE, QUICK).notes
    assert [note for note in notes if "no task in common" in note] == [
        "far has no task in common with l2r: compare runs of the same task"
    ]


def test_the_reference_among_itself_is_the_ceiling() -> None:
    reference = Programs.of_texts("l2r", {"q1": [ADD, SAME, SHORT], "q2": [ADD]})
    table = similarity(Programs.of_texts("p", {"q1": [ADD]}), reference, QUICK)
    [ceiling] = [row for row in table.rows if row.ceiling]
    assert ceiling.per_prompt["q1"]["ASTD"] == pytest.approx((1 + 1 + 1 - 5 / 12) / 3)
    assert list(ceiling.per_prompt) == ["q1"], "one sample has nobody to be compared with"
    assert scores(table, "p")["ASTD"] == 1.0
    bare = similarity(Programs.of_texts("p", {}), reference, SimilarityOptions(ceiling=False))
    assert math.isnan(scores(bare, "p")["ASTD"]) and len(bare.rows) == 1


def test_correct_pairs_need_verdicts_on_both_sides() -> None:
    texts = {"q1": [ADD, SHORT], "q2": [SHORT]}
    verdicts = {("q1", 0): False, ("q1", 1): True, ("q2", 0): False}
    policy = Programs.of_texts("p", texts, verdicts=verdicts)
    graded = Programs.of_texts(
        "l2r", {"q1": [ADD, NONE], "q2": [SHORT]}, verdicts={("q1", 0): True, ("q2", 0): True}
    )
    table = similarity(policy, graded, QUICK)
    row = table.row("p", "correct")
    assert row.per_prompt == {
        "q1": pytest.approx({"ASTD": 7 / 12, "TSED": 10 / 14, "Coarse": 0.75})
    }
    assert (row.samples, row.of_samples, row.prompts) == (1, 3, 1)
    assert table.row("p").prompts == 2 and not table.notes
    ungraded = similarity(policy, REFERENCE, QUICK)
    assert {row.filter for row in ungraded.rows} == {"valid"}
    assert ungraded.notes == ("no correct pairs: l2r not graded",)
    with pytest.raises(ValueError, match="anyorder grade"):
        similarity(policy, REFERENCE, SimilarityOptions(filters=("correct",)))
    with pytest.raises(ValueError, match="valid, correct"):
        similarity(policy, REFERENCE, SimilarityOptions(filters=("best",)))


def test_policies_are_compared_on_the_prompts_of_both() -> None:
    near = Programs.of_texts("near", {"q1": [SAME], "q2": [SAME], "q9": [SAME]})
    far = Programs.of_texts("far", {"q1": [NONE], "q2": [NONE]})
    one = Programs.of_texts("one", {"q2": [SHORT]})
    table = similarity([near, far, one], REFERENCE, QUICK)
    assert [(item.left, item.right) for item in table.differences] == [
        *(("near", "far"), ("near", "one"), ("far", "one"))
    ]
    difference = table.differences[0].scores["ASTD"]
    expected = table.row("near").scores["ASTD"].estimate - scores(table, "far")["ASTD"]
    assert difference.estimate == pytest.approx(expected) and difference.n == 2
    assert table.differences[1].scores["ASTD"].n == 1


def test_options_reach_the_trees() -> None:
    policy = Programs.of_texts("p", {"q2": ["def f(x):\n    y = y + 1\n    return x\n"]})
    single = ProgramOptions(metrics=("ASTD",), trees=TreeOptions(placeholders="single"))
    assert scores(similarity(policy, REFERENCE, QUICK), "p")["ASTD"] < 1
    table = similarity(policy, REFERENCE, SimilarityOptions(programs=single, resamples=200))
    assert scores(table, "p") == {"ASTD": 1.0}
    assert table.settings["trees"]["placeholders"] == "single"
    assert "grammar" not in table.settings
    small = ProgramOptions(tree_limits=TreeLimits(nodes=12))
    table = similarity(policy, REFERENCE, SimilarityOptions(programs=small, resamples=200))
    assert table.statuses["p"] == {"too_large": 1}, "14 nodes for TSED, so in no metric"
    with pytest.raises(ValueError, match="TSED, ASTD, Coarse"):
        ProgramOptions(metrics=("BLEU",))


def test_deep_chains_are_too_large_before_they_take_minutes() -> None:
    chain = "x = " + " + ".join(["1"] * 400)
    policy = Programs.of_texts("p", {"q2": [chain]})
    assert similarity(policy, REFERENCE, QUICK).statuses["p"] == {"too_large": 1}


def test_an_extracted_program_must_parse_as_it_is() -> None:
    run_text = f"Sure:\n```\n{ADD}```"
    texts = similarity(Programs.of_texts("p", {"q2": [run_text]}), REFERENCE, QUICK)
    assert texts.statuses["p"] == {"fallback": 1} and scores(texts, "p")["ASTD"] == 1.0


def make_run(
    folder: Path, programs: dict[str, list[str | None]], policy: str | None, **changes: str | None
) -> Run:
    run = Run.create(folder, RunCard(command="test", config={}))
    traces = [
        Trace(
            task_id=task,
            sample=number,
            policy=policy,
            **{"prompt": "", "text": f"so:\n{text}", "program": text, **changes},  # type: ignore[arg-type]
        )
        for task, texts in programs.items()
        for number, text in enumerate(texts)
    ]
    run.append(0, traces)
    run.finish()
    return Run.open(folder)


def test_a_sample_without_a_program_has_none_where_one_was_looked_for(tmp_path: Path) -> None:
    """The word `so` would parse; but extraction found no program in this answer."""
    run = make_run(tmp_path / "run", {"q1": [ADD, None]}, "p", text="so\nfor you\n")
    table = similarity(run, REFERENCE, QUICK)
    assert table.statuses["p"] == {"empty": 1, "parsed": 1}
    assert table.row("p").samples == 1


def test_a_completion_is_read_after_its_prompt(tmp_path: Path) -> None:
    """Alone, only a piece of it would parse, and the piece would be compared."""
    head, body = ADD[: ADD.index("\n") + 1], ADD[ADD.index("\n") + 1 :]
    run = make_run(tmp_path / "run", {"q2": [None]}, "p", prompt=head, text=body)
    table = similarity(run, REFERENCE, QUICK)
    assert table.statuses["p"] == {"parsed": 1}
    assert scores(table, "p") == {"TSED": 1, "ASTD": 1, "Coarse": 1}


def write_verdicts(run: Run, rows: list[tuple[str, int, str, str]]) -> None:
    names = ("task_id", "sample", "verdict", "extraction")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    pq.write_table(table, run.folder / "verdicts.parquet")


def test_runs_with_their_verdicts(tmp_path: Path) -> None:
    base = make_run(tmp_path / "base", {"q1": [ADD, NONE]}, "left_to_right")
    run = make_run(tmp_path / "other", {"q1": [SHORT, BROKEN]}, None)
    table = similarity(run, base, QUICK)
    assert table.reference == "left_to_right"
    assert table.statuses["other"] == {"parsed": 1, "unparsable": 1}
    write_verdicts(base, [("q1", 0, "passed", "plain"), ("q1", 1, "wrong", "plain")])
    write_verdicts(run, [("q1", 0, "passed", "plain"), ("q1", 1, "syntax", "plain")])
    table = similarity({"mine": run}, base, QUICK)
    assert scores(table, "mine", "correct")["ASTD"] == pytest.approx(7 / 12)
    assert scores(table, "mine")["ASTD"] == pytest.approx(6 / 9)
    write_verdicts(run, [("q1", 0, "passed", "plain"), ("q1", 0, "wrong", "cleaned")])
    with pytest.raises(ValueError, match="2 gradings"):
        similarity(run, base, QUICK)
    with pytest.raises(ValueError, match="0 gradings called 'raw', of cleaned; plain"):
        stored_verdicts(run, "raw")
    assert stored_verdicts(run, "cleaned") == {("q1", 0): "wrong"}
    chosen = Programs.of_run(run, extraction="plain")
    assert scores(similarity(chosen, base, QUICK), "other", "correct")["ASTD"] < 1
    given = Programs.of_run(run, verdicts={("q1", 0): False})
    assert math.isnan(scores(similarity(given, base, QUICK), "other", "correct")["ASTD"])


def test_programs_extracted_elsewhere(tmp_path: Path) -> None:
    base = make_run(tmp_path / "base", {"q1": [ADD]}, "left_to_right")
    run = make_run(tmp_path / "other", {"q1": ["    return x", "    return y"]}, "random")
    whole = Programs.of_run(run, texts={("q1", 0): "def f(x):\n    return x"})
    table = similarity(whole, base, QUICK)
    assert table.statuses["random"] == {"empty": 1, "parsed": 1}
    assert scores(table, "random")["Coarse"] == 0.75


def test_records_and_print() -> None:
    policy = Programs.of_texts("p", {"q1": [SHORT], "q2": [ADD]})
    table = similarity(policy, REFERENCE, QUICK)
    record = json.loads(json.dumps(table.to_record(), allow_nan=False))
    assert record["rows"][0]["per_prompt"]["q2"]["ASTD"] == 1.0
    assert len(record["settings"]["grammar"]) == 16
    lines = str(table).split("\n")
    assert lines[0].split() == [
        "against",
        "l2r",
        "filter",
        "prompts",
        "samples",
        "TSED",
        "ASTD",
        "Coarse",
    ]
    assert "2/2" in lines[1] and "(each among the others)" in lines[2]
    with pytest.raises(ValueError, match="no row"):
        table.row("nobody")


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(ValueError, match="called 'l2r'"):
        similarity([REFERENCE, REFERENCE], REFERENCE)
    with pytest.raises(ValueError, match="str is no run"):
        similarity(["runs/x"], REFERENCE)
