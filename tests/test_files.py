"""Files appear whole or not at all, with ordinary permissions, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anyorder.files import replacing, replacing_path, sha256_of, sweep


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    with replacing(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")

    def write_half() -> None:
        with replacing(target) as file:
            file.write(b"ne")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        write_half()
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_what_a_kill_leaves_is_swept(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; from anyorder.files import replacing\n"
        f"with replacing(pathlib.Path({str(tmp_path / 'a.txt')!r})) as f:\n"
        "    f.write(b'x'); f.flush(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert not (tmp_path / "a.txt").exists() and len(list(tmp_path.iterdir())) == 1
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with replacing_path(tmp_path / "strict") as temporary:
        temporary.unlink()
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
    assert (tmp_path / "strict").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_digest(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert sha256_of(tmp_path / "empty").startswith("e3b0c44298fc1c14")
