"""Recorders on the libraries: DiffusionGemma of `transformers`, LLaDA2 of `diffusers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from outside_loops import OutsideModel
from torch import Tensor

import anyorder
from anyorder.trace import Trace
from anyorder.trace.recorders import DraftStreamer, Recorder
from anyorder.vocab import Vocab

VOCAB = Vocab.bytes()
NONE = 2**31 - 1  # shows where no draft has been yet


class Noting(DraftStreamer):
    """Keeps what it is given, to compare."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.blocks: list[list[Tensor]] = []

    def put(self, value: Tensor) -> None:
        if self.blocks:
            self.blocks[-1][-1] = value  # a finished block replaces its last draft
        self.blocks.append([])
        super().put(value)

    def put_draft(self, value: Tensor) -> None:
        self.blocks[-1].append(value)
        super().put_draft(value)


def diffusion_gemma(canvas_length: int) -> Any:
    """A network of random weights with the published parts, as small as can be."""
    transformers = pytest.importorskip("transformers", minversion="5.22")
    text = {
        "vocab_size": VOCAB.size,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "global_head_dim": 8,
        "sliding_window": 32,
        "max_position_embeddings": 256,
        "num_experts": 2,
        "top_k_experts": 1,
        "moe_intermediate_size": 8,
        "pad_token_id": VOCAB.pad_id,
        "eos_token_id": VOCAB.eos_id,
        "bos_token_id": None,
    }
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "position_embedding_size": 8,
    }
    config = transformers.DiffusionGemmaConfig(
        text_config=text,
        vision_config=vision,
        canvas_length=canvas_length,
        image_token_id=VOCAB.size - 1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.DiffusionGemmaForBlockDiffusion(config).eval()


@pytest.mark.timeout(600)
def test_diffusion_gemma_is_recorded_draft_by_draft() -> None:
    model = diffusion_gemma(canvas_length=8)
    prompts = torch.tensor([list(b"Add:"), list(b"Sum:")])
    recorder = Recorder(VOCAB)
    recorder.begin(["a", "b"])
    streamer = Noting(recorder)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        found = model.generate(
            prompts,
            max_new_tokens=12,  # two canvases of eight
            max_denoising_steps=5,
            streamer=streamer,
            pad_token_id=VOCAB.pad_id,
            eos_token_id=VOCAB.eos_id,
        )
    traces = recorder.traces()
    assert [(trace.task_id, trace.prompt) for trace in traces] == [("a", "Add:"), ("b", "Sum:")]
    steps = [block for blocks in streamer.blocks for block in blocks]
    assert len(steps) == 10
    for row, trace in enumerate(traces):
        assert trace.policy == "draft" and trace.steps == len(steps)
        ids = found.sequences[row].tolist()
        assert [*np.asarray(trace.prompt_ids), *np.asarray(trace.token_ids)] == ids
        assert trace.replay(0).ids(NONE).tolist() == [NONE] * 16
        for step, block in enumerate(steps, start=1):
            drafted = block[row].tolist()
            now = ids[4:12] + drafted if step > 5 else drafted + [NONE] * 8
            assert trace.replay(step).ids(NONE).tolist() == now
        assert trace.block is not None and trace.block.tolist() == [0] * 8 + [1] * 8
    # A random network never settles early, so nearly every step edits: no one can pass as an order
    # of unmasking.
    assert sum(change.kind == "edit" for change in traces[0].changes()) > 16


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_diffusers_pipeline_gives_our_decoders_trace() -> None:
    """The prompt fills the first block, so that the second is the whole canvas of our decoder."""
    diffusers = pytest.importorskip("diffusers")
    mdm = anyorder.load("mdm")
    prompt = "Mia has some apples.\n"
    length = len(mdm.vocab.encode(prompt))
    options: dict[str, Any] = {"policy": "confidence", "temperature": 0.0, "ties": "leftmost"}
    (ours,) = mdm.sample([prompt], max_new_tokens=length, seed=0, **options)
    pipe = diffusers.LLaDA2Pipeline(OutsideModel(mdm), diffusers.BlockRefinementScheduler())
    pipe.set_progress_bar_config(disable=True)

    def generate(blocks: int) -> tuple[Trace, Tensor]:
        recorder = Recorder(mdm.vocab)
        recorder.begin(ours.task_id, prompt_length=length)
        returned = pipe(
            input_ids=torch.tensor([mdm.vocab.encode(prompt)]),
            gen_length=blocks * length,
            block_length=length,
            num_inference_steps=length,
            threshold=1.0,
            editing_threshold=None,
            eos_early_stop=False,
            eos_token_id=mdm.vocab.eos_id,
            mask_token_id=mdm.vocab.mask_id,
            output_type="seq",
            callback_on_step_end=recorder.on_step_end,
        )
        (trace,) = recorder.traces()
        return trace, returned.sequences

    theirs, sequences = generate(1)
    assert np.asarray(theirs.token_ids).tolist() == sequences[0].tolist()
    for name in ("prompt_ids", "token_ids", "insert_step", "reveal_step"):
        assert np.array_equal(getattr(theirs, name), getattr(ours, name)), name
    assert (theirs.text, theirs.steps, theirs.events) == (ours.text, ours.steps, None)

    longer, sequences = generate(2)  # the canvas grows by a block
    assert longer.steps == 2 * length and np.asarray(longer.token_ids).tolist() == (
        sequences[0].tolist()
    )
    insert, reveal = longer.timing()
    assert not insert.any() and reveal[:length].max() == length < reveal[length:].min()
    assert theirs.block is None and longer.block is not None
    assert longer.block.tolist() == [0] * length + [1] * length
