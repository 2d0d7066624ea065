"""latentmdm against its published procedure, and against ar, at the paper's 125M shapes.

    sampling   ours against the published loop (latentmdm_published.py), on the same weights, greedy
               by average log-likelihood; tokens and order must agree, and scores with those of the
               published loop in float64 (its own, in float32, are off by more among 151,645 words)
    ar         ours against ar with a prefilled cache for as many tokens; and that against the ar of
               the release, which feeds its prompt token by token
    training   one step, forward and backward, the paper's loss, ours against the published one; the
               losses must agree

Width 512, 8 heads, feed-forward 1536, 2 + 10 + 2 layers (ar: 14), 16 slots of 32 tokens, batch 1,
prompt 62, 8 lines of about 10 tokens. The weights are random, and a script gives the written tokens
(latentmdm_scripted.py). A dial of the script sets how much of a candidate survives from one step to
the next: `measured` is the value of two tiny models trained on stories (`--survival
runs/tiny-latentmdm` prints it for any model); `all` and `nothing` are the extremes.

One thread, float32; medians of CPU time, both sides interleaved in one process. The extremes are
timed once, with 8 slots. Memory is measured with one step in a separate process: the peak of the
resident size minus the size with weights and gradients, which are equal on both sides.

    python benchmarks/latentmdm.py                    half an hour
    python benchmarks/latentmdm.py --vocab 1024       one vocabulary; also --only ar, --repeats 1
    python benchmarks/latentmdm.py --quick            a minute, to try the script
    python benchmarks/latentmdm.py --survival FOLDER  what the dial is set to
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

import anyorder
import latentmdm_published as published
from anyorder.data.batches import Batch, BatchConfig, Example, collate
from anyorder.data.corpora.stories.problem import StoriesConfig, problem
from anyorder.data.segments import SegmentConfig
from anyorder.decode.canvas import Canvas, SegmentCanvas
from anyorder.families.ar import decode as ar
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.config import LatentConfig, LatentOptions
from anyorder.families.latentmdm.loss import segment_mean
from anyorder.families.latentmdm.net import LatentNet
from anyorder.nets.shapes import TransformerConfig
from anyorder.nets.transformer import Transformer
from anyorder.process import masking
from anyorder.process.noise import Noise, uniform
from anyorder.vocab import Vocab
from decode import NeverEnds, compare, cpu_seconds, token_by_token
from latentmdm_scripted import Dial, Script, Scripted, Work, prefix_twin, survival
from tables import show

DOMINATES = """
Ours spends most of its time in the latent network. 936 positions through 10 layers of 3.4 million
weights are 64 G operations. At the rate of a large product (hot_paths) this is about half of the
time in the first row; encoder, decoder and head are most of the rest, in many small calls.
Positions of a bidirectional prompt are recomputed in every step, because they see the slots; a
prefix_lm saves them. With 151,645 words, not on this page, the head also matters: a call for one
row is bound by reading a table of 310 MB, 31 ms at 10 GB/s.
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of the comparisons."""

    vocab_size: int
    width: int = 512
    heads: int = 8
    mlp_width: int = 1536
    encoder_layers: int = 2
    layers: int = 10
    decoder_layers: int = 2
    prompt: int = 62
    lines: int = 8
    batch: int = 8
    """Examples of a training step."""

    def backbone(self, layers: int, *, causal: bool = False) -> TransformerConfig:
        return TransformerConfig(
            vocab_size=self.vocab_size,
            width=self.width,
            layers=layers,
            heads=self.heads,
            kv_heads=self.heads,
            head_width=self.width // self.heads,
            mlp_width=self.mlp_width,
            causal=causal,
            o_bias=True,
        )

    def vocab(self) -> Vocab:
        # Only sizes matter here: the pieces' text is never looked at.
        return Vocab.words([f"<{i}>" for i in range(self.vocab_size - 4)])

    def net(self, vocab: Vocab) -> LatentNet:
        config = LatentConfig(
            self.backbone(self.layers),
            self.encoder_layers,
            self.decoder_layers,
            slots=16,
            segment_length=32,
            empty="eos",
            encoder_norm=False,
            latent_norm=False,
            decoder_norm=False,
            eos_id=vocab.eos_id,
        )
        return LatentNet(config).eval()

    def prompt_ids(self) -> list[int]:
        return [(7 * i) % 900 for i in range(self.prompt)]


QUICK = {"width": 64, "mlp_width": 192, "encoder_layers": 1, "layers": 2, "decoder_layers": 1}
VOCABULARIES = {False: [151_645, 1_024], True: [2_000]}

MEASURED = {1: Dial(0.09, 0.17), 2: Dial(0.13, 0.23), 4: Dial(0.18, 0.32)}
"""By segments revealed a step: `--survival` of a tiny model at layout 1, 3,000 steps."""
EXTREMES = {"all": Dial(0.0), "nothing": Dial(1.0, rewrites=1.0, from_the_start=True)}

TOLERANCE = 1e-4
"""Of scores, against a log-softmax in float64."""


Lines = dict[int, published.Revealed]
"""What was revealed, by slot."""


@dataclass(frozen=True)
class Sampler:
    """Our decoder on one row, and its last result."""

    net: Scripted
    vocab: Vocab
    shape: Shape
    slots: int
    k: int

    def __call__(self) -> Lines:
        canvas = SegmentCanvas(tuple(self.shape.prompt_ids()), (None,) * self.slots)
        options = LatentOptions(k=self.k, slots=self.slots, ties="leftmost")
        (row,) = latentmdm.decode(self.net, self.vocab, [canvas], [0], options)
        assert row.segment is not None and row.score is not None
        found: Lines = {}
        columns = (row.token_ids, row.segment, row.reveal_step, row.score)
        for token, slot, step, score in zip(*columns, strict=True):
            seen = found.setdefault(slot, published.Revealed([], step, score))
            seen.tokens.extend([token] if token != self.vocab.eos_id else [])
        # Slots that the tail rule closed have no score.
        return {slot: seen for slot, seen in found.items() if seen.score == seen.score}


def largest_difference(ours: Lines, theirs: Lines) -> float:
    """The largest difference of scores; tokens and order must be equal."""
    # An empty segment that another one empties again is forgotten on the published side.
    ours = {slot: seen for slot, seen in ours.items() if seen.tokens or slot in theirs}
    assert ours.keys() == theirs.keys(), "both sides must reveal the same slots"
    for slot, mine in ours.items():
        other = theirs[slot]
        assert (mine.tokens, mine.step) == (other.tokens, other.step), f"slot {slot} differs"
    return max(abs(mine.score - theirs[slot].score) for slot, mine in ours.items())


def work_row(name: str, seconds: float, work: Work) -> list[str]:
    counts = (work.latent_positions, work.decoder_calls, work.head_rows)
    return [name, f"{seconds:.2f}", *(f"{count:,}" for count in counts)]


def measure_sampling(shape: Shape, net: LatentNet, vocab: Vocab, repeats: int) -> None:
    rows, notes = [], []
    cases = [(16, "measured"), *((8, name) for name in ("measured", *EXTREMES))]
    for slots, name in cases:
        dial = EXTREMES.get(name, MEASURED[1])
        script = Script.draw(net, vocab, shape.lines, dial)
        scripted = Scripted(net, script)
        ours = Sampler(scripted, vocab, shape, slots, k=1)
        theirs = partial(published.sample, scripted, vocab, shape.prompt_ids(), slots, k=1)
        # In float64 and not timed: it is also what warms both sides up.
        off = largest_difference(ours(), theirs(dtype=torch.float64))
        assert off < TOLERANCE, f"scores differ by {off:.1e}"
        seconds: dict[str, list[float]] = {"ours": [], "published": []}
        work = {}
        for _ in range(repeats if name == "measured" else 1):
            found: list[Lines] = []
            for side, sampler in (("ours", ours), ("published", theirs)):
                seconds[side].append(cpu_seconds(lambda: found.append(sampler())))  # noqa: B023
                work[side] = scripted.work
            off_in_float32 = largest_difference(*found)
        median = {side: statistics.median(values) for side, values in seconds.items()}
        case = f"{slots} slots, {name} ({script.survives:.0%} of tokens survive a step)"
        rows += [work_row(f"{case}, {side}", median[side], work[side]) for side in seconds]
        rows[-1].append(f"{median['published'] / median['ours']:.2f}")
        rows[-2].append("")
        notes.append(f"{off:.1e} and {off_in_float32:.1e}")
    head = ["", "CPU s", "latent positions", "decoder calls", "head rows", "ratio"]
    show(f"sampling, vocabulary {vocab.size:,}", head, rows)
    print(
        "\nTokens and order are the same; scores differ from the published ones in float64 and in "
        f"float32 by at most {'; '.join(notes)}."
    )


def measure_ar(shape: Shape, net: LatentNet, vocab: Vocab, repeats: int) -> None:
    layers = shape.encoder_layers + shape.layers + shape.decoder_layers
    ar_net = Transformer(shape.backbone(layers, causal=True)).eval()
    script = Script.draw(net, vocab, shape.lines, MEASURED[1])
    tokens = sum(script.lengths) + 1
    endless, prompt = NeverEnds(ar_net, vocab.eos_id), shape.prompt_ids()
    canvas = Canvas.of([prompt, tokens], vocab)
    sides: dict[str, Callable[[], object]] = {
        "ar": lambda: ar.decode(endless, vocab, [canvas], [0], ar.ArOptions()),  # type: ignore[arg-type]
        "ar, prompt token by token": lambda: token_by_token(endless, prompt, tokens),
    }
    twins = {"bidirectional": net, "prefix_lm": prefix_twin(net)}
    for attention, twin in twins.items():
        for slots in (16, 8):
            for k, dial in MEASURED.items():
                scripted = Scripted(twin, Script.draw(net, vocab, shape.lines, dial))
                name = f"{attention}, {slots} slots, k = {k}"
                sides[name] = Sampler(scripted, vocab, shape, slots, k)
    seconds = compare(sides, repeats)
    references = (seconds["ar"], seconds["ar, prompt token by token"])
    rows = [
        [name, f"{value:.2f}", *(f"{value / reference:.2f}" for reference in references)]
        for name, value in seconds.items()
    ]
    title = f"latency, vocabulary {vocab.size:,}, {tokens} tokens: ours against ar"
    show(title, ["", "CPU s", "to ar", "to the slower ar"], rows)


def training_batch(shape: Shape, vocab: Vocab) -> Batch:
    """Examples with the lengths of TinyGSM: prompt 62, 8.9 lines, 10.4 tokens a line."""
    examples = []
    for index in range(shape.batch):
        # Even steps through (0, 1), so that a few examples have the right means.
        first, second = (((n * index) % shape.batch + 0.5) / shape.batch for n in (1, 5))
        prompt = [(7 * i) % 900 for i in range(int(shape.prompt * (0.5 + second)))]
        draw = uniform(7, index, torch.arange(3 + int(6.4 * (first + second)))).tolist()
        lengths = tuple(2 + int(22 * u * (0.2 + u)) for u in draw)
        words = [(11 * i + index) % 900 for i in range(sum(lengths))]
        examples.append(Example(prompt, words, index, segments=lengths))
    segments = SegmentConfig(slots=16, segment_length=32)
    config = BatchConfig(size=shape.batch, ending="none", segments=segments, pad_slots=True)
    return collate(examples, vocab, config)


@dataclass(frozen=True)
class Step:
    """One training step of either side; its loss."""

    net: LatentNet
    vocab: Vocab
    batch: Batch
    side: str

    def __call__(self) -> float:
        noise = Noise(seed=0, step=0)
        if self.side == "ours":
            loss = segment_mean(self.vocab)(self.net, self.batch, noise).loss
        else:
            assert self.batch.segment_length is not None
            every = torch.ones_like(self.batch.segment_length, dtype=torch.bool)
            masked = masking.corrupt(every, self.batch.index, noise)
            loss = published.loss(self.net, self.batch, masked, self.vocab)
        loss.backward()
        return float(loss.detach())


def training_step(shape: Shape, side: str, net: LatentNet | None = None) -> Step:
    vocab = shape.vocab()
    net = net or shape.net(vocab)
    for weight in net.parameters():
        weight.grad = torch.zeros_like(weight)
    return Step(net, vocab, training_batch(shape, vocab), side)


def peak_of_step(shape: Shape, side: str) -> None:
    """Measure in this process and print one line of JSON: megabytes and the loss."""
    step = training_step(shape, side)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of building the network
    before = resident("VmRSS")
    loss = step()
    peak = resident("VmHWM") - before
    print(json.dumps({"peak": peak, "before": before, "loss": loss}))


def resident(field: str) -> float:
    """The resident megabytes, from the kernel. (A process inherits ru_maxrss from its parent.)"""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s*(\d+) kB", status)[1]) / 1e3  # type: ignore[index]


def measure_training(shape: Shape, net: LatentNet, vocab: Vocab, repeats: int) -> None:
    steps = {side: training_step(shape, side, net) for side in ("ours", "published")}
    batch = steps["ours"].batch
    assert batch.segment_length is not None
    lengths = batch.segment_length[batch.segment_length > 0].double()
    losses = {side: step() for side, step in steps.items()}  # the first round only warms up
    assert abs(losses["ours"] - losses["published"]) < 1e-4 * losses["published"], losses
    times: dict[str, list[float]] = {side: [] for side in steps}
    for _ in range(repeats):
        for side, step in steps.items():
            times[side].append(cpu_seconds(step))
    seconds = {side: statistics.median(values) for side, values in times.items()}
    memory = {}
    for side in steps:
        command = [sys.executable, __file__, "--side", side, *sys.argv[1:]]
        command += ["--vocab", str(vocab.size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        memory[side] = json.loads(done.stdout)
    rows = [
        [
            side,
            f"{seconds[side]:.2f}",
            f"{memory[side]['peak']:,.0f}",
            f"{memory[side]['before']:,.0f}",
            f"{losses[side]:.5f}",
        ]
        for side in steps
    ]
    ratio = memory["published"]["peak"] / memory["ours"]["peak"]
    rows.append(["ratio", f"{seconds['published'] / seconds['ours']:.2f}", f"{ratio:.2f}", "", ""])
    title = (
        f"training step, vocabulary {vocab.size:,}, {shape.batch} examples, prompt "
        f"{batch.prompt_length.double().mean():.1f}, {len(lengths) / shape.batch:.1f} lines of "
        f"{lengths.mean():.1f} tokens"
    )
    show(title, ["", "CPU s", "peak MB", "above MB", "loss"], rows)


MEASUREMENTS = {
    "sampling": measure_sampling,
    "ar": measure_ar,
    "training": measure_training,
}


def show_survival(folder: str, problems: int) -> None:
    model = anyorder.load(folder)
    recipe = model.card.recipe.get("data", {})
    config = StoriesConfig(layout=recipe.get("layout", 0.0), wording=recipe.get("wording", 0.0))
    prompts = [problem(config, 10_000_000 + i).prompt for i in range(problems)]
    for k in MEASURED:
        found = survival(model, prompts, k)
        print(f"k = {k}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--vocab", type=int, action="append", help="a vocabulary; can be repeated")
    parser.add_argument("--only", choices=list(MEASUREMENTS), help="one of the comparisons")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--survival", metavar="FOLDER", help="measure a trained model's candidates")
    parser.add_argument("--problems", type=int, default=60, help="of --survival")
    parser.add_argument("--side", choices=["ours", "published"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # idle threads spin, and their spinning would count as CPU time
    if arguments.survival:
        show_survival(arguments.survival, arguments.problems)
        return
    sizes = arguments.vocab or VOCABULARIES[arguments.quick]
    shapes = [Shape(size, **QUICK if arguments.quick else {}) for size in sizes]
    if arguments.side:
        peak_of_step(shapes[-1], arguments.side)
        return
    print(f"one thread, float32, medians of {arguments.repeats}")
    for shape in shapes:
        vocab = shape.vocab()
        net = shape.net(vocab)
        print(f"\n{shape}")
        for name, measure in MEASUREMENTS.items():
            if arguments.only in (None, name):
                measure(shape, net, vocab, arguments.repeats)


if __name__ == "__main__":
    main()
