"""The stored files of a run: its card, and the small tables behind the study's page.

    run.json           the run card: command, resolved settings, digests, versions
    records.parquet    a row per sample: verdict, lengths, cost, ties, order and AR-ness with their
                       controls; a column that was not measured is not there
    canvases.parquet   a row per sample and tenth of its decoding: placement
    points.parquet     some points of the mass-localisation plot
    pairs.parquet      a row per problem and filter: similarity to the reference's programs

`records.parquet` names its run and measures. It is written last, and the files of an earlier run
are removed first, so the card, canvases and points beside it belong to the same run.
`pairs.parquet` comes later, when the reference is done, and names the two runs that it compares. To
read a study only these files are needed: no traces, no models, no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anyorder.files import replacing
from anyorder.trace import RunCard
from anyorder.trace.run import CARD_FILE
from studies.cells import Values
from studies.plan import SEEN, StudyRun

RUNS = "runs"
SAMPLES_FILE, CANVASES_FILE = "records.parquet", "canvases.parquet"
POINTS_FILE, PAIRS_FILE = "points.parquet", "pairs.parquet"
ABOUT_KEY = b"anyorder.study"

Row = Mapping[str, Any]


def write_table(path: Path, rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """Write rows to a file; missing numbers and NaN become null."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: pa.array([_plain(row.get(name)) for row in rows]) for name in names}
    table = pa.table(columns).replace_schema_metadata(
        {ABOUT_KEY: json.dumps(dict(about), sort_keys=True).encode()}
    )
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd")


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def read_about(path: Path) -> dict[str, Any]:
    """The description inside a table; empty if there is no table, or if it is not ours."""
    if not path.is_file():
        return {}
    try:
        text = (pq.read_schema(path).metadata or {}).get(ABOUT_KEY)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and repeat the study") from None
    return {} if text is None else dict(json.loads(text))


def remove_tables(folder: Path) -> None:
    """Remove the tables of an earlier run; first the one that marks the others as complete."""
    for name in (SAMPLES_FILE, CANVASES_FILE, POINTS_FILE):
        (folder / name).unlink(missing_ok=True)


def check_size(folder: Path, run: StudyRun) -> bool:
    """Whether the records of a run are there; records of another size are refused."""
    path = folder / SAMPLES_FILE
    if not path.is_file():
        return False
    found, wanted = _size(path), (run.problems * run.samples, run.problems)
    if found != wanted:
        sizes = [
            f"{samples} samples of {problems} problems" for samples, problems in (found, wanted)
        ]
        raise _another_size(folder, *sizes)
    if run.free is not None:
        draws = _draws(folder / CARD_FILE)
        if draws != run.free.draws:
            raise _another_size(folder, f"{draws} draws of a problem", str(run.free.draws))
    return True


def _another_size(folder: Path, found: str, wanted: str) -> ValueError:
    return ValueError(
        f"{folder} holds {found} and the plan has {wanted}: give the sizes that the study was made "
        "with, or another --folder and --page"
    )


def _size(path: Path) -> tuple[int, int]:
    """The numbers of samples and problems. There are many runs, so only one column is read."""
    try:
        with pq.ParquetFile(path) as file:
            tasks = file.read(columns=["task_id"])["task_id"]
        return len(tasks), len(tasks.unique())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and repeat the study") from None


def _draws(path: Path) -> int:
    """The draws of a run without a network, from its card: the rows do not show them."""
    try:
        return int(RunCard.read(path).config["setting"]["draws"])
    except (KeyError, TypeError):
        raise ValueError(
            f"{path} does not give the draws of its run: delete its folder and repeat the study"
        ) from None


def _fresh(task: str) -> bool:
    """Whether a problem may be used to test a claim."""
    return int(task.rpartition("/")[2]) >= SEEN


class Stored:
    """The records of one run, without the problems that we had seen before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def card(self) -> RunCard:
        return RunCard.read(self.folder / CARD_FILE)

    @cached_property
    def _samples(self) -> dict[str, list[Any]]:
        return self._read(SAMPLES_FILE)

    def _read(self, name: str) -> dict[str, list[Any]]:
        path = self.folder / name
        try:
            table = pq.read_table(path)
            if "task_id" in table.column_names:
                table = table.filter(
                    pa.array(map(_fresh, table["task_id"].to_pylist()), pa.bool_())
                )
            return dict(table.to_pydict())
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{path} is missing or damaged ({error}): delete its folder and repeat the study"
            ) from None

    def __len__(self) -> int:
        return len(self._samples["task_id"])

    def values(self, column: str, *, among: str | None = None) -> Values:
        """A column by task; `among`: only samples for which this other column is true."""
        if column not in self._samples:
            return {}
        chosen = self._samples.get(among, []) if among else [True] * len(self)
        found: dict[str, list[float]] = {}
        rows = zip(self._samples["task_id"], self._samples[column], chosen, strict=True)
        for task, value, wanted in rows:
            if value is not None and wanted:
                found.setdefault(task, []).append(float(value))
        return found

    def excess(self, left: str, right: str) -> Values:
        """One column minus another, sample by sample."""
        if left not in self._samples or right not in self._samples:
            return {}
        found: dict[str, list[float]] = {}
        names = ("task_id", left, right)
        for task, one, other in zip(*(self._samples[name] for name in names), strict=True):
            if one is not None and other is not None:
                found.setdefault(task, []).append(one - other)
        return found

    def share_of(self, verdict: str) -> Values:
        """By task: 1 for each sample with this verdict, 0 for the others."""
        found: dict[str, list[float]] = {}
        for task, given in zip(self._samples["task_id"], self._samples["verdict"], strict=True):
            if given is not None:
                found.setdefault(task, []).append(float(given == verdict))
        return found

    @cached_property
    def _pairs(self) -> dict[str, list[Any]]:
        return self._read(PAIRS_FILE) if (self.folder / PAIRS_FILE).is_file() else {}

    @property
    def compared(self) -> bool:
        """Whether its programs were compared with the reference's."""
        return bool(self._pairs)

    def pairs(self, metric: str, kind: str, *, ceiling: bool = False) -> Values:
        """Similarity to the reference by task, for valid or for correct programs."""
        if metric not in self._pairs:
            return {}
        names = ("task_id", "filter", "ceiling", metric)
        rows = zip(*(self._pairs[name] for name in names), strict=True)
        return {
            task: [value]
            for task, filtered, own, value in rows
            if filtered == kind and own == ceiling and value is not None
        }

    @cached_property
    def _canvases(self) -> dict[str, list[Any]]:
        return self._read(CANVASES_FILE) if (self.folder / CANVASES_FILE).is_file() else {}

    def placement(self, quantity: str, tenth: int | None = None) -> Values:
        """A quantity of placement by task: in one tenth of decoding, or the mean over tenths."""
        samples: dict[tuple[str, int], list[float]] = {}
        for task, sample, part, value in self._placed(quantity):
            if tenth in (None, part):
                samples.setdefault((task, sample), []).append(value)
        found: dict[str, list[float]] = {}
        for (task, _), values in samples.items():
            found.setdefault(task, []).append(math.fsum(values) / len(values))
        return found

    def tenths(self, quantity: str) -> dict[str, dict[int, float]]:
        """A quantity of placement by task and tenth of decoding, over the task's samples."""
        found: dict[str, dict[int, list[float]]] = {}
        for task, _, part, value in self._placed(quantity):
            found.setdefault(task, {}).setdefault(part, []).append(value)
        return {
            task: {part: math.fsum(values) / len(values) for part, values in own.items()}
            for task, own in found.items()
        }

    def _placed(self, quantity: str) -> Iterator[tuple[str, int, int, float]]:
        """Task, sample, tenth and value, for samples that have a value."""
        if quantity in self._canvases:
            names = ("task_id", "sample", "tenth", quantity)
            for row in zip(*(self._canvases[name] for name in names), strict=True):
                if row[-1] is not None:
                    yield row

    def points(self, kind: str) -> tuple[list[float], list[float]]:
        """Masses and localisations of some `top` or `committed` tokens."""
        if not (self.folder / POINTS_FILE).is_file():
            return [], []
        table = self._read(POINTS_FILE)
        rows = zip(table["kind"], table["mass"], table["loc"], strict=True)
        chosen = [(mass, loc) for each, mass, loc in rows if each == kind]
        return [mass for mass, _ in chosen], [loc for _, loc in chosen]
