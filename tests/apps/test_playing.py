"""The playground over HTTP: who is let in, what is refused, and when the work ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra [report] is not installed")
pytest.importorskip("uvicorn", reason="the extra [report] is not installed")

from play_support import STORY, Playground, asked, playground, soon

from anyorder.apps import play as playing
from anyorder.cli import main
from anyorder.model import load
from anyorder.trace import Run, Trace


@pytest.fixture(scope="module")
def place(small_models: Path) -> Iterator[Playground]:
    with playground(str(small_models / "mdm")) as running:
        yield running


@pytest.fixture
def mdm(small_models: Path) -> str:
    return str(small_models / "mdm")


# ---- who is let in


@pytest.mark.parametrize("path", ["", "play.js", "player.js", "play.css", "api/models"])
def test_every_request_must_carry_the_token(place: Playground, path: str) -> None:
    assert place.get(path)[0] == 200
    for wrong in ("/", "/api/models", f"/{'x' * 22}/{path}", f"{place.path.upper()}{path}"):
        status, _, body = place.raw("GET", wrong)
        assert status == 403 and b"anyorder play" in body
    for way in ({"Authorization": place.path.strip("/")}, {"Cookie": f"token={place.path}"}):
        assert place.raw("GET", f"/{path}", headers=way)[0] == 403
    assert place.raw("GET", f"/{path}?token={place.path.strip('/')}")[0] == 403


def test_posts_must_carry_the_token_too(place: Playground, mdm: str) -> None:
    for path in ("generate", "stop", "form"):
        assert place.raw("POST", f"/api/{path}", asked(mdm))[0] == 403
        assert place.raw("POST", f"/wrong/api/{path}", asked(mdm))[0] == 403
    assert place.queue.busy() == 0


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil:80"])
def test_another_host_name_is_refused(place: Playground, host: str) -> None:
    """A foreign name that was pointed to this address must not reach it."""
    status, _, body = place.raw("GET", place.path, headers={"Host": host})
    assert status == 403 and b"host name" in body


def test_our_host_names_and_no_foreign_origin(place: Playground) -> None:
    port = place.place.partition(":")[2]
    assert place.raw("GET", place.path, headers={"Host": f"localhost:{port}"})[0] == 200
    own = {"Origin": f"http://127.0.0.1:{port}"}
    foreign = {"Origin": "https://evil.example"}
    form = f"{place.path}api/stop"
    assert place.raw("POST", form, {"tab": "x"}, own)[0] == 200
    assert place.raw("POST", form, {"tab": "x"}, foreign)[0] == 403
    assert place.raw("POST", form, {"tab": "x"}, {"Origin": "null"})[0] == 403


def test_it_is_bound_to_the_loopback_address_only() -> None:
    with playing._listening(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_answers_forbid_what_a_page_of_ours_never_needs(place: Playground) -> None:
    for path in (place.path, f"{place.path}api/models", "/"):
        _, headers, _ = place.raw("GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe-eval" not in policy
        assert "script-src 'self';" in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_the_page_asks_nobody_else(place: Playground) -> None:
    page = place.get("")[1].decode()
    names = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {"player.js", "player.css", "play.js", "play.css"} <= set(names)
    for name in names:
        assert name.startswith("data:") or place.get(name)[0] == 200
    for name in ("play.js", "form.js", "stream.js", "play.css", "player.js", "player.css"):
        text = place.get(name)[1].decode().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text and "@import" not in text


@pytest.mark.parametrize("name", ["nothing.js", "..%2fplaying.py", "%2e%2e/playing.py", "page.py"])
def test_only_the_page_s_own_files_are_served(place: Playground, name: str) -> None:
    assert place.get(name)[0] in (404, 403)


# ---- what can be chosen


def test_the_named_model_comes_first(place: Playground, mdm: str) -> None:
    said = json.loads(place.get("api/models")[1])
    assert said["chosen"] == mdm
    assert said["models"][0] == {"name": mdm, "family": "mdm", "shipped": False}


def test_the_form_of_a_model(place: Playground, small_models: Path) -> None:
    said = place.post("form", {"model": str(small_models / "flexmdm")})
    assert said["family"] == "flexmdm"
    assert {"policy", "insertion_temperature"} <= {field["name"] for field in said["form"]}
    assert said["prompts"][0]["name"] == "stories/0" and "<fill>" in said["prompts"][0]["gap"]
    ar = place.post("form", {"model": str(small_models / "ar")})
    assert all(prompt["gap"] is None for prompt in ar["prompts"])


# ---- generating


def test_a_generation_is_told_step_by_step_and_is_the_library_s(
    place: Playground, mdm: str
) -> None:
    request = asked(mdm, seed="3", settings={"policy": "random", "max_new_tokens": 7})
    with place.generating(request) as events:
        begun, *steps, (kind, done) = list(events)
    assert begun == ("begun", {"prompt": STORY, "segments": False, "planned": 7})
    assert [name for name, _ in steps] == ["step"] * 8
    assert [says["step"] for _, says in steps] == list(range(8))
    assert kind == "done" and done["steps"] == 7
    (expected,) = load(mdm).sample(STORY, seed=3, policy="random", max_new_tokens=7)
    trace = Trace.from_jsonl(done["line"])
    assert trace.text == expected.text == done["text"]
    assert trace.reveal_step.tolist() == expected.reveal_step.tolist()
    assert trace.task_id == "stories/7" and done["file"] == "mdm-random-seed3.jsonl"
    sample = done["payload"]["samples"][0]
    assert sample["reveal"] == expected.reveal_step.tolist()
    assert place.idle()


def test_the_command_makes_the_same_sample(
    place: Playground, mdm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"temperature": 0.8, "top_p": 0.9, "max_new_tokens": 6, "eos": "forbid"}
    with place.generating(asked(mdm, settings=settings)) as events:
        kind, done = list(events)[-1]
    assert kind == "done"
    program, *words = shlex.split(done["command"])
    assert program == "anyorder" and main([*words, "--out", "run"]) == 0
    (trace,) = Run.open("run").traces()
    assert trace.text == done["text"]


def test_every_family_streams(place: Playground, small_models: Path) -> None:
    for folder in sorted(small_models.iterdir()):
        names = place.queue.model(str(folder)).family.option_names()
        settings = {"steps": 12} if "steps" in names else {}
        with place.generating(asked(str(folder), settings=settings)) as events:
            told = list(events)
        assert told[-1][0] == "done", (folder.name, told[-1])
        assert any(kind == "step" for kind, _ in told)


def test_a_gap_is_filled_and_the_rest_kept(place: Playground, small_models: Path) -> None:
    for family in ("mdm", "flexmdm"):
        said = place.post("form", {"model": str(small_models / family)})
        text = said["prompts"][2]["gap"]
        request = asked(str(small_models / family), prompt=text, settings={"steps": 3})
        with place.generating(request) as events:
            kind, done = list(events)[-1]
        assert kind == "done"
        after = re.split(r"<fill(?::\d+)?>", text)[1]
        assert after and done["text"].endswith(after)


REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "wrong type": ({"settings": {"temperature": "warm"}}, "temperature", "give a number"),
    "not a family's": ({"settings": {"clock": "steps"}}, "clock", "mdm does not use clock"),
    "out of range": ({"settings": {"top_p": 2}}, "top_p", "top_p"),
    "alone in vain": ({"settings": {"top_p": 0.5}}, "top_p", "temperature"),
    "unknown policy": ({"settings": {"policy": "best"}}, "policy", "confidence"),
    "together": (
        {"settings": {"policy": "random", "temperature": 1, "posterior": "filtered"}},
        "posterior",
        "no effect on the policy 'random'",
    ),
    "with the canvas": ({"settings": {"steps": 999}}, "steps", "999 steps for 24 slots"),
    "size": ({"settings": {"max_new_tokens": 0}}, "max_new_tokens", "at least 1"),
    "large size": ({"settings": {"max_length": 10**6}}, "max_length", "at most 8192"),
    "no room": ({"prompt": STORY * 8}, "prompt", "do not fit"),
    "a bad mark": ({"prompt": "a <fill 3> b"}, "prompt", "no fill mark"),
    "too long": ({"prompt": "a" * 30_000}, "prompt", "at most 20000"),
    "seed": ({"seed": "-1"}, "seed", "seed must be a whole number"),
    "seed of words": ({"seed": "seven"}, "seed", "'seven'"),
    "large seed": ({"seed": str(1 << 63)}, "seed", "2^63"),
    "pause": ({"pause": 60}, "pause", "from 0 to 2"),
    "no model": ({"model": " "}, "model", "choose a model"),
    "unknown model": ({"model": "runs/none"}, "model", "no model 'runs/none'"),
    "no settings": ({"settings": []}, None, "reload the page"),
    "nested": ({"settings": {"steps": {"a": 1}}}, "steps", "a text, a number or true"),
    "tab": ({"tab": "x"}, None, "8 to 64"),
    "unknown key": ({"extra": 1}, None, "extra"),
}


@pytest.mark.parametrize(("changes", "field", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_told_at_its_field(
    place: Playground, mdm: str, changes: dict[str, Any], field: str | None, message: str
) -> None:
    said = place.post("generate", {**asked(mdm), **changes})
    assert said["refused"]["field"] == field
    assert message in said["refused"]["message"]
    assert place.queue.busy() == 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"tab": NaN}', b"null", b"\xff", b"[" * 100_000, b"x" * (1 << 19)]
)
def test_what_is_no_request_is_refused(place: Playground, body: bytes) -> None:
    for path in ("generate", "form"):
        said = place.post(path, body)
        assert said["refused"]["message"]
    if len(body) < 1 << 18 and body in (b"[]", b"null"):
        assert place.post("stop", body) == {"stopped": False}


def test_a_fault_while_decoding_is_told(
    place: Playground, mdm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("at step 1 the network's logits are not finite: check its weights")

    model = place.queue.model(mdm)
    monkeypatch.setattr(model, "decode", broken)
    with place.generating(asked(mdm)) as events:
        kind, says = list(events)[-1]
    assert kind == "failed" and "not finite" in says["message"]
    assert place.idle()


# ---- when the work ends

SLOW = {"pause": 1.0, "settings": {"max_new_tokens": 80}}  # it would take 80 seconds


def test_stop_ends_the_work_at_once(place: Playground, mdm: str) -> None:
    request = asked(mdm, **SLOW)
    with place.generating(request) as events:
        for _ in range(4):
            next(events)
        assert place.post("stop", {"tab": "another-tab"}) == {"stopped": False}
        assert place.post("stop", {"tab": request["tab"]}) == {"stopped": True}
        rest = list(events)
    assert rest[-1][0] == "stopped" and rest[-1][1]["step"] < 40
    assert not any(kind == "done" for kind, _ in rest)
    assert place.idle()
    assert place.post("stop", {"tab": request["tab"]}) == {"stopped": False}


def test_closing_the_tab_ends_the_work(place: Playground, mdm: str) -> None:
    with place.generating(asked(mdm, **SLOW)) as events:
        assert [next(events)[0], next(events)[0]] == ["begun", "step"]
        assert place.queue.busy() == 1
        (work,) = [work for work in place.queue._busy.values() if not work.finished.is_set()]
    assert work.finished.wait(60), "the work goes on although nobody listens"
    assert work.stop.is_set()


def test_a_tab_that_closes_before_it_reads_anything_ends_the_work_too(
    place: Playground, mdm: str
) -> None:
    body = json.dumps(asked(mdm, **SLOW)).encode()
    host, port = place.place.split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port))) as connection:
            head = f"POST {place.path}api/generate HTTP/1.1\r\nHost: {place.place}\r\n"
            connection.sendall(
                head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
            )
    assert place.idle()


def test_one_generation_at_a_time_for_a_tab(place: Playground, mdm: str) -> None:
    request = asked(mdm, **SLOW)
    with place.generating(request) as events:
        next(events)
        said = place.post("generate", request)
        assert "this tab is generating" in said["refused"]["message"]
    assert place.idle()
    with place.generating({**request, "pause": 0}) as events:
        assert list(events)[-1][0] == "done"


def test_two_tabs_do_not_disturb_each_other(place: Playground, mdm: str) -> None:
    slow, other = asked(mdm, **SLOW), asked(mdm, seed="5", pause=0)
    with place.generating(slow) as first:
        next(first)
        with place.generating(other) as second:
            assert list(second)[-1][0] == "done"
        place.post("stop", {"tab": other["tab"]})
        assert next(first)[0] == "step", "stopping one tab stopped the other"
        place.post("stop", {"tab": slow["tab"]})
        assert list(first)[-1][0] == "stopped"


def test_more_tabs_than_workers_wait_for_their_turn(place: Playground, mdm: str) -> None:
    requests = [asked(mdm, pause=0.01, settings={"max_new_tokens": 10}) for _ in range(4)]
    with (
        place.generating(requests[0]) as a,
        place.generating(requests[1]) as b,
        place.generating(requests[2]) as c,
        place.generating(requests[3]) as d,
    ):
        assert [list(events)[-1][0] for events in (a, b, c, d)] == ["done"] * 4


# ---- the command


def start(*words: str, folder: Path) -> subprocess.Popen[str]:
    code = "import sys; from anyorder.cli import main; sys.exit(main())"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BROWSER": "false"}
    return subprocess.Popen(
        [sys.executable, "-c", code, "play", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )


def test_the_command_prints_its_address_and_ends_cleanly(
    small_models: Path, tmp_path: Path
) -> None:
    running = start(str(small_models / "mdm"), "--no-browser", "--json", folder=tmp_path)
    assert running.stdout is not None
    address = json.loads(running.stdout.readline())["address"]
    match = re.fullmatch(r"http://(127\.0\.0\.1:\d+)(/[\w-]{20,}/)", address)
    assert match
    request = asked(str(small_models / "mdm"), **SLOW)
    connection = http.client.HTTPConnection(match[1], timeout=240)

    def connected() -> bool:
        try:
            connection.request("POST", f"{match[2]}api/generate", json.dumps(request))
        except OSError:
            connection.close()
            return False
        return True

    assert soon(connected)
    assert connection.getresponse().readline() == b"event: begun\n"
    running.send_signal(signal.SIGINT)  # in the middle of a generation
    output, errors = running.communicate(timeout=240)
    assert running.returncode == 0, errors
    assert output == "" and errors.strip() == "ended"
    connection.close()


def test_a_wrong_model_or_port_is_told_at_once(
    small_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", str(tmp_path / "none"), "--no-browser"]) == 1
    assert "no model" in capsys.readouterr().err
    assert main(["play", "--port", "70000"]) == 2
    assert "--port must be from 0 to 65535" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["play", "--no-browser", "--port", port]) == 1
    assert "choose another --port" in capsys.readouterr().err


def test_a_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = playing.importlib.util.find_spec
    monkeypatch.setattr(
        playing.importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name)
    )
    assert main(["play", "--no-browser"]) == 1
    error = capsys.readouterr().err
    assert "anyorder play needs uvicorn" in error and "pip install 'anyorder[report]'" in error


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["play", "--help"])
    told = capsys.readouterr().out
    assert "anyorder play mdm --port 8000" in told and "--no-browser" in told and "--port" in told
