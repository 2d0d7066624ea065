"""The page: made from stored records alone, the same every time, honest about what is missing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import pytest
from study_support import SIZE_WORDS, SIZES, bare_decimals, bare_numbers, make_study, race

from studies.__main__ import main
from studies.page import IMAGES, Written, write_page
from studies.plan import Plan
from studies.questions.all import QUESTIONS
from studies.questions.section import NOTHING, Section
from studies.study_job import StudyJob
from studies.view import Study

VERDICTS = {"yes", "no", "undecided", "not measured yet"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anyorder.files.sync", lambda path: None)  # hundreds of small files
        make_study(path, Plan(SIZES))
    return path


@pytest.fixture(scope="module")
def written(folder: Path) -> Written:
    return write_page(Study(folder, Plan(SIZES)), folder.parent / "docs" / "results.md")


@pytest.fixture
def sections(written: Written) -> dict[str, Section]:
    return written.sections


def all_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_page_is_the_same_every_time_and_complete(
    folder: Path, written: Written, tmp_path: Path
) -> None:
    page = tmp_path / "again" / "results.md"
    words = ["--only", "page", "--folder", str(folder), "--page", str(page)]
    assert main([*words, *SIZE_WORDS]) == 0
    first, second = all_files(written.page.parent), all_files(page.parent)
    assert first == second
    text = first["results.md"].decode()
    figures = set(re.findall(rf"\(({IMAGES}/[a-z0-9-]+\.svg)\)", text))
    assert figures == set(first) - {"results.md"} and len(figures) == len(written.figures) >= 8
    assert tuple(written.sections) == tuple(QUESTIONS)
    for name, section in written.sections.items():
        assert f"## {section.title}" in text and f'make study ARGS="{name}"' in text
        assert section.claims and {each.holds for each in section.claims} <= VERDICTS
        assert section.tables and section.checks
    assert "not run yet" not in text.lower() and "not trained yet" not in text
    told = re.search(r'Written by `make study ARGS="(--only page .+?)"` from', text)
    assert told is not None
    assert main([*shlex.split(told[1]), "--page", str(tmp_path / "told" / "results.md")]) == 0
    assert all_files(tmp_path / "told") == first


def test_in_short_every_claim_is_counted(written: Written) -> None:
    short = written.page.read_text().partition("## In short\n\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in short.splitlines() if line.startswith("| ")]
    for row, section in zip(rows[2:], written.sections.values(), strict=True):
        first = section.claims[0]
        assert row[:4] == [section.title, first.says, first.here, first.holds]
        assert counted(row[4]) == Counter(claim.holds for claim in section.claims)
    claims = [claim for own in written.claims.values() for claim in own]
    theirs, ours = short.rstrip().splitlines()[-1].split("; ")
    assert counted(theirs) + counted(ours) == Counter(claim.holds for claim in claims)
    assert sum(counted(ours).values()) == sum("our own question" in each.source for each in claims)


def counted(text: str) -> Counter[str]:
    found = re.findall(rf"(\d+) ({'|'.join(VERDICTS)})", text)
    return Counter({verdict: int(number) for number, verdict in found})


def test_a_sign_alone_is_no_order(written: Written) -> None:
    """Made-up taus are between 0 and 1: surely above 0, and not surely above a half."""
    asked = [
        each for own in written.claims.values() for each in own if "tau above 0.5" in each.says
    ]
    assert len(asked) == 2 and {each.holds for each in asked} <= {"undecided", "no"}
    mirror = [each for own in written.claims.values() for each in own if "below -0.5" in each.says]
    assert len(mirror) == 2 and {each.holds for each in mirror} == {"no"}


def test_definitions_that_wrote_the_same_programs_are_one_finding(
    folder: Path, written: Written, tmp_path: Path
) -> None:
    said = "confidence, margin and entropy differ on no problem"
    assert said not in written.page.read_text()
    copy = tmp_path / "tiny"
    shutil.copytree(folder, copy)
    for model in ("mdm-layout1", "mdm-layout1-s1", "mdm-layout1-s2"):
        kept = copy / "runs" / f"{model}.similarity-confidence"
        for policy in ("margin", "entropy"):
            shutil.copytree(
                kept, copy / "runs" / f"{model}.similarity-{policy}", dirs_exist_ok=True
            )
    alike = write_page(Study(copy, Plan(SIZES)), tmp_path / "results.md")
    assert said in alike.page.read_text()


def test_of_lanes_that_solve_as_much_the_quickest_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny"
    copy.mkdir()
    stored = race()
    quick = json.loads(json.dumps(stored["lanes"][0]))  # as ar, in less time
    quick |= {"entrant": "duo", "family": "duo"}
    for key in ("seconds", "against"):
        quick[key] |= {"estimate": 0.7, "low": 0.65, "high": 0.75}
    stored["lanes"].append(quick)
    (copy / "race.json").write_text(json.dumps(stored))
    claims = write_page(Study(copy, Plan(SIZES)), tmp_path / "results.md").claims["s6"]
    assert "of the others duo" in claims[1].here


def test_numbers_have_intervals(sections: dict[str, Section]) -> None:
    assert bare_numbers(sections) == []


def test_all_seeds_and_sweep_points_are_shown(sections: dict[str, Section]) -> None:
    for name, table in (("s3", 0), ("s4", 0), ("s5", 0)):
        labels = [row[0] for row in sections[name].tables[table].rows]
        for seed in (0, 1, 2):
            assert any(label.endswith(f"seed {seed}") for label in labels), (name, seed)
    swept = [row[0] for row in sections["s5"].tables[0].rows]
    for value in ("1", "0.75", "0.6", "0.5"):
        assert any(label == f"T_ins {value}, all seeds" for label in swept)
    for name, table, label in (
        ("s1", 1, "margin minus random"),
        ("s4", 1, "average minus first"),
        ("s5", 1, "T_ins 0.5 minus 1"),
        ("ties", 1, "layout 1: leftmost minus random ties, filtered"),
    ):
        labels = [row[0] for row in sections[name].tables[table].rows]
        expected = [f"{label}, {which}" for which in ("all seeds", "seed 0", "seed 1", "seed 2")]
        assert [each for each in labels if each.startswith(label)] == expected
    assert len(sections["dial"].tables[1].rows) == 4 * 3


def test_a_missing_run_leaves_the_others_under_their_own_seed(
    folder: Path, written: Written, tmp_path: Path
) -> None:
    copy = tmp_path / "tiny"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "runs" / "latentmdm-layout1-s1.segments-average-k2")
    partial = write_page(Study(copy, Plan(SIZES)), tmp_path / "results.md")
    before, after = (dict_of(each.sections["s4"].tables[0].rows) for each in (written, partial))
    assert after["average, seed 1"] == (*before["average, seed 1"][:1], "not run yet",
                                        *before["average, seed 1"][2:])  # fmt: skip
    assert after["average, seed 2"] == before["average, seed 2"]
    assert "average, all seeds, seed 1 missing" in after
    assert "1 of 207 runs" in partial.page.read_text()


def dict_of(rows: tuple[tuple[str, ...], ...]) -> dict[str, tuple[str, ...]]:
    return {label: tuple(cells) for label, *cells in rows}


def test_records_of_another_size_are_refused_and_left_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = all_files(folder)
    page = tmp_path / "results.md"
    words = ["ties", "--folder", str(folder), "--page", str(page)]
    assert main([*words, *SIZE_WORDS, "--problems", "20"]) == 1
    assert "another --folder" in capsys.readouterr().err
    assert main([*words, "--only", "page", *SIZE_WORDS, "--race", "12"]) == 1
    assert "--race 10" in capsys.readouterr().err
    assert all_files(folder) == before and not page.exists()


def test_a_study_that_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "results.md"
    words = ["--only", "page", "--folder", str(tmp_path / "none")]
    assert main([*words, "--page", str(page)]) == 1
    assert "no study in" in capsys.readouterr().err and not page.exists()
    assert main([*words[:1], "page", "--page", str(tmp_path)]) == 1
    assert "is a folder" in capsys.readouterr().err


def test_what_is_missing_is_said_and_not_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(SIZES)
    gone = {name for name, model in plan.models.items() if model.seed or model.dialled}
    folder = tmp_path / "tiny"
    monkeypatch.setattr("anyorder.files.sync", lambda path: None)
    make_study(folder, plan, without={*gone, "counted"})
    (folder / "race.json").unlink()
    written = write_page(Study(folder, plan), tmp_path / "docs" / "results.md")
    text = written.page.read_text()
    assert (
        f"| mdm-dial-layout0 | mdm | the dial, layout0 | 0 | {NOTHING} | not trained yet |" in text
    )
    assert "mdm, confidence, seed 0, seed 1 missing, seed 2 missing" in text
    assert "No race is stored yet" in text
    dial = {claim.says: claim.holds for claim in written.claims["dial"]}
    assert set(dial.values()) == {"not measured yet"}
    assert {claim.holds for claim in written.claims["s6"]} == {"not measured yet"}


@pytest.mark.parametrize("family", ["mdm", "flexlatent"])
def test_a_family_whose_dial_is_missing_leaves_the_others(
    family: str, folder: Path, written: Written, tmp_path: Path
) -> None:
    copy = tmp_path / "tiny"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "runs" / f"{family}-dial-layout0.greedy")
    partial = write_page(Study(copy, Plan(SIZES)), tmp_path / "results.md")
    before, after = (
        {claim.says: claim.holds for claim in page.claims["dial"]} for page in (written, partial)
    )
    unknown = {says for says, holds in after.items() if holds == "not measured yet"}
    assert f"{family} solves as much at layout 1 as at layout 0 (within 5 points)" in unknown
    about = {says for says in before if says.startswith("layout affects latentmdm less")}
    assert about <= unknown if family == "mdm" else not about & unknown
    assert {says: holds for says, holds in before.items() if says not in unknown} == {
        says: holds for says, holds in after.items() if says not in unknown
    }


def test_an_empty_study_is_a_page_too(tmp_path: Path) -> None:
    written = write_page(Study(tmp_path / "none", Plan(SIZES)), tmp_path / "results.md")
    assert not written.figures
    holds = {claim.holds for claims in written.claims.values() for claim in claims}
    assert holds == {"not measured yet"}


def test_a_damaged_file_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny"
    shutil.copytree(folder, copy)
    bad = copy / "runs" / "mdm-layout1.greedy" / "records.parquet"
    bad.write_bytes(bad.read_bytes()[:100])
    with pytest.raises(ValueError, match="damaged"):
        write_page(Study(copy, Plan(SIZES)), tmp_path / "results.md")


# The page in docs/ is what the stored study gives, to the letter.


ROOT = Path(__file__).parents[2]


def test_the_published_page_comes_from_the_stored_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = StudyJob()
    if not (ROOT / job.folder).is_dir():
        pytest.skip("the stored study is in the repository only, not in a source distribution")
    monkeypatch.chdir(ROOT)  # the page names the study's folder as it was given
    written = write_page(Study(job.folder, job.plan), tmp_path / "results.md")
    assert written.page.read_text() == job.page.read_text()
    assert bare_numbers(written.sections) == []
    for section in written.sections.values():
        told = [*(claim.here for claim in section.claims), *section.checks]
        assert [each for each in told if bare_decimals(each)] == []
    images = {path.name: path.read_bytes() for path in written.figures}
    folder = job.page.parent / "images" / "results"
    assert images == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_table_of_the_readme_is_the_head_of_the_page() -> None:
    """To the letter, and with bounds on every estimate."""
    readme, page = ((ROOT / name).read_text() for name in ("README.md", StudyJob().page))
    short = page.partition("## In short\n\n")[2].partition("\n## ")[0]
    assert short.count("\n| ") >= 9 and short in readme
    assert bare_decimals(short) == []
