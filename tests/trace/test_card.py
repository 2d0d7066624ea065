"""The run card: what it records, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyorder.trace import RunCard

CONFIG = {"steps": 64, "policy": "confidence", "decoder": {"temperature": 0.2, "spans": (1, 2)}}


def make(**changes: Any) -> RunCard:
    fields = {"command": "anyorder sample tiny/mdm", "config": CONFIG, "seeds": (0,), **changes}
    return RunCard(**fields)


def test_a_card_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    card = make(model_digest="ab", device="cpu", dtype="float32")
    card.write(path)
    assert RunCard.read(path) == card
    sealed = card.completed([0, 1], {"traces.parquet": "cd"})
    sealed.write(path)
    assert RunCard.read(path) == sealed
    assert [item.name for item in tmp_path.iterdir()] == ["run.json"]


def test_a_card_says_where_it_was_made() -> None:
    card = make()
    assert card.python == sys.version.split()[0]
    assert {"numpy", "pyarrow"} <= set(card.versions)
    assert card.created.endswith("+00:00")
    assert (card.status, card.schema, card.parts, card.files) == ("running", 1, (), {})


def test_versions_are_asked_for_without_importing() -> None:
    code = (
        "import sys; from anyorder.trace.run import installed_versions; "
        "versions = installed_versions(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_differences_are_named() -> None:
    other = {"steps": 128, "policy": "confidence", "decoder": {"temperature": 0.2, "top_p": 0.9}}
    found = make().differences(make(config=other, seeds=(1,), model_digest="f" * 64))
    assert found == [
        "decoder.spans ([1, 2] stored, nothing now)".replace("decoder", "config.decoder"),
        "config.decoder.top_p (nothing stored, 0.9 now)",
        "config.steps (64 stored, 128 now)",
        "model_digest (null stored, ffffffff now)",
        "seeds ([0] stored, [1] now)",
    ]
    assert make().differences(make(command="again", created="later", versions={})) == []


def test_long_values_are_shortened() -> None:
    (line,) = make(config={"prompt": "a" * 500}).differences(make(config={"prompt": "b"}))
    assert line == f'config.prompt ("{"a" * 56}... stored, "b" now)'


def test_one_and_true_are_different_settings() -> None:
    assert make(config={"a": 1}).differences(make(config={"a": True}))
    assert make(config={"a": {}}).differences(make(config={}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"out": Path("x")}}, "field 'config': .*Path.* give strings"),
        ({"config": {"t": float("nan")}}, "field 'config'"),
        ({"config": None}, "field 'config'"),
        ({"command": 3}, "field 'command'"),
        ({"seeds": (0.5,)}, "field 'seeds'"),
        ({"status": "done"}, "field 'status'"),
        ({"files": {"a": 1}}, "field 'files'"),
    ],
)
def test_wrong_fields_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_damaged_and_foreign_cards_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with pytest.raises(ValueError, match=r"run\.json is missing"):
        RunCard.read(path)
    make().write(path)
    whole = path.read_bytes()
    record = json.loads(whole)
    contents: list[tuple[bytes, str]] = [
        (b"", "truncated or not JSON"),
        (whole[: len(whole) // 2], "truncated or not JSON"),
        (b"\xff\xfe\x00", "truncated or not JSON"),
        (b"[" * 100_000, "truncated or not JSON"),
        (b"[]", "not a run card"),
        (b"{}", "not a run card"),
        (json.dumps({**record, "schema": 2}).encode(), "card schema 2, this anyorder reads 1"),
        (json.dumps({**record, "extra": 1}).encode(), "has unknown extra"),
        (json.dumps({"schema": 1}).encode(), "lacks command, config"),
        (json.dumps({**record, "seeds": "0"}).encode(), "field 'seeds'"),
    ]
    for content, message in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"run\.json.*{message}"):
            RunCard.read(path)


def test_agreement_is_written_only_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    make().write(path)
    assert "agreement" not in json.loads(path.read_text())
    assert RunCard.read(path) == make()
    compared = make(agreement={"samples": 4, "tokens": 0.99})
    compared.write(path)
    assert RunCard.read(path) == compared
    assert compared.identity() == make().identity() and not compared.differences(make())
    with pytest.raises(ValueError, match="field 'agreement'"):
        make(agreement=0.9)


def test_facts_of_problems_are_written_only_where_there_are_some(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    make().write(path)
    assert "facts" not in json.loads(path.read_text())
    assert RunCard.read(path).facts is None
    known = make(facts={"trails/0": {"anchor": "goal", "place": 4}, "trails/1": {}})
    known.write(path)
    assert RunCard.read(path) == known
    # They follow from the task, whose data has a digest.
    assert known.identity() == make().identity() and not known.differences(make())
    for wrong in ([], {"trails/0": "goal"}, {"trails/0": {"share": 0.5}}, {0: {}}):
        with pytest.raises(ValueError, match="field 'facts'"):
            make(facts=wrong)


def test_a_card_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    for name in ("run", "loop"):
        message = rf"{name}\.json cannot be read \(.*\): restore the file, or choose"
        with pytest.raises(ValueError, match=message) as caught:
            RunCard.read(tmp_path / f"{name}.json")
        assert "\n" not in str(caught.value)
