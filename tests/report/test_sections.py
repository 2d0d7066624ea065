"""Sections: each has figures, tables and commands; what is absent says how to get it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import ABOUT, make_run
from made_traces import PROGRAM, flexmdm, mdm

from anyorder.measure.order_blocks import permuted_in_blocks
from anyorder.report.findings import findings
from anyorder.report.glossary import TERMS
from anyorder.report.page import opening
from anyorder.report.runs import MOST_BARS, Material, gather
from anyorder.report.sections import all_sections
from anyorder.report.sections.canvas import schedule_section
from anyorder.report.sections.order import CONTROLS, IN_BLOCKS, LINES
from anyorder.report.tables import NOTHING, Absent, Figure, Section
from anyorder.trace import Trace
from anyorder.trace.blocks import GIVEN_ORDER

SLUGS = [
    *("models", "accuracy", "similarity", "order", "placement", "generation", "passk"),
    *("insertion", "policies", "schedule", "cost"),
]


def sections_of(material: Material) -> dict[str, Section]:
    return {each.slug: each for each in all_sections(material) if isinstance(each, Section)}


def test_everything_is_there_where_the_runs_allow_it(material: Material) -> None:
    found = list(all_sections(material))
    assert [each.slug for each in found if isinstance(each, Section)] == SLUGS
    assert [each.title for each in found if isinstance(each, Absent)] == ["How long does it take?"]


def figures(material: Material) -> list[Figure]:
    return [figure for each in sections_of(material).values() for figure in each.figures]


def test_every_figure_names_its_commands_and_has_its_numbers(material: Material) -> None:
    names = []
    for figure in figures(material):
        assert figure.commands
        assert all(command.startswith("anyorder ") for command in figure.commands)
        assert figure.commands[0].startswith("anyorder sample models/")
        assert figure.tables
        for table in figure.tables:
            assert all(len(row) == len(table.heads) for row in table.rows)
        if figure.drawing is not None:
            names.append(figure.drawing.name)
    assert len(set(names)) == len(names) >= len(SLUGS)


def test_every_rate_has_its_interval(material: Material) -> None:
    [figure] = sections_of(material)["accuracy"].figures
    for row in figure.tables[0].rows:
        assert re.fullmatch(r"[\d.]+ to [\d.]+\N{NO-BREAK SPACE}%", row[1].small)


def test_order_tables_carry_both_controls(material: Material) -> None:
    _, tree = sections_of(material)["order"].figures
    for table in tree.tables:
        rows = [(row[0].text, row[0].small) for row in table.rows]
        runs = [number for number, (name, _) in enumerate(rows) if name]
        assert runs
        for number in runs:
            assert [small for _, small in rows[number + 1 : number + 3]] == list(CONTROLS.values())
            for row in table.rows[number : number + 3]:
                assert all(cell.text != NOTHING for cell in row[1:])


def test_bars_of_models_that_write_lines_carry_the_random_order_of_lines(
    material: Material,
) -> None:
    _, tree = sections_of(material)["order"].figures
    assert tree.drawing is not None
    words = tree.drawing.svg()
    assert LINES["segments"] in words
    assert "random order of whole lines" in str(tree.tables)
    alone = Material(gather([material.gathered.runs[0].run.folder]), ())
    _, tree = sections_of(alone)["order"].figures
    assert tree.drawing is not None
    assert LINES["segments"] not in tree.drawing.svg()  # and no key for a mark that is not there


@pytest.mark.parametrize("slots", [1, 6])
def test_runs_with_blocks_are_placed_between_controls_within_them(
    tmp_path: Path, slots: int
) -> None:
    """Also blocks of one slot, which leave no order to be found."""
    options = {"policy": "confidence", "temperature": 0.0, "block": slots}
    made = [mdm(f"t/{i}", i) for i in range(3)]
    count = len(made[0].pieces)
    places = np.arange(count)
    dealt = [permuted_in_blocks(places + 1, places // slots, (i, 0, 0)) for i in range(3)]
    traces = [
        replace(each, reveal_step=steps, steps=count)
        for each, steps in zip(made, dealt, strict=True)
    ]
    blocks = make_run(tmp_path / "blocks", traces, family="mdm", options=options)
    plain = {name: value for name, value in options.items() if name != "block"}
    whole = make_run(tmp_path / "whole", traces, family="mdm", options=plain)
    material = Material(gather([blocks, whole]), ())
    token, inside, tree = sections_of(material)["order"].figures
    assert inside.title == "Inside blocks of slots" and len(inside.tables[0].rows) == 1
    [row] = inside.tables[0].rows
    found = dict(zip(inside.tables[0].heads, (cell.text for cell in row), strict=True))
    assert found["slots of a block, at most"] == str(slots)
    assert (found["[[tau]] within blocks"] == NOTHING) == (slots == 1)
    smalls = [row[0].small for table in tree.tables for row in table.rows]
    for name in (*IN_BLOCKS.values(), *CONTROLS.values()):
        assert name in smalls
    by_run = {row[0].small: row for row in token.tables[0].rows}
    assert "chance" in by_run["blocks"][4].small and "chance" not in by_run["whole"][4].small
    said = findings(Material(gather([blocks]), ()))
    assert GIVEN_ORDER.format(slots) in said[0].text
    assert ("leave no order" in said[0].says) == (slots == 1)
    assert ("within blocks of 6" in said[0].says) == (slots == 6)


def test_marked_words_of_all_sections_are_explained(material: Material) -> None:
    texts: list[str] = []
    for section in sections_of(material).values():
        texts += section.text
        for figure in section.figures:
            texts += [figure.title, figure.caption]
            for table in figure.tables:
                texts += [table.title, *table.heads]
                texts += [cell.text for row in table.rows for cell in row]
    for term in re.findall(r"\[\[([^|\]]+)", " ".join(texts)):
        assert term in TERMS


def test_log_probabilities_are_explained(material: Material) -> None:
    for section in sections_of(material).values():
        texts = [*section.text, *(figure.caption for figure in section.figures)]
        assert not any("log-prob" in re.sub(r"\[\[.*?\]\]", "", text) for text in texts)


def test_acronyms_are_marked_where_they_stand_in_a_table(material: Material) -> None:
    for figure in figures(material):
        for table in figure.tables:
            for head in table.heads:
                unmarked = re.sub(r"\[\[.*?\]\]", "", head)
                assert not re.search(r"\b[A-Z]{2,}\b|@", unmarked), head


@pytest.mark.parametrize("graded", [False, True])
def test_one_run_says_what_would_give_the_rest(tmp_path: Path, graded: bool) -> None:
    options = {"policy": "confidence", "temperature": 0.0}
    right = (lambda trace: True) if graded else None
    # With ids, as `anyorder sample` has them: a network cannot be asked about strings.
    made = [mdm(f"t/{i}", i) for i in range(3)]
    traces = [replace(each, prompt_ids=[1], token_ids=range(len(each.pieces))) for each in made]
    folder = make_run(tmp_path / "one", traces, family="mdm", options=options, right=right)
    found = list(all_sections(Material(gather([folder]), ())))
    there = [each.slug for each in found if isinstance(each, Section)]
    assert there == (["models", "accuracy", "order"] if graded else ["models", "order"])
    commands = {each.title: each.commands for each in found if isinstance(each, Absent)}
    assert all(commands.values())
    assert any("--placement models/mdm" in each for every in commands.values() for each in every)
    assert any("anyorder grade" in each for every in commands.values() for each in every) != graded


def test_of_many_runs_the_main_ones_are_drawn_and_the_others_folded(tmp_path: Path) -> None:
    runs = [
        make_run(
            tmp_path / f"{number}",
            [mdm()],
            family="mdm",
            options={"policy": "confidence", "temperature": number / 10},
            right=lambda trace: True,
        )
        for number in range(MOST_BARS + 2)
    ]
    found = sections_of(Material(gather(runs), ()))
    for slug in ("accuracy", "order"):
        first, others = found[slug].figures[0].tables[:2]
        assert 0 < len(first.rows) <= MOST_BARS and not first.folded
        assert len(first.rows) + len(others.rows) == len(runs) and others.folded


@pytest.mark.parametrize("clocks", [("events", "steps"), ("events",)])
def test_the_schedule_is_that_of_a_run_in_steps(tmp_path: Path, clocks: tuple[str, ...]) -> None:
    """A run by events, though it is the main one of its family, does not hide it."""
    runs = [
        make_run(
            tmp_path / clock,
            [flexmdm()],
            family="flexmdm",
            options={"policy": "confidence", "clock": clock, "insertion_temperature": value},
        )
        for clock, value in zip(clocks, (1.0, 0.5), strict=False)
    ]
    found = schedule_section(Material(gather(runs), ()))
    if "steps" in clocks:
        assert isinstance(found, Section)
        assert "steps" in found.figures[0].commands[0]
    else:
        assert isinstance(found, Absent)
        assert "--clock steps" in found.commands[0]


def test_the_command_of_placement_has_its_stride(material: Material) -> None:
    commands = sections_of(material)["placement"].figures[0].commands
    assert any(f"--stride {ABOUT['stride']}" in each for each in commands)


def test_text_alone_has_no_order(tmp_path: Path) -> None:
    trace = Trace(task_id="t/0", sample=0, prompt="", text="".join(PROGRAM))
    folder = make_run(tmp_path / "text", [trace], family="", options={})
    found = list(all_sections(Material(gather([folder]), ())))
    assert [each.slug for each in found if isinstance(each, Section)] == ["models"]


def test_the_player_opens_on_two_models_and_one_problem(material: Material) -> None:
    runs = material.gathered.runs
    traces = [(run, trace) for run in runs for trace in run.traces]
    begin = opening(runs)
    assert begin.compare is not None
    (left, one), (right, two) = traces[begin.sample], traces[begin.compare]
    assert (left.family, right.family) == ("mdm", "flexmdm")
    assert (one.task_id, one.prompt) == (two.task_id, two.prompt)
    keys = [(trace.task_id, trace.sample) for trace in (one, two)]
    assert [run.verdicts[key] for run, key in zip((left, right), keys, strict=True)] == [
        *("passed", "passed")
    ]
