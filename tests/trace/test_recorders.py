"""Recorders against our own decoder: the same network in an outside loop gives the same trace.

Also what a recorder refuses, how rows are named, and the run folder that it writes. The loops here
are stand-ins with the calls of the libraries; test_recorders_libraries.py runs the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from outside_loops import OutsideModel, dream_generate, llada_generate, pipeline_generate, reveals
from torch import Tensor

import anyorder
from anyorder.trace import Run, Trace
from anyorder.trace.recorders import Recorder
from anyorder.vocab import Vocab

VOCAB = Vocab.bytes()
MASK, EOS = VOCAB.mask_id, VOCAB.eos_id
PROMPTS = ("Mia has some apples.\n", "Tom buys some pears. How many now?\n")
SEEN = ("task_id", "sample", "prompt", "text", "prompt_ids", "token_ids", "char_end", "steps")
SEEN += ("insert_step", "reveal_step", "events", "ghosts")


def same(one: Trace, other: Trace) -> None:
    """Equal in all that a recorder can see."""
    for name in SEEN:
        left, right = getattr(one, name), getattr(other, name)
        assert np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right, name


@pytest.fixture(scope="module")
def mdm() -> anyorder.Model:
    return anyorder.load("mdm")


@pytest.fixture(scope="module")
def decoded(mdm: anyorder.Model) -> dict[str, tuple[Trace, Tensor]]:
    """By prompt: our decoder's trace, and the canvas that it began with."""
    options: dict[str, Any] = {"policy": "confidence", "temperature": 0.0, "ties": "leftmost"}
    found = {}
    for prompt in PROMPTS:
        requests, _ = mdm.prepare([prompt], max_new_tokens=12, **options)
        (trace,) = mdm.sample([prompt], max_new_tokens=12, seed=0, **options)
        found[prompt] = trace, torch.tensor([requests[0].canvas.ids])
    return found


def by_canvas(recorder: Recorder, model: OutsideModel, canvas: Tensor) -> None:
    recorder.canvas(canvas)
    for ids in reveals(model, canvas):
        recorder.canvas(ids)


def by_slots(recorder: Recorder, model: OutsideModel, canvas: Tensor) -> None:
    names = [f"slot {n}" for n in range(canvas.shape[1])]
    recorder.canvas(canvas[0].tolist(), slots=names)
    for ids in reveals(model, canvas):
        recorder.canvas(ids[0].tolist(), slots=names)


def by_tokens_hook(recorder: Recorder, model: OutsideModel, canvas: Tensor) -> None:
    dream_generate(model, canvas, recorder.on_tokens)


def by_forward_hook(recorder: Recorder, model: OutsideModel, canvas: Tensor) -> None:
    with recorder.watching(model):
        recorder.end(llada_generate(model, canvas))
    assert not model._forward_pre_hooks


def by_guided_forward_hook(recorder: Recorder, model: OutsideModel, canvas: Tensor) -> None:
    """Each step calls the network twice, on the canvas and on one without its prompt."""
    with recorder.watching(model, rows=1, every=2):
        recorder.end(llada_generate(model, canvas, guided=True))


def by_step_end(recorder: Recorder, model: OutsideModel, canvas: Tensor) -> None:
    recorder.begin(prompt_length=int((canvas[0] != model.mask_id).sum()))
    pipeline_generate(model, canvas, recorder.on_step_end)


KINDS = (
    by_canvas,
    by_slots,
    by_tokens_hook,
    by_forward_hook,
    by_guided_forward_hook,
    by_step_end,
)


@pytest.mark.parametrize("record", KINDS)
def test_an_outside_loop_gives_our_decoders_trace(
    mdm: anyorder.Model,
    decoded: dict[str, tuple[Trace, Tensor]],
    record: Callable[[Recorder, OutsideModel, Tensor], None],
) -> None:
    recorder = Recorder(mdm.vocab)
    for number, (trace, canvas) in enumerate(decoded.values()):
        record(recorder, OutsideModel(mdm), canvas.clone())
        found = recorder.traces()
        assert len(found) == number + 1
        same(found[-1], Trace(**{**vars_of(trace), "task_id": f"prompt/{number}"}))


def vars_of(trace: Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in trace.__dataclass_fields__}


# Batches, names and ends.


def rows_of(*texts: bytes) -> list[np.ndarray[Any, Any]]:
    """Canvases of a batch that writes each text from right to left, behind "Q:"."""
    length = len(texts[0])
    found = []
    for done in range(length + 1):
        body = [[*[MASK] * (length - done), *text[length - done :]] for text in texts]
        found.append(np.array([[*b"Q:", *row] for row in body]))
    return found


def test_a_batch_gives_a_task_for_each_name() -> None:
    recorder = Recorder(VOCAB, policy="backwards")
    recorder.begin(["a", "b", "a"], prompts="Question:", entry_points=["f", "g", "f"])
    for canvas in rows_of(b"abc", b"de\n", b"xyz"):
        recorder.canvas(torch.tensor(canvas))
    recorder.begin("b")  # and without end() in between
    for canvas in rows_of(b"uv"):
        recorder.canvas(canvas[0])
    found = recorder.traces()
    assert [(t.task_id, t.sample, t.prompt, t.text, t.entry_point) for t in found] == [
        ("a", 0, "Question:", "abc", "f"),
        ("b", 0, "Question:", "de\n", "g"),
        ("a", 1, "Question:", "xyz", "f"),
        ("b", 1, "Q:", "uv", None),
    ]
    assert found[0].timing()[1].tolist() == [3, 2, 1]
    assert {trace.policy for trace in found} == {"backwards"}


def test_equal_prompts_are_samples_of_one_task() -> None:
    recorder = Recorder(VOCAB)
    for text in (b"a", b"b"):
        for canvas in rows_of(text):
            recorder.canvas(canvas)
        recorder.end()
    assert [(t.task_id, t.sample) for t in recorder.traces()] == [("prompt/0", 0), ("prompt/0", 1)]


def test_named_ends_cut_the_text() -> None:
    words = Vocab.words(["a", "b"])
    for ends, text in (((), "aba"), ((words.pad_id,), "ab")):
        recorder = Recorder(words, end_ids=ends)
        recorder.canvas([words.mask_id] * 4)
        recorder.canvas([*words.encode("ab"), words.pad_id, *words.encode("a")])
        assert recorder.traces()[0].text == text
        assert recorder.vocab is not None and recorder.vocab.digest() == words.digest()


def test_blocks_that_are_added_on_the_right_were_masks_before() -> None:
    recorder = Recorder(VOCAB)
    recorder.begin("t", prompt_length=1, new_tokens=3)
    for text in (b"Q__", b"Qb_", b"Qba", b"Qba_d", b"Qbacd"):
        recorder.canvas([MASK if id == ord("_") else id for id in text])
    (trace,) = recorder.traces()
    assert (trace.text, trace.steps) == ("bac", 4)
    insert, reveal = trace.timing()
    assert insert.tolist() == [0, 0, 0] and reveal.tolist() == [1, 2, 4]


def test_blocks_by_the_growth_or_by_their_length() -> None:
    """The first canvas ends in the middle of the answer: a block that the prompt's tail shares."""
    recorder = Recorder(VOCAB)
    for text in ("QMM", "QaM", "Qab", "QabMM", "QabMd", "Qabcd", "QabcdM", "Qabcde"):
        recorder.canvas([MASK if letter == "M" else ord(letter) for letter in text])
    recorder.begin(block_length=2, new_tokens=4)
    recorder.canvas([ord("Q"), *[MASK] * 5])
    recorder.end([*b"Qabcde"])
    recorder.begin(block_length=2)
    recorder.canvas([ord("Q"), MASK, MASK], slots=[0, 1, 2])
    recorder.canvas([*b"Qaxb"], slots=[0, 1, "new", 2])
    recorder.begin()
    for end in range(1, 5):  # a left-to-right model: its canvas grows, and has no blocks
        recorder.canvas([*b"Qabc"[:end]])
    grown, fixed, inserted, bare = (trace.block for trace in recorder.traces())
    assert grown is not None and grown.tolist() == [0, 0, 1, 1, 2]
    assert fixed is not None and fixed.tolist() == [0, 0, 1, 1]
    assert inserted is not None and inserted.tolist() == [0, 0, 1]
    assert bare is None


def test_masks_at_an_early_stop_were_never_revealed(tmp_path: Path) -> None:
    recorder = Recorder(VOCAB)
    for canvas in rows_of(b"abc")[:3]:
        recorder.canvas(canvas)
    (trace,) = recorder.save(tmp_path / "run").traces()
    assert trace.text == "bc" and trace.timing()[1].tolist() == [3, 2, 1] and trace.steps == 2
    assert str(trace.replay(2)) == "▁bc"
    assert anyorder.measure.arness([trace]).samples[0].silent.share == 0


def test_deleted_and_inserted_slots_by_their_identities() -> None:
    recorder = Recorder(VOCAB)
    recorder.begin("t", prompt_length=1)
    recorder.canvas([81, MASK, 66], slots=["p", "a", "b"])
    recorder.canvas([81, 67, 65], slots=["p", "c", "a"])
    (trace,) = recorder.traces()
    assert trace.text == "CA" and trace.timing()[0].tolist() == [1, 0]
    assert trace.ghosts == ((1, 0, 0, 1, 66, "B"),)
    assert trace.replay(0).ids(MASK, prompt=True).tolist() == [81, MASK, 66]


def test_the_run_folder_says_what_it_holds(tmp_path: Path) -> None:
    def recorded(text: bytes) -> Recorder:
        recorder = Recorder(VOCAB)
        for canvas in rows_of(text):
            recorder.canvas(canvas)
        return recorder

    run = recorded(b"ab").save(tmp_path / "run")
    assert Run.open(tmp_path / "run").complete and run.card.vocab_digest == VOCAB.digest()
    assert run.card.config == {"recorder": "canvases", "policy": None}
    assert recorded(b"ab").save(tmp_path / "run").card.files == run.card.files
    with pytest.raises(ValueError, match="holds another run, which differs in data_digest"):
        recorded(b"ac").save(tmp_path / "run")
    with pytest.raises(ValueError, match="nothing was recorded"):
        Recorder(VOCAB).save(tmp_path / "none")


# Drafts.


def test_drafts_settle_and_the_returned_block_is_the_last(tmp_path: Path) -> None:
    recorder = Recorder(VOCAB)
    recorder.begin(["a", "b"])
    streamer = recorder.streamer()
    streamer.put(torch.tensor([[81], [82]]))
    for draft in (b"xb", b"ab"), (b"cd", b"cb"):
        for row in draft:
            streamer.put_draft(torch.tensor([list(row), list(b"zz")]))
        streamer.put(torch.tensor([list(draft[-1]), [EOS, EOS]]))
    streamer.end()
    first, second = recorder.traces()
    assert (first.text, first.policy, first.steps) == ("abcb", "draft", 4)
    assert first.timing()[1].tolist() == [2, 1, 3, 4]
    assert first.events == ((1, 0, 120, "x"), (3, 3, 100, "d"))
    assert str(first.replay(2)) == "ab▁▁" and str(first.replay(3)) == "abcd"
    assert second.text == "" and second.token_ids is not None
    assert second.token_ids.tolist() == [EOS] * 4 and second.timing()[1].tolist() == [2, 2, 4, 4]
    card = recorder.save(tmp_path / "run").card
    assert card.config == {"recorder": "drafts", "reveal_step": "settled, not accepted"}


def test_a_streamer_after_a_generation_that_was_broken_off() -> None:
    recorder = Recorder(VOCAB)
    streamer = recorder.streamer()
    streamer.put([[81, 82]])
    streamer.put_draft([[65, 66, 67]])
    with pytest.raises(ValueError, match="2 ids came after a draft of another length"):
        streamer.put([[81, 82]])
    recorder.begin("again")
    streamer.put([[81, 82]])
    streamer.put_draft([[65, 66, 67]])
    streamer.put([[65, 66, 68]])
    streamer.end()
    assert [trace.text for trace in recorder.traces()] == ["ABC", "ABD"]


def test_streams_that_are_no_drafts_are_refused() -> None:
    streamer = Recorder(VOCAB).streamer()
    with pytest.raises(ValueError, match="a draft came before the prompt"):
        streamer.put_draft(torch.tensor([[1]]))
    streamer.put(torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match="this streamer is for text diffusion"):
        streamer.put(torch.tensor([3]))
    with pytest.raises(ValueError, match="the policy of drafts is 'draft'"):
        Recorder(VOCAB, policy="entropy").streamer()


# What is refused.


def canvases(*rows: list[int]) -> Callable[[Recorder], None]:
    def record(recorder: Recorder) -> None:
        for row in rows:
            recorder.canvas(row)
        recorder.traces()

    return record


def slots_once(recorder: Recorder) -> None:
    recorder.canvas([1], slots=[0])
    recorder.canvas([1])


def named(**names: Any) -> Callable[[Recorder], None]:
    def record(recorder: Recorder) -> None:
        recorder.begin(**names)
        canvases([1, MASK], [1, 2])(recorder)

    return record


def watched(*, cached: bool) -> Callable[[Recorder], None]:
    def record(recorder: Recorder) -> None:
        network = torch.nn.Identity()
        with recorder.watching(network):
            network(torch.tensor([[1, MASK]]))
            if cached:
                network(torch.tensor([[MASK]]))
                recorder.end(torch.tensor([[1, 2]]))
        recorder.traces()

    return record


REFUSED: dict[str, Callable[[Recorder], Any]] = {
    "the first canvas has a row without the mask 256": canvases([1, 2], [1, 2]),
    "2 rows, and 1 before: keep the batch together": lambda recorder: [
        recorder.canvas([1, MASK]),
        recorder.canvas([[1, 2], [1, 2]]),
    ],
    "and changes earlier ones: ids alone do not say": canvases([1, MASK], [1, 2, MASK]),
    "those that a cache holds too": watched(cached=True),
    "call end\\(ids\\) with what the loop returned": watched(cached=False),
    "give the identities for every canvas": slots_once,
    "2 slots for ids of shape": lambda recorder: recorder.canvas([1], slots=[0, 1]),
    "a canvas of token ids is needed.*float64": lambda recorder: recorder.canvas([0.5]),
    "task_ids: 2 for 1 rows": named(task_ids=["a", "b"]),
    "prompt_length: a number, or one for each of the 1 rows": named(prompt_length=[1, 2]),
    "prompt_length = 2 is too large": named(prompt_length=2),
    "does not pass block_x": lambda recorder: recorder.on_step_end(None, 0, 0, {}),
    "call begin\\(prompt_length=": lambda recorder: recorder.on_step_end(
        None, 0, 0, {"block_x": torch.tensor([[1, 2]])}
    ),
    "the network was called without input_ids": lambda recorder: called_with_nothing(recorder),
}


def called_with_nothing(recorder: Recorder) -> None:
    network = torch.nn.Flatten()
    with recorder.watching(network):
        network()


@pytest.mark.parametrize(("message", "record"), REFUSED.items())
def test_what_cannot_be_recorded_is_refused(
    message: str, record: Callable[[Recorder], Any]
) -> None:
    with pytest.raises(ValueError, match=message):
        record(Recorder(VOCAB))


def test_what_is_not_known_must_be_named() -> None:
    with pytest.raises(ValueError, match="give vocab, or mask_id"):
        canvases([1, 9], [1, 2])(Recorder())
    with pytest.raises(ValueError, match="none without vocab"):
        Recorder(end_ids=[3])
    recorder = Recorder(mask_id=9)
    canvases([1, 9], [1, 2])(recorder)
    assert recorder.traces()[0].text == "<2>"


def test_importing_recorders_imports_no_library() -> None:
    import subprocess
    import sys

    code = (
        "import sys, anyorder.trace.recorders; "
        "print({'torch', 'transformers', 'diffusers'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
