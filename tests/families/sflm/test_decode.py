"""sflm's options: what is filled in, and what is refused because it would do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from anyorder.apps.race.plan import ways
from anyorder.decode.canvas import Canvas, Decoded
from anyorder.families.family import find_family
from anyorder.families.sflm import decode as sflm
from anyorder.families.sflm.config import SflmOptions, SphereConfig, Velocity, parse_velocity
from anyorder.families.sflm.net import SphereNet
from anyorder.model import wrap
from anyorder.nets.shapes import TransformerConfig
from anyorder.process import sphere
from anyorder.process.noise import key_of
from anyorder.recipes.presets import find_preset
from anyorder.trace.events import changes_of
from anyorder.vocab import Vocab


@pytest.mark.parametrize(
    ("text", "velocity"),
    [
        ("exact", Velocity()),
        ("top1", Velocity(k=1)),
        ("top_k:8", Velocity(k=8)),
        ("sampled", Velocity(drawn=True)),
        ("sampled:4", Velocity(k=4, drawn=True)),
    ],
)
def test_velocities(text: str, velocity: Velocity) -> None:
    assert parse_velocity(text) == velocity


@pytest.mark.parametrize("text", ["", "top_k", "top_k:0", "top_k:-1", "exact:3", "top1:2", "best"])
def test_what_is_no_velocity(text: str) -> None:
    with pytest.raises(ValueError, match="choose exact, top1, top_k:K, sampled or sampled:K"):
        parse_velocity(text)


def test_what_is_filled_in() -> None:
    plain = sflm.resolve(SflmOptions())
    assert (plain.velocity, plain.tail, plain.steps, plain.temperature) == (
        "top1",
        "greedy",
        16,
        1,
    )
    assert sflm.resolve(SflmOptions(temperature=0)).velocity == "top1"
    assert sflm.resolve(SflmOptions(temperature=1, velocity="exact")).velocity == "exact"
    assert sflm.resolve(SflmOptions(steps=1)) == SflmOptions(steps=1)  # nothing moves
    assert sflm.resolve(SflmOptions(steps=1, temperature=0)).velocity is None
    drawn = SflmOptions(steps=1, temperature=0.5, tail="ancestral")
    assert sflm.resolve(drawn) == drawn
    assert sflm.resolve(plain) == plain and plain.policy == "flow"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"temperature": -1.0}, "temperature must be 0 or positive"),
        ({"temperature": 0.0, "velocity": "exact"}, "temperature 0 leaves the most likely token"),
        ({"temperature": 0.0, "tail": "ancestral"}, "temperature 0 leaves the most likely token"),
        ({"temperature": 0.5}, "the same at every temperature"),
        ({"temperature": 0.5, "velocity": "top1"}, "the same at every temperature"),
        ({"temperature": 0.5, "steps": 1}, "the same at every temperature"),
        ({"velocity": "exact", "steps": 1}, "velocity has no effect on a single step"),
        ({"velocity": "top1", "steps": 1, "tail": "ancestral"}, "no effect on a single step"),
        ({"temperature": 0.5, "velocity": "sampled:1"}, "the same at every temperature"),
        ({"eos": "last"}, "choose plain, fill or forbid"),
        ({"eos": "never"}, "unknown eos choice"),
        ({"tail": "last"}, "tail='last' does not fit"),
        ({"policy": "confidence"}, "sflm does not use policy"),
        ({"mode": "compat"}, "sflm does not use mode"),
        ({"top_p": 0.9}, "sflm does not use top_p"),
    ],
)
def test_what_would_do_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_family("sflm").choose(given)


def test_the_preset_is_one_of_its_protocols() -> None:
    job, options = find_preset("sflm").settings("sflm", "gsm8k")
    chosen = find_family("sflm").choose(options)
    assert (chosen.steps, chosen.temperature, chosen.tail, job["batch"]) == (16, 1.0, "greedy", 1)
    for velocity in find_preset("sflm").sweep["velocity"]:
        assert find_family("sflm").choose(options | {"velocity": velocity}).velocity == velocity


def test_what_a_race_asks_for_is_accepted() -> None:
    family = find_family("sflm")
    asked = ways(family, 0.7, samples=4)
    assert {name: way["temperature"] for name, way in asked.items()} == {"one": 0.0, "several": 0.7}
    chosen = {name: family.choose(way | {"steps": 8}).velocity for name, way in asked.items()}
    assert chosen == {"one": "top1", "several": "exact"}


# sflm against the oracle (one-hot posteriors stay on their geodesics) and against itself.


VOCAB = Vocab.words(["a", "b", "c", "d"])
WIDTH = 24
SPECIAL = {VOCAB.mask_id, VOCAB.pad_id, VOCAB.bos_id}
ALLOWED = VOCAB.size - len(SPECIAL)


class Oracle:
    """Believes what it is told of every position, and remembers what it was asked."""

    least_signal, most_signal = 1e-3, 0.34

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # L V
        self.calls: list[tuple[Tensor, Tensor]] = []
        self.table = sphere.sampling_noise(torch.full((VOCAB.size,), 77), torch.arange(8), WIDTH)

    def unit_table(self) -> Tensor:
        return self.table  # float64, so that nothing is rounded on the way

    def hidden(
        self,
        vectors: Tensor,
        *,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        signal: Tensor,
    ) -> Tensor:
        self.calls.append((vectors, signal))
        return self.logits[: vectors.shape[1]].expand(len(vectors), -1, -1)

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def certain(tokens: Sequence[int]) -> Tensor:
    logits = torch.full((len(tokens), VOCAB.size), -1e4)
    logits[torch.arange(len(tokens)), torch.tensor(tokens)] = 0.0
    return logits


def beliefs(seed: int, length: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(length, VOCAB.size, generator=generator)


def small_net(architecture: str = "backbone") -> SphereNet:
    shape = TransformerConfig(
        VOCAB.size, WIDTH, 2, 2, 2, 12, 48, qkv_bias=False, tied=False, time_modulated=True
    )
    config = SphereConfig(shape, most_signal=0.6, architecture=architecture)  # type: ignore[arg-type]
    net = SphereNet(config, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():  # far from uniform, so that slots differ clearly
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return net


def ragged() -> list[Canvas]:
    frozen = [[0, 1], [2], [1, 1, 0, 3, 2]]
    canvases = [
        Canvas.of([ids, slots], VOCAB) for ids, slots in zip(frozen, (6, 9, 3), strict=True)
    ]
    return [*canvases, Canvas.of([[0], 3, [1, 2], 2, [3, 0]], VOCAB)]


def run(net: Any, canvases: Sequence[Canvas], options: SflmOptions, **more: Any) -> list[Decoded]:
    keys = [key_of(0, i) for i in range(len(canvases))]
    return sflm.decode(net, VOCAB, canvases, keys, options, **more)


VELOCITIES = ("exact", "top_k:3", "top1", "sampled", "sampled:2")
OPTIONS = [
    *(SflmOptions(velocity=each, steps=5) for each in VELOCITIES),
    SflmOptions(steps=1),
    SflmOptions(steps=4, tail="ancestral", velocity="exact"),
    SflmOptions(steps=4, temperature=0.5, tail="ancestral"),
    SflmOptions(steps=4, temperature=0),
    SflmOptions(steps=4, eos="fill"),
    SflmOptions(steps=4, eos="forbid", velocity="sampled"),
]


def label(options: SflmOptions) -> str:
    changed = {k: v for k, v in asdict(options).items() if v != getattr(SflmOptions(), k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "default"


@pytest.mark.parametrize("steps", [1, 2, 7, 33])
@pytest.mark.parametrize("velocity", VELOCITIES)
def test_a_certain_network_stays_on_the_geodesic(steps: int, velocity: str) -> None:
    """At every call each point is on SLERP(noise, its token), to 1e-12, and where it should be.

    It starts from pure noise at the schedule's first signal, 1e-3, as published: what it has left
    to go is (1 - signal) / (1 - 1e-3) of the way.
    """
    tokens = [0, 3, 1, 2, 2, 0, VOCAB.eos_id, 1]
    oracle = Oracle(certain(tokens))
    canvas = Canvas.of([[3], 7], VOCAB)
    options = SflmOptions(velocity=velocity if steps > 1 else None, steps=steps)
    (row,) = run(oracle, [canvas], options)
    assert row.token_ids == tokens[1:]
    assert len(oracle.calls) == steps == row.forwards == row.steps
    key = torch.full((7,), key_of(0, 0))
    noise = sphere.sampling_noise(key, torch.arange(1, 8), WIDTH)
    times = torch.linspace(1, 1e-5, steps + 1, dtype=torch.float64)
    for (vectors, signal), time in zip(oracle.calls, times[:-1], strict=True):
        level = 0.001 + 0.339 * (1 - time)
        assert signal.tolist() == pytest.approx([float(level)], abs=1e-15)
        gone = (1 - (1 - level) / (1 - 0.001)).expand(7)
        path = sphere.slerp(noise, oracle.table[torch.tensor(tokens[1:])], gone)
        assert float((vectors[0, 1:] - path).abs().max()) < 1e-12
        assert torch.allclose(vectors.norm(dim=-1), torch.ones(1, 8).double(), atol=1e-12)


def test_it_starts_from_noise_and_one_step_is_one_look() -> None:
    """N = 1: the most likely tokens of the noise itself."""
    net, canvas = small_net(), ragged()[1]
    (row,) = run(net, [canvas], SflmOptions(steps=1))
    key = torch.full((9,), key_of(0, 0))
    noise = sphere.sampling_noise(key, torch.arange(1, 10), WIDTH)
    vectors = torch.cat([net.unit_table()[[2]], noise.float()])[None]
    logits = net.head(net.hidden(vectors, signal=torch.tensor([1e-3])))[0, 1:]
    logits[:, sorted(SPECIAL)] = -torch.inf
    assert row.token_ids == logits.argmax(dim=-1).tolist()
    expected = logits.log_softmax(dim=-1).amax(dim=-1).tolist()
    assert row.log_prob == pytest.approx(expected, abs=1e-4)
    assert row.reveal_step == [1] * 9 and not row.changes


@pytest.mark.parametrize("architecture", ["backbone", "dit"])
@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_batched_equals_alone(options: SflmOptions, architecture: str) -> None:
    net, canvases = small_net(architecture), ragged()
    keys = [key_of(0, i) for i in range(len(canvases))]
    together = sflm.decode(net, VOCAB, canvases, keys, options)
    for canvas, key, row in zip(canvases, keys, together, strict=True):
        (alone,) = sflm.decode(net, VOCAB, [canvas], [key], options)
        assert row.token_ids == alone.token_ids
        assert row.reveal_step == alone.reveal_step and row.changes == alone.changes
        assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_frozen_slots_are_the_same_bits_at_every_call(options: SflmOptions) -> None:
    oracle, canvases = Oracle(beliefs(3)), ragged()
    rows = run(oracle, canvases, options)
    assert len(oracle.calls) == options.steps
    for at, (canvas, row) in enumerate(zip(canvases, rows, strict=True)):
        frozen = ~torch.tensor(canvas.free)
        clean = oracle.table[torch.tensor(canvas.ids)[frozen]]
        for vectors, _ in oracle.calls:
            assert torch.equal(vectors[at, : len(frozen)][frozen], clean)
        start = canvas.prompt_length
        for place, free in enumerate(canvas.free[start:]):
            assert free or row.token_ids[place] == canvas.ids[start + place]
            assert free or (
                row.reveal_step[place] == 0 and row.log_prob[place] != row.log_prob[place]
            )


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_no_slot_holds_a_mask_pad_or_bos(options: SflmOptions) -> None:
    logits = beliefs(4)
    logits[:, sorted(SPECIAL)] += 9.0  # all it wants
    logits[3, VOCAB.eos_id] += 9.0
    rows = run(Oracle(logits), ragged(), options)
    for row in rows:
        assert not SPECIAL & {*row.token_ids, *(change.token_id for change in row.changes)}
        if options.eos == "forbid":
            assert VOCAB.eos_id not in row.token_ids


def test_nor_what_no_text_holds() -> None:
    """Names of a chat and unused rows of the table are no more written than the mask."""

    class Chatty:
        mask_id, pad_id, eos_id, bos_id, size = 4, 5, 6, None, VOCAB.size
        special_ids = frozenset({1, 4, 5, 6})  # 1: a chat token

        @staticmethod
        def decode(ids: Sequence[int], begun: bool = False) -> str:
            return "" if ids[0] in (2, *Chatty.special_ids) else "x"  # 2: an unused row

    logits = beliefs(4)
    logits[:, [1, 2]] += 9.0
    options = SflmOptions(steps=3, velocity="exact")
    rows = sflm.decode(Oracle(logits), Chatty, ragged(), [1, 2, 3, 4], options)  # type: ignore[arg-type]
    for row, canvas in zip(rows, ragged(), strict=True):
        free = canvas.free[canvas.prompt_length :]
        written = {token for token, own in zip(row.token_ids, free, strict=True) if own}
        assert written <= {0, 3, 6, 7}
        assert {change.token_id for change in row.changes} <= {0, 3, 6, 7}


def test_a_larger_vocabulary_is_refused_before_anything_is_computed() -> None:
    oracle, larger = Oracle(beliefs(1)), Vocab.words(list("abcdefgh"))
    with pytest.raises(ValueError, match="12: use the vocabulary that it was trained with"):
        sflm.decode(oracle, larger, [Canvas.of([[7], 3], larger)], [1], SflmOptions())
    assert not oracle.calls


def test_what_the_head_said_is_left_alone() -> None:
    class Keeping(Oracle):
        def head(self, hidden: Tensor) -> Tensor:
            return self.logits[: len(hidden)]

    oracle = Keeping(beliefs(2))
    before = oracle.logits.clone()
    run(oracle, [Canvas.of([4], VOCAB)], SflmOptions(steps=3))
    assert torch.equal(oracle.logits, before)


def test_where_pad_is_eos_it_is_written() -> None:
    """Published vocabularies end and pad with one id, which is then no forbidden one."""

    class OneId:
        mask_id, pad_id, eos_id, bos_id, size = VOCAB.mask_id, 3, 3, None, VOCAB.size
        special_ids = VOCAB.special_ids | {3}
        decode = VOCAB.decode

    canvas = Canvas.of([[0], 3], VOCAB)
    oracle = Oracle(certain([0, 1, 3, 3]))
    (row,) = sflm.decode(oracle, OneId, [canvas], [1], SflmOptions(steps=2))  # type: ignore[arg-type]
    assert row.token_ids == [1, 3, 3]


def moved(velocity: str, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Where one step brings the slots."""
    oracle = Oracle(logits)
    options = SflmOptions(velocity=velocity, steps=2, temperature=temperature)
    run(oracle, [Canvas.of([[0], 11], VOCAB)], options)
    return oracle.calls[1][0][0, 1:]


def test_top_one_is_the_same_drawn_or_not() -> None:
    logits = beliefs(5)
    assert torch.equal(moved("sampled:1", logits), moved("top1", logits))
    assert torch.equal(moved("top_k:1", logits), moved("top1", logits))
    assert not torch.allclose(moved("exact", logits), moved("top1", logits), atol=1e-6)
    whole = f"top_k:{VOCAB.size}"
    assert torch.allclose(moved(whole, logits), moved("exact", logits), atol=1e-12)


def test_the_velocities_by_hand() -> None:
    """From the posterior and the log maps, token by token."""
    logits, oracle = beliefs(6), Oracle(beliefs(6))
    noise = sphere.sampling_noise(torch.full((11,), key_of(0, 0)), torch.arange(1, 12), WIDTH)
    allowed = logits[1:].double().clone()
    allowed[:, sorted(SPECIAL)] = -torch.inf
    grid = 0.001 + 0.339 * (1 - torch.linspace(1, 1e-5, 3, dtype=torch.float64))
    for k, temperature in ((ALLOWED, 1.0), (ALLOWED, 0.5), (3, 1.0), (3, 2.0)):
        least = allowed.topk(k, dim=1).values[:, -1:]
        kept = allowed.masked_fill(allowed < least, -torch.inf)
        probability = (kept / temperature).softmax(dim=1)
        velocity = torch.stack(
            [
                sum(
                    probability[i, v] * sphere.log_map(noise[i], oracle.table[v])
                    for v in range(VOCAB.size)
                )
                for i in range(11)
            ]
        )
        expected = sphere.euler_step(noise, velocity, grid[0], grid[1])
        found = moved("exact" if k == ALLOWED else f"top_k:{k}", logits, temperature)
        assert torch.allclose(found, expected, atol=1e-7)  # the posterior itself is float32


def test_a_drawn_velocity_has_the_posteriors_law() -> None:
    logits = beliefs(7, 2)
    allowed = logits[1].double()
    allowed[sorted(SPECIAL)] = -torch.inf
    oracle, count = Oracle(logits), 4000
    canvases = [Canvas.of([[0], 1], VOCAB)] * count
    run(oracle, canvases, SflmOptions(velocity="sampled", steps=2))
    first, second = (vectors[:, 1] for vectors, _ in oracle.calls)
    way = sphere.log_map(first, second)
    tangents = torch.stack([sphere.log_map(first, each.expand(count, -1)) for each in oracle.table])
    cosine = torch.nn.functional.cosine_similarity(tangents, way[None], dim=-1)  # V count
    assert torch.allclose(cosine.amax(dim=0), torch.ones(count).double(), atol=1e-6)
    share = cosine.argmax(dim=0).bincount(minlength=VOCAB.size) / count
    assert torch.allclose(share, allowed.softmax(dim=0).float(), atol=0.03)


def test_a_draw_at_the_end_has_the_posteriors_law() -> None:
    logits, count = beliefs(8, 2), 4000
    allowed = logits[1].double() / 0.7
    allowed[sorted(SPECIAL)] = -torch.inf
    options = SflmOptions(steps=1, tail="ancestral", temperature=0.7)
    rows = run(Oracle(logits), [Canvas.of([[0], 1], VOCAB)] * count, options)
    share = torch.tensor([row.token_ids[0] for row in rows]).bincount(minlength=8) / count
    assert torch.allclose(share, allowed.softmax(dim=0).float(), atol=0.03)


def test_after_the_first_eos_all_is_eos() -> None:
    tokens = [0, 1, VOCAB.eos_id, 2, 3, VOCAB.eos_id]
    canvas = Canvas.of([[0], 3, [3], 1], VOCAB)
    oracle = Oracle(certain(tokens))
    options = SflmOptions(steps=3)
    (plain,) = run(oracle, [canvas], options)
    assert plain.token_ids == [*tokens[1:4], 3, *tokens[5:]]
    (filled,) = run(oracle, [canvas], replace(options, eos="fill"))
    assert filled.token_ids == [1, VOCAB.eos_id, VOCAB.eos_id, 3, VOCAB.eos_id]
    assert filled.reveal_step == [1, 1, 3, 0, 1]  # the filled slot showed another token before
    assert filled.log_prob[2] != filled.log_prob[2]
    assert [change.token_id for change in filled.changes] == [2]


@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_watching_and_changes_tell_one_story(options: SflmOptions) -> None:
    """What was seen after each step, put together, is what the result says."""
    net, canvases = small_net(), ragged()
    seen: list[Sequence[Decoded]] = []
    rows = run(net, canvases, options, watch=seen.append)
    assert len(seen) == options.steps
    for at, (canvas, row) in enumerate(zip(canvases, rows, strict=True)):
        first = list(canvas.ids[canvas.prompt_length :])
        steps = [first, *(each[at].token_ids for each in seen)]
        assert steps[-1] == row.token_ids
        shown = torch.tensor(steps).numpy()
        reveal, changes = changes_of(shown, VOCAB.mask_id)
        assert reveal.tolist() == row.reveal_step == seen[-1][at].reveal_step
        assert changes == list(row.changes)
    unwatched = run(net, canvases, options)
    assert [row.token_ids for row in unwatched] == [row.token_ids for row in rows]


def test_tokens_do_change_on_the_way() -> None:
    rows = run(small_net(), ragged(), SflmOptions(steps=20, velocity="sampled"))
    assert sum(len(row.changes) for row in rows) > 0


def test_pieces_of_the_head_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net, canvases, options = small_net(), ragged(), SflmOptions(steps=4, tail="ancestral")
    whole = run(net, canvases, options)
    monkeypatch.setattr("anyorder.decode.loop.HEAD_BUDGET", 3 * VOCAB.size)
    pieces = run(net, canvases, options)
    assert [row.token_ids for row in whole] == [row.token_ids for row in pieces]


def test_a_network_over_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="over vectors: wrap masked models, as mdm"):
        wrap(torch.nn.Embedding(VOCAB.size, VOCAB.size), VOCAB, family="sflm")


def test_logits_that_are_no_numbers_are_told() -> None:
    with pytest.raises(ValueError, match="at step 1 the network's logits are not finite"):
        run(Oracle(beliefs(1) * torch.nan), ragged(), SflmOptions())
