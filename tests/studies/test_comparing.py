"""Comparing programs with the reference's: traces that are missing or unfinished are made first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from study_support import job_of

from anyorder.trace import Run
from studies.comparing import CompareJob, comparisons
from studies.plan import StudyRun
from studies.records import PAIRS_FILE, SAMPLES_FILE, Stored
from studies.runs import RunJob

OPTIONS = {"temperature": 1.0, "k": 1}


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompareJob:
    """Two runs and their comparison, all done."""
    monkeypatch.setattr("studies.records.SEEN", 0)  # few problems are enough here
    base = StudyRun("m", "l2r", {**OPTIONS, "policy": "left_to_right"}, 2, 2, (), reference="m.l2r")
    other = StudyRun("m", "random", {**OPTIONS, "policy": "random"}, 2, 1, (), reference="m.l2r")
    jobs = [job_of(each, tmp_path, "latentmdm") for each in (base, other)]
    for job in jobs:
        job.do()
    [found] = comparisons(jobs)
    assert not found.done
    found.do()
    assert found.done
    return found


def other_of(compared: CompareJob) -> RunJob:
    return next(job for job in compared.runs if job is not compared.reference)


def test_programs_are_compared_with_those_of_the_reference(compared: CompareJob) -> None:
    ceiling, own = (Stored(job.target) for job in (compared.reference, other_of(compared)))
    assert set(own.pairs("ASTD", "valid")) <= {"stories/0", "stories/1"}
    assert not own.pairs("ASTD", "valid", ceiling=True)
    assert not ceiling.pairs("ASTD", "valid")
    for value in ceiling.pairs("TSED", "valid", ceiling=True).values():
        assert 0 <= value[0] <= 1


@pytest.mark.parametrize("state", ["absent", "unfinished", "ungraded"])
def test_traces_are_made_again_and_unfinished_ones_finished(
    state: str, compared: CompareJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = other_of(compared)
    pairs, records = ((job.target / name).read_bytes() for name in (PAIRS_FILE, SAMPLES_FILE))
    assert Stored(job.target).pairs("ASTD", "correct"), "something that could be left out"
    (job.target / PAIRS_FILE).unlink()
    shutil.rmtree(job.traces)  # they are not part of the study
    if state == "unfinished":
        interrupt_sampling(job, monkeypatch)
    elif state == "ungraded":
        job.sampled()
    compared.do()
    assert (job.target / PAIRS_FILE).read_bytes() == pairs
    assert (job.target / SAMPLES_FILE).read_bytes() == records, "which are there already"


def interrupt_sampling(job: RunJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_: Run) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            job.sampled()
    assert job.traced.is_dir() and not Run.open(job.traced).complete
