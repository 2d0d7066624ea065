"""The notebooks run from top to bottom, without a network, and show what they promise."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 240

OFFLINE = """
import socket
def _refuse(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] != "127.0.0.1":
        raise OSError(f"a notebook asked for {address}")
    return _connect(self, address)
_connect = socket.socket.connect
socket.socket.connect = _refuse
"""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def run_notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook after all its cells ran, in an empty folder, and that folder."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = read(FOLDER / "your_model.ipynb")
    notebook.cells.insert(0, nbformat.v4.new_code_cell(OFFLINE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("IPYTHONDIR", str(folder / ".ipython"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / ".jupyter"))
        client = nbclient.NotebookClient(
            notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}
        )
        client.execute()
    return notebook, folder


def shown(cell: Any, kind: str) -> str:
    return "".join(
        output.data[kind] for output in cell.outputs if kind in getattr(output, "data", {})
    )


def cell_with(notebook: Any, text: str) -> Any:
    [found] = [cell for cell in notebook.cells if cell.cell_type == "code" and text in cell.source]
    return found


@pytest.mark.timeout(SECONDS + 60)
def test_your_model_runs_and_shows_trace_and_run(run_notebook: Any) -> None:
    notebook, folder = run_notebook
    trace = shown(cell_with(notebook, "[trace] = "), "text/html")
    assert 'sandbox="allow-scripts"' in trace and "<table>" in trace
    recorded = shown(cell_with(notebook, "Recorder(vocab)"), "text/html")
    assert 'sandbox="allow-scripts"' in recorded and "task stories/0" in recorded
    run = shown(cell_with(notebook, "def record"), "text/html")
    assert run.startswith("<p><strong>MDM writes ") and "8 samples of 8 problems" in run
    printed = cell_with(notebook, "measure.arness").outputs
    numbers = "".join(output.text for output in printed)
    assert "left_to_right: tau 1.00" in numbers
    assert (folder / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None


def test_the_guard_against_the_network_works() -> None:
    space: dict[str, Any] = {}
    before = socket.socket.connect
    try:
        exec(OFFLINE, space)
        with pytest.raises(OSError, match="a notebook asked for"):
            socket.create_connection(("192.0.2.1", 80), timeout=1)
    finally:
        socket.socket.connect = before  # type: ignore[method-assign]
