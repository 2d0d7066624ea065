"""The playground's models and threads: what is kept, what waits, what ends."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from play_support import STORY, asked, soon

from anyorder.apps.play import work as play_models
from anyorder.apps.play import work as play_work
from anyorder.apps.play.form import BadInput, GenerationRequest
from anyorder.apps.play.work import (
    UNREAD,
    GenerationQueue,
    InPlace,
    KnownModel,
    LoadedModels,
    as_event,
    command_for,
)
from anyorder.decode.canvas import Decoded
from anyorder.model import Model, load
from anyorder.report.traces import LiveSteps
from anyorder.vocab import Vocab


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that are loaded, in order; two at once are an error."""
    names: list[str] = []
    load, alone = play_models.load, threading.Lock()

    def counted(name: str, **options: Any) -> Model:
        assert alone.acquire(blocking=False), "two models are loaded at once"
        try:
            names.append(name)
            time.sleep(0.01)
            return load(name, **options)
        finally:
            alone.release()

    monkeypatch.setattr(play_models, "load", counted)
    return names


def test_a_few_models_are_kept(small_models: Path, loads: list[str]) -> None:
    a, b, c = (str(small_models / name) for name in ("ar", "mdm", "flexmdm"))
    models = LoadedModels(kept=2)
    for name in (a, b, a, c, a, b):  # b is the one that was not used for longest when c comes
        models.get(name)
    assert loads == [a, b, c, b]


def test_one_is_loaded_at_a_time_and_once(small_models: Path, loads: list[str]) -> None:
    names = [str(small_models / name) for name in ("ar", "mdm")] * 4
    models = LoadedModels()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(models.get, names))
    assert sorted(loads) == sorted(set(names))
    assert {id(model) for model in found[::2]} == {id(found[0])}


def test_new_weights_are_loaded_again(small_models: Path, tmp_path: Path, loads: list[str]) -> None:
    folder = tmp_path / "m"
    shutil.copytree(small_models / "mdm", folder)
    models = LoadedModels()
    first = models.get(str(folder))
    assert models.get(str(folder)) is first
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert models.get(str(folder)) is not first and len(loads) == 2


def test_what_can_be_chosen(
    small_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(play_models, "SHIPPED", tmp_path / "shipped")
    assert LoadedModels().known() == []
    shutil.copytree(small_models / "ar", tmp_path / "shipped" / "tiny" / "ar")
    shutil.copytree(small_models / "mdm", tmp_path / "runs" / "demo" / "mdm")
    shutil.copytree(small_models / "flexmdm", tmp_path / "runs" / "flex")
    (tmp_path / "runs" / "flex" / "config.json").write_text("{broken")
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "config.json").write_text('{"family": "mdm"}')
    ar, mdm = KnownModel("tiny/ar", "ar", True), KnownModel("runs/demo/mdm", "mdm", False)
    assert LoadedModels().known() == [ar, mdm]
    assert not ar.any_order and mdm.any_order and not KnownModel("x", "unheard", False).any_order
    assert LoadedModels("runs/demo/mdm").known() == [mdm, ar]


def work_of(model: str, **changes: Any) -> play_work.PlayGeneration:
    return GenerationQueue(LoadedModels()).prepare(GenerationRequest.read(asked(model, **changes)))


def test_a_decoder_waits_for_a_page_that_does_not_read(small_models: Path) -> None:
    work = work_of(str(small_models / "mdm"), settings={"max_new_tokens": 90})
    loop = asyncio.new_event_loop()
    looping = threading.Thread(target=loop.run_forever)
    decoding = threading.Thread(target=work.run, args=(loop,))
    looping.start()
    decoding.start()
    try:
        assert soon(lambda: work._messages.qsize() == UNREAD)
        time.sleep(0.3)
        assert work._messages.qsize() == UNREAD and not work.finished.is_set()
        work.stop.set()
        assert work.finished.wait(60), "a decoder that waits does not look whether it is wanted"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        looping.join(60)
        decoding.join(60)
        loop.close()


def test_work_without_a_server_ends(small_models: Path) -> None:
    """The loop may be closed before the decoder is done: no error, no endless work."""
    work = work_of(str(small_models / "mdm"), settings={"max_new_tokens": 5})
    loop = asyncio.new_event_loop()
    loop.close()
    work.run(loop)
    assert work.finished.is_set()


def told_by(work: play_work.PlayGeneration) -> list[play_work.Message]:
    """All that a generation says, without a page that reads it."""
    said: list[play_work.Message] = []
    work._send = lambda loop, message: said.append(message)  # type: ignore[method-assign]
    loop = asyncio.new_event_loop()
    loop.close()
    work.run(loop)
    return said


@pytest.mark.parametrize("family", ["duo", "sflm"])
def test_what_may_still_change_is_shown_behind_an_end_as_in_the_replay(
    small_models: Path, family: str
) -> None:
    name, queue = str(small_models / family), GenerationQueue(LoadedModels())
    model, ends = queue.model(name), 0
    vocab = model.vocab
    torch.nn.init.normal_(  # an untrained head says the same everywhere
        model.net.get_parameter("unembed.weight" if family == "duo" else "backbone.unembed.weight"),
        generator=torch.Generator().manual_seed(0),
    )
    for seed in range(30):
        request = GenerationRequest.read(asked(name, seed=str(seed), settings={"steps": 3}))
        _, *steps, _ = told_by(queue.prepare(request))
        (trace,) = model.sample(STORY, seed=seed, steps=3)
        shown: list[str | None] = []
        for _, message in steps:
            shown += [None] * len(message.get("insert", []))
            for at, piece, _ in message.get("show", []):
                shown[at] = piece
            ids = trace.replay(message["step"]).ids(vocab.mask_id).tolist()
            if message["step"]:
                assert shown == [vocab.decode([token]) for token in ids]
                ends += vocab.eos_id in ids[:-1]
        if ends > 3:
            return
    raise AssertionError("no end was ever shown")


def test_closing_the_queue_ends_everything(small_models: Path) -> None:
    queue = GenerationQueue(LoadedModels())
    loop = asyncio.new_event_loop()
    looping = threading.Thread(target=loop.run_forever)
    looping.start()
    try:
        for _ in range(4):  # two run, two wait
            slow = {"pause": 2.0, "settings": {"max_new_tokens": 80}}
            request = asked(str(small_models / "mdm"), **slow)
            queue.start(queue.prepare(GenerationRequest.read(request)), loop)
        started = time.monotonic()
        queue.close()
        assert time.monotonic() - started < 60, "all steps of the four would take minutes"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        looping.join(60)
        loop.close()


def test_an_unknown_model_is_the_user_s_to_mend() -> None:
    with pytest.raises(BadInput, match="no model") as caught:
        GenerationQueue(LoadedModels()).model("runs/nowhere")
    assert caught.value.field == "model"


def test_the_command_is_one_that_can_be_typed() -> None:
    request = GenerationRequest.read(
        asked("runs/m", prompt="-it's", settings={"top_p": 0.5, "force_unmask": True})
    )
    assert command_for(request) == (
        """anyorder sample runs/m '--prompt=-it'"'"'s' --seed 0 --top-p 0.5 --force-unmask"""
    )
    assert f"--prompt '{STORY}'" in command_for(GenerationRequest.read(asked("m")))


def test_events_are_one_line_each() -> None:
    assert as_event(("step", {"text": "a\nb"})) == b'event: step\ndata: {"text": "a\\nb"}\n\n'


# Segments stay in their place while they are watched, emptied ones too.


VOCAB = Vocab.words(["a", "b", "c"])
MASK, EOS = VOCAB.mask_id, VOCAB.eos_id


def seen(step: int, ids: list[int], segment: list[int] | None, insert: int = 0) -> Decoded:
    reveal = [0 if token == MASK else step for token in ids]
    nans = [math.nan] * len(ids)
    return Decoded(ids, [insert] * len(ids), reveal, nans, step, step, 0, segment)


def test_an_empty_segment_stays_where_it_was() -> None:
    """The decoder lists it behind the others, as a trace does."""
    in_place = InPlace((EOS,))
    first = in_place(seen(1, [MASK, MASK, 0, 1], [0, 1, 2, 2]))
    assert (first.token_ids, first.segment) == ([MASK, MASK, 0, 1], [0, 1, 2, 2])
    second = in_place(seen(2, [MASK, 0, 1, EOS], [0, 2, 2, 1]))
    assert (second.token_ids, second.segment) == ([MASK, EOS, 0, 1], [0, 1, 2, 2])
    assert second.reveal_step == [0, 2, 2, 2] and second.step == 2


def test_a_segment_that_is_erased_keeps_its_width() -> None:
    in_place, live = InPlace((EOS,)), LiveSteps(VOCAB)
    live.messages(in_place(seen(1, [MASK, 0, 1, 2], [0, 1, 1, 1])))
    erased = in_place(seen(2, [EOS, EOS], [0, 1]))
    assert erased.token_ids == [EOS] * 4 and erased.segment == [0, 1, 1, 1]
    (message,) = live.messages(erased)
    assert [[at, piece] for at, piece, _ in message["show"]] == [[at, ""] for at in range(4)]


def test_any_end_marks_an_empty_segment() -> None:
    in_place = InPlace((EOS, 2))
    in_place(seen(1, [MASK, 0, 1, 0], [0, 1, 1, 1]))
    assert in_place(seen(2, [2, EOS], [0, 1])).token_ids == [2, EOS, EOS, EOS]
    in_place = InPlace((2, EOS))
    in_place(seen(1, [0, 1], [0, 0]))
    assert in_place(seen(2, [EOS], [0])).token_ids == [EOS, EOS]


def test_growing_canvases_and_tokens_are_left_alone() -> None:
    in_place = InPlace((EOS,))
    tokens = seen(1, [EOS, MASK, 0], None)
    assert in_place(tokens) is tokens
    nothing = seen(1, [], [])
    assert in_place(nothing) is nothing
    grown = seen(2, [MASK, 0, MASK], [3, 1, 2], insert=1)
    assert in_place(grown).segment == [3, 1, 2], (
        "numbers of inserted segments say nothing of places"
    )


def test_the_player_can_follow_a_decoder_of_segments(small_models: object) -> None:
    model = load(f"{small_models}/latentmdm")
    with torch.no_grad():  # so that some segments come out empty
        model.net.embed.weight[model.vocab.eos_id] *= 6
    emptied = 0
    for seed in range(8):
        live, in_place = LiveSteps(model.vocab), InPlace(model.vocab.end_ids)

        def watch(
            rows: Sequence[Decoded], live: LiveSteps = live, in_place: InPlace = in_place
        ) -> None:
            live.messages(in_place(rows[0]))

        (trace,) = model.sample(STORY, seed=seed, policy="random", temperature=1.0, watch=watch)
        emptied += int((trace.token_ids == model.vocab.eos_id).sum())
    assert emptied > 0
