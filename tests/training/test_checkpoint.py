"""Checkpoints are whole or absent, refused when damaged, and only resumed by the same run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from anyorder.files import alone_in
from anyorder.training import checkpoint
from anyorder.training.loop import FitOptions


@pytest.fixture
def run(uninterrupted: Path, tmp_path: Path) -> Path:
    """A finished run with the checkpoints of steps 30 and 40, to be damaged at will."""
    return Path(shutil.copytree(uninterrupted, tmp_path / "run"))


def test_files_and_the_newest_are_kept(run: Path) -> None:
    root = run / "checkpoints"
    assert sorted(path.name for path in root.iterdir()) == ["step-00000030", "step-00000040"]
    names = {path.name for path in (root / "step-00000040").iterdir()}
    weights = {"model.safetensors", "ema.safetensors", "optimiser.safetensors"}
    assert names == weights | {"state.json"}
    state = json.loads((root / "step-00000040" / "state.json").read_text())
    assert state["step"] == 40
    assert set(state["files"]) == weights
    assert state["versions"]["torch"] == torch.__version__
    assert state["config"]["batch"] == 8


def test_every_tensor_comes_back(toy: ModuleType, run: Path) -> None:
    folder = run / "checkpoints" / "step-00000040"
    _, net = toy.train(run)  # restores, and has no step left to train
    stored = load_file(folder / "model.safetensors")
    assert torch.equal(net.mix.weight, stored["mix.weight"])
    moments = load_file(folder / "optimiser.safetensors")
    assert moments["step.mix.bias"].item() == 40
    assert moments["exp_avg.embed.weight"].abs().sum() > 0
    averaged = load_file(folder / "ema.safetensors")
    assert not torch.equal(averaged["mix.weight"], stored["mix.weight"])


@pytest.mark.parametrize("name", ["model", "ema", "optimiser"])
@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_a_damaged_checkpoint_is_refused_by_name(
    toy: ModuleType, run: Path, name: str, how: str
) -> None:
    path = run / "checkpoints" / "step-00000040" / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[-3] ^= 1
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(content[:-100])
    else:
        path.unlink()
    with pytest.raises(ValueError, match=rf"step-00000040.*{name}.*go on from step-00000030"):
        toy.train(run)
    assert path.parent.is_dir(), "it is the user's to delete"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1, "files": {}, "step": 1}'])
def test_a_bad_state_is_refused_by_name(toy: ModuleType, run: Path, text: str) -> None:
    (run / "checkpoints" / "step-00000040" / "state.json").write_text(text)
    with pytest.raises(ValueError, match=r"step-00000040 is damaged: state\.json"):
        toy.train(run)


def test_following_the_remedy_goes_on(
    toy: ModuleType, run: Path, uninterrupted: Path, fingerprint: Any
) -> None:
    shutil.rmtree(run / "checkpoints" / "step-00000040")
    toy.train(run)
    assert fingerprint(run) == fingerprint(uninterrupted)


def test_without_an_earlier_one_the_remedy_is_to_start(toy: ModuleType, run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-00000030")
    (run / "checkpoints" / "step-00000040" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="start from the beginning"):
        toy.train(run)


FIELDS = ("format", "step", "versions", "files", "config", "run", "digest", "meter", "sha256")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [None, "text", [], {}, 3.5])
def test_a_changed_state_is_damage_and_nothing_else(run: Path, field: str, value: Any) -> None:
    folder = run / "checkpoints" / "step-00000040"
    path = folder / "state.json"
    state = json.loads(path.read_text())
    assert set(state) == set(FIELDS)
    path.write_text(json.dumps(state | {field: value}))
    assert "does not have its recorded sha256" in damage(folder)
    del state[field]
    path.write_text(json.dumps(state))
    assert "does not have its recorded sha256" in damage(folder)


@pytest.mark.parametrize("field", ["step", "versions", "files", "config", "run", "digest", "meter"])
@pytest.mark.parametrize("value", [None, "text", [], {}, True])
def test_a_state_of_other_types_is_damage(
    run: Path, rewrite_state: Any, field: str, value: Any
) -> None:
    """Also where the sha256 agrees, as when a program that is not ours wrote it."""
    if value == {} and field in ("versions", "config"):
        value = 0  # an empty one would do
    folder = run / "checkpoints" / "step-00000040"
    rewrite_state(folder, **{field: value})
    # A run without averaging has no averaged weights.
    named = "files" if (field, value) == ("run", {}) else field
    assert f"state.json has no usable '{named}'" in damage(folder)


def test_no_file_of_a_checkpoint_may_go_unnamed(run: Path, rewrite_state: Any) -> None:
    folder = run / "checkpoints" / "step-00000040"
    files = json.loads((folder / "state.json").read_text())["files"]
    for name in files:
        rewrite_state(folder, files={key: files[key] for key in files if key != name})
        assert "no usable 'files'" in damage(folder)
    rewrite_state(folder, files=files | {"../../metrics.jsonl": "0"})
    assert "no usable 'files'" in damage(folder)
    rewrite_state(folder, files=files | {"model.safetensors": None})
    assert "model.safetensors does not have" in damage(folder)


def test_a_flipped_bit_in_the_state_is_damage(run: Path) -> None:
    """Unless it is in the layout, where it changes nothing."""
    folder = run / "checkpoints" / "step-00000040"
    path = folder / "state.json"
    content = path.read_bytes()
    state = json.loads(content)
    for place in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            same = json.loads(flipped) == state
        except ValueError:
            same = False
        if not same:
            damage(folder)


def damage(folder: Path) -> str:
    """What reading the checkpoint says, which is one line with a remedy."""
    with pytest.raises(ValueError, match="is damaged") as caught:
        checkpoint.read_state(folder)
    said = str(caught.value)
    assert said.startswith(f"checkpoint {folder} is damaged: ")
    assert said.endswith("Delete the folder step-00000040 to go on from step-00000030")
    assert len(said.splitlines()) == 1
    return said


def test_another_format_is_refused(toy: ModuleType, run: Path, rewrite_state: Any) -> None:
    rewrite_state(run / "checkpoints" / "step-00000040", format=99)
    with pytest.raises(ValueError, match="format 99"):
        toy.train(run)


def test_another_configuration_is_refused_field_by_field(toy: ModuleType, run: Path) -> None:
    with pytest.raises(ValueError, match=r"lr \(checkpoint 0\.01, now 0\.02\), steps.*40, now 50"):
        toy.train(run, lr=0.02, steps=50)
    with pytest.raises(ValueError, match=r": validation levels \(.*another output folder"):
        toy.train(run, FitOptions(levels=(0.3,), progress=False))
    about = FitOptions(
        levels=(0.3, 0.9, None), about={"family": "ar", "shape": (1, 2)}, progress=False
    )
    with pytest.raises(ValueError, match=r": family \(checkpoint None, now 'ar'\)"):
        toy.train(run, about)
    toy.train(run, keep=5, save_every=3, validate_every=4, log_every=2, minutes=3.0, threads=1)


def test_another_network_is_refused(toy: ModuleType, run: Path) -> None:
    class Wider(toy.ToyNet):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.mix = torch.nn.Linear(2 * toy.WIDTH, toy.WIDTH, bias=False)

    options = FitOptions(levels=(0.3, 0.9, None), progress=False)
    with pytest.raises(ValueError, match=r"mix\.bias"):
        toy.fit(Wider(), toy.objective, toy.batch_of, toy.VALIDATION, toy.CONFIG, run, options)


class Killed(BaseException):
    """Stands for SIGKILL: nothing handles it."""


@pytest.mark.parametrize(
    ("module", "function"),
    [(os, "fsync"), (os, "rename"), (checkpoint, "save_weights"), (checkpoint, "sha256_of")],
)
@pytest.mark.parametrize("call", [0, 1, 3, 5])
def test_a_kill_anywhere_in_saving_loses_nothing(
    toy: ModuleType,
    tmp_path: Path,
    uninterrupted: Path,
    fingerprint: Any,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    function: str,
    call: int,
) -> None:
    real, calls = getattr(module, function), iter(range(1000))

    def killed(*arguments: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, function, killed)
        with pytest.raises(Killed):
            toy.train(tmp_path)
    toy.train(tmp_path)
    assert fingerprint(tmp_path) == fingerprint(uninterrupted)
    assert not list((tmp_path / "checkpoints").glob(".*")), "left-overs are removed"


def test_a_half_written_folder_is_not_a_checkpoint(toy: ModuleType, run: Path) -> None:
    partial = run / "checkpoints" / f"{checkpoint.PARTIAL}step-00000050"
    partial.mkdir()
    (partial / "model.safetensors").write_bytes(b"half")
    result, _ = toy.train(run)
    assert result.step == 40
    assert not partial.exists()


def test_one_process_at_a_time(toy: ModuleType, tmp_path: Path) -> None:
    with alone_in(tmp_path), pytest.raises(ValueError, match="another process is working"):
        toy.train(tmp_path)
    assert toy.train(tmp_path)[0].reason == "done"
