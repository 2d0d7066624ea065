"""Files appear whole or not at all, with ordinary permissions, and leave nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anyorder import files
from anyorder.files import (
    alone_if_free,
    alone_in,
    creating,
    replacing,
    replacing_path,
    sha256_of,
    sweep,
    together_in,
)

# Many processes want one folder; who gets it counts, with a pause between reading and writing.
COUNTER = """
import pathlib, sys, time
from anyorder.files import alone_in

folder, total = pathlib.Path(sys.argv[1]) / "deep" / "run", pathlib.Path(sys.argv[2])
done = 0
while done < 40:
    try:
        with alone_in(folder):
            count = int(total.read_text())
            time.sleep(0.0005)
            total.write_text(str(count + 1))
        done += 1
    except ValueError as error:
        assert "another process is working" in str(error), error
"""


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


def in_use(folder: Path) -> bool:
    try:
        with alone_in(folder):
            return False
    except ValueError as error:
        message = f"another process is working in {folder}: wait for it, or choose another --out"
        return str(error) == message


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with alone_in(folder):
        assert in_use(folder)
        assert in_use(folder), "the loser must not remove the winner's lock file"
        (folder / "a.txt").touch()
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert not in_use(folder)
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


def fail_alone_in(folder: Path) -> None:
    with alone_in(folder):
        raise RuntimeError("early")


def test_what_was_made_only_for_the_lock_goes(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="early"):
        fail_alone_in(tmp_path / "deep" / "run")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with alone_in(tmp_path / "mine"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; from anyorder.files import alone_in\n"
        f"with alone_in(pathlib.Path({str(tmp_path)!r})): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert not in_use(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_removed_meanwhile_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    real, calls = fcntl.flock, []

    def late(handle: int, flags: int) -> None:
        """As if its holder had removed the lock file just before our first try got it."""
        calls.append(handle)
        if len(calls) == 1:
            (tmp_path / "run" / ".lock").unlink()
        real(handle, flags)

    monkeypatch.setattr(fcntl, "flock", late)
    with alone_in(tmp_path / "run"):
        assert len(calls) == 2
        assert in_use(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_made_and_removed_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep" / "run"
    real, refused = Path.mkdir, []

    def mkdir(path: Path, *arguments: object, **options: object) -> None:
        """As if another process made the folder before our first try, and removed it after."""
        if path == folder and not refused:
            refused.append(path)
            raise FileExistsError(errno.EEXIST, "File exists")
        real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with alone_in(folder):
        assert refused == [folder]
        assert in_use(folder)
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_another_is_not_removed(tmp_path: Path) -> None:
    with alone_in(tmp_path):
        (tmp_path / ".lock").unlink()  # by hand
        (tmp_path / ".lock").touch()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_racing_processes_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "total").write_text("0")
    words = [sys.executable, "-c", COUNTER, str(tmp_path), str(tmp_path / "total")]
    racers = [subprocess.Popen(words) for _ in range(3)]
    assert [racer.wait(timeout=240) for racer in racers] == [0, 0, 0]
    assert (tmp_path / "total").read_text() == "120"
    assert not list(tmp_path.rglob(".lock"))


@pytest.mark.long
def test_fifty_processes_race_for_a_folder_that_comes_and_goes(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    program = Path(__file__).parent / "support" / "lock_stress.py"
    words = [sys.executable, str(program), str(tmp_path), "50", "200"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "else")
    for name in ("file", "file/below", "dangling"):
        with pytest.raises(
            ValueError, match=rf"{name} cannot be written to \(.*\): choose another"
        ):
            fail_alone_in(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]


def enter_together(folder: Path) -> None:
    with together_in(folder):
        pass


def free(folder: Path) -> bool:
    with alone_if_free(folder) as alone:
        return alone


def test_several_are_together_and_nobody_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WAIT_SECONDS", 0.0)
    folder = tmp_path / "deep" / "run"
    with together_in(folder):
        with together_in(folder):
            assert in_use(folder) and not free(folder)
        assert in_use(folder), "the first is still there"
        assert (folder / ".lock").exists(), "who leaves first leaves the lock to the others"
        (folder / "a.txt").touch()
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert free(folder)
    with alone_in(folder), pytest.raises(ValueError, match="another process is working"):
        enter_together(folder)
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


def test_who_comes_together_waits_for_one_who_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = alone_in(tmp_path)
    alone.__enter__()
    waited = []

    def leave(seconds: float) -> None:
        waited.append(seconds)
        alone.__exit__(None, None, None)

    monkeypatch.setattr(files.time, "sleep", leave)
    enter_together(tmp_path)
    assert len(waited) == 1 and list(tmp_path.iterdir()) == []


def test_without_locks_nobody_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def unsupported(handle: int, flags: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with together_in(tmp_path / "run"), together_in(tmp_path / "run"):
        assert free(tmp_path / "run")
        with alone_if_free(tmp_path / "run", without_locks=False) as sure:
            assert not sure
    with pytest.raises(ValueError, match="disk without locks"):
        fail_alone_in(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def create(path: Path, content: bytes) -> None:
    with creating(path) as file:
        file.write(content)


def test_of_several_who_create_a_file_the_first_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        create(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"

    def unsupported(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    with pytest.raises(ValueError, match="without hard links"):
        create(tmp_path / "b", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
