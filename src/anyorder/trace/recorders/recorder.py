"""Recorder: the canvases of a generation that other software runs become traces and a run folder.

    canvas(ids)                   your own loop: once before the first step, then after each step
    streamer()                    text diffusion in `transformers` (DiffusionGemma): streamer=
    on_step_end                   `diffusers` text pipelines: callback_on_step_end=
    on_tokens                     Dream's `diffusion_generate`: generation_tokens_hook_func=
    watching(network)             loops that offer nothing: sees what the network is called with

`begin` names the next generation (task ids, prompts, the prompt's length) and ends the one before;
`end` ends it. A batch gives one trace for each row. `traces` and `save` give the results.

What a recorder cannot see it does not invent: log-probabilities, proposals and ties are left out.
A canvas may grow on the right, block by block. Where slots are inserted or deleted elsewhere, give
`canvas` the identity of each slot.

Letters: B rows, L positions. Not here: files that others recorded (adapters.py).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyorder.trace import checks
from anyorder.trace.blocks import canvas_blocks
from anyorder.trace.history import padded_right, trace_of_slots
from anyorder.trace.run import Run, RunCard, save_run
from anyorder.trace.trace import About, Trace
from anyorder.vocab import Vocab

DRAFT = "draft"
"""The policy of traces of drafts: `reveal_step` is when a position settled."""
NO_MASK = checks.INT32_MAX
"""Stands for the mask where a sampler has none; no vocabulary is so large."""

IdRows = NDArray[np.int64]


@dataclass
class _Generation:
    """One generation while it is recorded: how its rows are named, and its canvases."""

    task_ids: str | Sequence[str] | None = None
    prompts: str | Sequence[str] | None = None
    prompt_length: int | Sequence[int] | None = None
    entry_points: str | Sequence[str] | None = None
    new_tokens: int | None = None
    block_length: int | None = None
    canvases: list[IdRows] = field(default_factory=list)  # S of B L
    slots: list[list[Hashable]] = field(default_factory=list)
    draft: bool = False
    waits: bool = False
    """Only canvases before steps were seen: the one after the last step is to come."""

    def lengths(self, mask_id: int) -> list[int]:
        """The prompt's length in each row; unset: up to the first mask."""
        first = self.canvases[0]
        if self.prompt_length is not None:
            given = np.atleast_1d(np.asarray(self.prompt_length))
            if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) not in (1, len(first)):
                raise ValueError(
                    f"prompt_length: a number, or one for each of the {len(first)} rows, is needed"
                )
            return [int(length) for length in np.broadcast_to(given, len(first))]
        masked = first == mask_id
        if not masked.any(axis=1).all() and self.canvases[-1].shape == first.shape:
            raise ValueError(
                f"the first canvas has a row without the mask {mask_id}: record the canvas from "
                "before the first step, or give prompt_length"
            )
        return [int(row.argmax()) if row.any() else len(row) for row in masked]

    def blocks(self, prompt_length: int) -> IdRows | None:
        """The blocks of the slots behind the prompt, as far as they are known."""
        # A canvas whose slots have identities may grow anywhere, so its widths show no blocks.
        seen = self.canvases[-1:] if self.slots else self.canvases
        widths = [canvas.shape[1] for canvas in seen]
        return canvas_blocks(widths, prompt_length, self.block_length)

    def named(self, name: str) -> list[str] | None:
        """The texts of one field, one for each row."""
        value, rows = getattr(self, name), len(self.canvases[0])
        if value is None:
            return None
        texts = [value] * rows if isinstance(value, str) else list(value)
        if len(texts) != rows:
            raise ValueError(f"{name}: {len(texts)} for {rows} rows: give one text, or one each")
        return texts


class Recorder:
    """Records generations of one model, for one run folder."""

    def __init__(
        self,
        vocab: Vocab | None = None,
        *,
        mask_id: int | None = None,
        end_ids: Sequence[int] = (),
        policy: str | None = None,
    ) -> None:
        """Without a vocabulary the text of token 17 is `<17>`.

        `mask_id`: unset, the vocabulary's. `end_ids`: the first of these, or the vocabulary's end,
        ends a text. `policy`: a name for the rule that chose the order, stored with every trace.
        """
        if vocab is None and end_ids:
            raise ValueError("end_ids end a text, and there is none without vocab: give it too")
        self.vocab = vocab.ending_with(end_ids) if vocab is not None and end_ids else vocab
        self.policy = policy
        self._mask_id = vocab.mask_id if mask_id is None and vocab is not None else mask_id
        self._open = _Generation()
        self._traces: list[Trace] = []
        self._prompts: dict[Hashable, int] = {}  # unnamed prompts -> their number
        self._samples: Counter[str] = Counter()

    @property
    def mask_id(self) -> int:
        """The id of the mask; ValueError if it was not named."""
        if self._mask_id is None:
            raise ValueError("which id is the mask is not known: give vocab, or mask_id")
        return self._mask_id

    def begin(
        self,
        task_ids: str | Sequence[str] | None = None,
        *,
        prompts: str | Sequence[str] | None = None,
        prompt_length: int | Sequence[int] | None = None,
        entry_points: str | Sequence[str] | None = None,
        new_tokens: int | None = None,
        block_length: int | None = None,
    ) -> None:
        """Name the next generation; each value is of all rows, or there is one for each row.

        Unset: prompts are decoded, and numbered as tasks `prompt/0`, `prompt/1` and so on; equal
        ones are samples of one task. `prompt_length` counts the ids before the answer; unset: up
        to the first mask. `new_tokens`: what a grid of blocks adds behind them is left out.
        `block_length`: the slots of a block, on a canvas of fixed width whose blocks are filled
        one after another from the prompt's end on; a canvas that grows shows its blocks.
        """
        self.end()
        self._open = _Generation(
            task_ids, prompts, prompt_length, entry_points, new_tokens, block_length
        )

    def canvas(self, ids: Any, slots: Sequence[Hashable] | None = None) -> None:
        """Record the canvas before the first step, or after a step: ids (L) or (B, L).

        `slots`: the identity of each slot, any values that it keeps while it exists; needed where
        slots are inserted or deleted, and then of every canvas of one row.
        """
        own, rows = self._open, _rows(ids)
        if own.canvases and len(rows) != len(own.canvases[0]):
            raise ValueError(
                f"{len(rows)} rows, and {len(own.canvases[0])} before: keep the batch together, "
                "and call begin() or end() between generations"
            )
        if own.canvases and (slots is None) == bool(own.slots):
            raise ValueError("slots: give the identities for every canvas, or for none")
        if slots is not None:
            if rows.shape != (1, len(slots)):
                raise ValueError(f"{len(slots)} slots for ids of shape {rows.shape}: one row, each")
            own.slots.append(list(slots))
        own.canvases.append(rows)

    def end(self, ids: Any = None) -> None:
        """End the generation; `ids`: what it returned, recorded as the last canvas."""
        if ids is not None:
            self._open.waits = False
            self.canvas(ids)
        own = self._open
        if own.waits:
            raise ValueError(
                "the canvas after the last step is missing, the network never saw it: call "
                "end(ids) with what the loop returned"
            )
        self._open = _Generation()
        if own.canvases:
            self._traces += list(self._finished(own))

    def traces(self) -> list[Trace]:
        """The traces of all generations so far, the open one ended."""
        self.end()
        return list(self._traces)

    def save(self, folder: str | Path) -> Run:
        """A run folder of all traces."""
        traces = self.traces()
        if not traces:
            raise ValueError("nothing was recorded: was the recorder passed to the sampler?")
        digest = hashlib.sha256()
        for trace in traces:
            digest.update(trace.to_jsonl().encode() + repr(trace.token_ids).encode())
        config: dict[str, Any] = {"recorder": "canvases", "policy": self.policy}
        if any(trace.policy == DRAFT for trace in traces):
            # Said in the card too, because the steps mean something else than an unmasking.
            config = {"recorder": "drafts", "reveal_step": "settled, not accepted"}
        vocab_digest = None if self.vocab is None else self.vocab.digest()
        card = RunCard(
            "anyorder.trace.recorders.Recorder.save",
            config,
            data_digest=digest.hexdigest(),
            vocab_digest=vocab_digest,
        )
        return save_run(folder, card, traces)

    def streamer(self) -> DraftStreamer:
        """A streamer for text-diffusion generation in `transformers`."""
        if self.policy is not None:
            raise ValueError(
                f"policy {self.policy!r}: the policy of drafts is {DRAFT!r}, because they do not "
                "show which positions were accepted: leave it out"
            )
        return DraftStreamer(self)

    def on_step_end(
        self, pipe: Any, step: int, timestep: int, kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """`callback_on_step_end` of text pipelines in `diffusers`; needs prompt_length."""
        if "block_x" not in kwargs:
            raise ValueError(
                "the pipeline does not pass block_x: leave callback_on_step_end_tensor_inputs out, "
                "or name it there"
            )
        if step == 0 and self._open.canvases:
            self.end()
        if not self._open.canvases:
            self._put_back_first(_rows(kwargs["block_x"]))
        self.canvas(kwargs["block_x"])
        return kwargs

    def _put_back_first(self, rows: IdRows) -> None:
        """The canvas before step 1, which the pipeline does not show: the prompt and masks."""
        if self._open.prompt_length is None:
            raise ValueError(
                "the pipeline begins to show the canvas after step 1, so where the prompt ends "
                "cannot be seen: call begin(prompt_length=...) before it"
            )
        self._open.canvases.append(rows)
        for row, length in zip(rows, self._open.lengths(self.mask_id), strict=True):
            row[length:] = self.mask_id

    def on_tokens(self, step: int | None, ids: Any, logits: Any) -> Any:
        """`generation_tokens_hook_func` of Dream's `diffusion_generate`: called with step None
        before the first step."""
        if step is None and self._open.canvases:
            self.end()
        self.canvas(ids)
        return ids

    @contextmanager
    def watching(self, network: Any, *, rows: int | None = None, every: int = 1) -> Iterator[None]:
        """Record what a torch network is called with: the canvas before each step.

        Call `end(ids)` with what the loop returned. `rows`: how many of the first rows are the
        canvas (guidance adds others). `every`: the calls of the network in a step. It does not
        work with a cache, which leaves out part of the canvas.
        """
        calls = count()

        def before(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            ids = kwargs.get("input_ids", args[0] if args else None)
            if ids is None:
                raise ValueError("the network was called without input_ids: record canvas(ids)")
            if next(calls) % every == 0:
                self.canvas(ids[:rows])
                self._open.waits = True

        handle = network.register_forward_pre_hook(before, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _finished(self, own: _Generation) -> Iterator[Trace]:
        mask_id = NO_MASK if own.draft else self.mask_id
        lengths = own.lengths(mask_id)
        entry_points = own.named("entry_points")
        for row, about in enumerate(self._names(own, lengths)):
            if entry_points is not None:
                about["entry_point"] = entry_points[row]
            about["policy"] = DRAFT if own.draft else self.policy
            stop = None if own.new_tokens is None else lengths[row] + own.new_tokens
            blocks = own.blocks(lengths[row])
            about["block"] = None if blocks is None else blocks[: own.new_tokens]
            if own.slots:
                yield self._with_slots(own, lengths[0], about)
                continue
            canvases = padded_right(own.canvases, mask_id)
            yield Trace.from_snapshots(
                [canvas[row, :stop] for canvas in canvases],
                mask_id,
                vocab=self.vocab,
                prompt_length=lengths[row],
                **about,
            )

    def _names(self, own: _Generation, lengths: Sequence[int]) -> Iterator[About]:
        """Task, number of the sample and prompt of each row."""
        prompts, task_ids = own.named("prompts"), own.named("task_ids")
        for row, length in enumerate(lengths):
            if task_ids is not None:
                task_id = task_ids[row]
            else:
                ids = tuple(own.canvases[0][row, :length].tolist())
                key = ids if prompts is None else prompts[row]
                task_id = f"prompt/{self._prompts.setdefault(key, len(self._prompts))}"
            about: About = {"task_id": task_id, "sample": self._samples[task_id]}
            self._samples[task_id] += 1
            if prompts is not None:
                about["prompt"] = prompts[row]
            yield about

    def _with_slots(self, own: _Generation, prompt_length: int, about: About) -> Trace:
        canvases = [
            list(zip(slots, ids[0].tolist(), strict=True))
            for slots, ids in zip(own.slots, own.canvases, strict=True)
        ]
        prompt = canvases[0][:prompt_length]
        for step, canvas in enumerate(canvases):
            if canvas[:prompt_length] != prompt:
                raise ValueError(f"canvas {step} changes the prompt, the first {prompt_length} ids")
        return trace_of_slots(
            (canvas[prompt_length:] for canvas in canvases),
            self.mask_id,
            vocab=self.vocab,
            prompt_ids=[token for _, token in prompt],
            **about,
        )


class DraftStreamer:
    """`streamer=` for text diffusion in `transformers`: records the draft of every step.

    DiffusionGemma has no mask. Its draft is the likeliest token of every position, accepted or
    not, and what it returns is the last draft. So the trace shows a token everywhere from a
    block's first step on, every change is an event, and `reveal_step` is when a position settled,
    not when it was accepted: the policy of such traces is `draft`. Steps are those of the batch:
    a row that settles early goes on with it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._done: IdRows | None = None  # the prompt and the finished blocks

    def put(self, value: Any) -> None:
        """The prompt, or a finished block, which takes the place of its last draft."""
        recorder, rows = self.recorder, _rows(value)
        own = recorder._open
        if self._done is None or not own.canvases:  # the one before may have been broken off
            if own.canvases:
                recorder.end()
                own = recorder._open
            own.draft, own.prompt_length = True, rows.shape[1]
            self._done = rows
            recorder.canvas(rows)
            return
        if own.canvases[-1].shape[1] == self._done.shape[1]:
            raise ValueError(
                "no draft came before this block: this streamer is for text diffusion, which calls "
                "put_draft in every step"
            )
        if own.canvases[-1].shape[1] != self._done.shape[1] + rows.shape[1]:
            raise ValueError(
                f"{rows.shape[1]} ids came after a draft of another length: if a generation was "
                "broken off, pass a new streamer to the next"
            )
        self._done = own.canvases[-1] = np.concatenate([self._done, rows], axis=1)

    def put_draft(self, value: Any) -> None:
        """The draft of the current block after a step."""
        if self._done is None:
            raise ValueError("a draft came before the prompt: pass a new streamer to generate")
        self.recorder.canvas(np.concatenate([self._done, _rows(value)], axis=1))

    def end(self) -> None:
        """The generation is over."""
        self._done = None
        self.recorder.end()


def _rows(ids: Any) -> IdRows:
    """A copy (B L) of ids: loops edit their canvas in place."""
    array = ids.detach().cpu().numpy() if hasattr(ids, "detach") else np.asarray(ids)
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu":
        raise ValueError(
            f"a canvas of token ids is needed, (length) or (batch, length): got {array.dtype} "
            f"values of shape {array.shape}"
        )
    return np.atleast_2d(array).astype(np.int64)
