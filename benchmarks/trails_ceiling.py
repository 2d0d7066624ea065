"""How alike right programs of the same trail are: the ceiling of similarity, without any model.

    python benchmarks/trails_ceiling.py --problems 60 --draws 33

Every problem is written down `draws` times by the corpus itself. `nearest` is the mean similarity
of a program to the most similar of the others, `pairwise` to all of them: what a model that knows
the corpus by heart would score against itself. Where it is 1, no order of writing can show in the
similarity of programs. All programs are right, so `valid` and `correct` pairs are the same.
Intervals at 95 %, over problems (measure/intervals.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from anyorder.data.corpora.trails import TrailsConfig, core, render
from anyorder.measure.intervals import Interval
from anyorder.measure.programs import ProgramOptions, Programs
from anyorder.measure.similarity_scores import DiversityRow, SimilarityOptions, diversity
from tables import show

DOMINATES = """
A problem of the freest row takes some 50 ms: half of it for the tree edit distances (528 pairs, two
metrics), a third for parsing 33 programs twice. Equal texts and trees are handled once, so that the
other rows are quicker; the default takes 9 ms, most of it for drawing. `measures` compares the
kernel with its floor. Imports and compiled kernels take longer than the whole table.
"""

DIALS: dict[str, Mapping[str, object]] = {
    "default": {},
    "lines 0.4": {"lines": 0.4},
    "shape 1": {"shape": 1.0},
    "shape 1, lines 0.4": {"shape": 1.0, "lines": 0.4},
    "layout 1": {"layout": 1.0},
    "layout 1, shape 1, lines 0.4": {"layout": 1.0, "shape": 1.0, "lines": 0.4},
}
METRICS = ("ASTD", "TSED")


def ceiling(
    config: TrailsConfig, problems: int, draws: int, *, threads: int | None = None
) -> DiversityRow:
    """Diversity of the corpus's own programs, so many a problem."""
    texts = {
        f"trails/{index}": [render(unwritten, config, draw).program for draw in range(draws)]
        for index in range(problems)
        for unwritten in [core(config, index)]
    }
    options = SimilarityOptions(
        programs=ProgramOptions(metrics=METRICS), filters=("valid",), threads=threads
    )
    (row,) = diversity(Programs.of_texts("trails", texts), options).rows
    return row


def _shown(score: Interval) -> str:
    return f"{score.estimate:.3f} [{score.low:.3f}, {score.high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--draws", type=int, default=33)
    parser.add_argument("--hops", type=int, nargs=2, default=(4, 4))
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    rows = []
    for name, dials in DIALS.items():
        config = TrailsConfig(hops=tuple(given.hops), **dials)  # type: ignore[arg-type]
        row = ceiling(config, given.problems, given.draws, threads=given.threads)
        scores = [part[metric] for metric in METRICS for part in (row.nearest, row.pairwise)]
        rows.append([name, *map(_shown, [row.distinct["trees"], *scores])])
    heads = [f"{metric} {part}" for metric in METRICS for part in ("nearest", "pairwise")]
    show(
        f"{given.problems} problems, {given.draws} programs each",
        ["dials", "distinct trees", *heads],
        rows,
    )


if __name__ == "__main__":
    main()
