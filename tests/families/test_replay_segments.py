"""Replayed posteriors of segments: against a plain computation, against the trace, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from replay_support import STRINGS, placed_by, whole
from torch import Tensor

from anyorder.decode.canvas import Decoded, GrowingSegments, SegmentCanvas
from anyorder.decode.replay import Replay
from anyorder.families import replay as replayer
from anyorder.families.flexlatent import decode as flexlatent
from anyorder.families.flexlatent.config import FlexLatentConfig, FlexLatentOptions
from anyorder.families.flexlatent.net import FlexLatentNet
from anyorder.families.latentmdm import decode as latentmdm
from anyorder.families.latentmdm.config import LatentConfig, LatentOptions
from anyorder.families.latentmdm.net import LatentNet
from anyorder.families.replay_segments import (
    SegmentMoment,
    SegmentReader,
    flex_latent_reader,
    latent_reader,
)
from anyorder.measure.placement_scores import Dense, place
from anyorder.nets.oracles import SegmentOracle
from anyorder.nets.shapes import TransformerConfig
from anyorder.process.noise import key_of
from anyorder.trace import Event, Ghost, Trace
from anyorder.vocab import Vocab

VOCAB = Vocab.words(list("abcdefgh"))
EOS, L_SEG, SLOTS = VOCAB.eos_id, 5, 6
SHAPE = TransformerConfig(
    vocab_size=VOCAB.size, width=16, layers=2, heads=2, kv_heads=2, head_width=8, mlp_width=32
)
CANVASES = [
    SegmentCanvas((0, 1, 2), (None,) * SLOTS),
    SegmentCanvas((3,), (None,) * 4),
    SegmentCanvas((0, 1, 2, 4, 5), (None,) * SLOTS),
]


def lively(net: Any, strength: float = 1.5) -> Any:
    """Weights large enough that posteriors and candidates differ from step to step."""
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            noise = torch.Generator().manual_seed(number)
            scale = strength / parameter.shape[-1] ** 0.5
            parameter.add_(scale * torch.randn(parameter.shape, generator=noise))
    return net.eval()


@pytest.fixture(scope="module")
def net() -> LatentNet:
    config = LatentConfig(SHAPE, encoder_layers=1, decoder_layers=1, slots=SLOTS, segment_length=5)
    return lively(LatentNet(config, seed=1))


@pytest.fixture(scope="module")
def flex_net() -> FlexLatentNet:
    latent = LatentConfig(
        replace(SHAPE, time_modulated=True),
        encoder_layers=1,
        decoder_layers=1,
        slots=SLOTS,
        segment_length=L_SEG,
        empty="none",
    )
    net = lively(FlexLatentNet(FlexLatentConfig(latent), seed=2), 0.8)
    with torch.no_grad():
        net.gap.outer.bias.fill_(1.2)
    return net


def traced(canvas: Any, row: Decoded, number: int = 0) -> Trace:
    return Trace.from_tokens(
        VOCAB,
        row.token_ids,
        prompt_ids=canvas.ids[: canvas.prompt_length],
        insert_step=row.insert_step,
        reveal_step=row.reveal_step,
        steps=row.steps,
        log_prob=np.asarray(row.log_prob),
        segment=np.asarray(row.segment),
        score=np.asarray(row.score),
        candidates=row.candidates,
        sample=number,
    )


def sampled(
    decoder: Any, net: Any, canvases: Sequence[Any], options: Any
) -> tuple[list[Trace], list[Replay]]:
    """Traces, and replays of all their canvases."""
    keys = [key_of(5, number) for number in range(len(canvases))]
    rows = decoder.decode(net, VOCAB, canvases, keys, options)
    traces = [traced(*each) for each in zip(canvases, rows, range(len(rows)), strict=True)]
    replays = [
        whole(trace, canvas=canvas, key=key)
        for trace, canvas, key in zip(traces, canvases, keys, strict=True)
    ]
    return traces, replays


def drawn(traces: Sequence[Trace]) -> int:
    """Tokens that the sampler drew."""
    return sum(
        int((~np.isnan(trace.log_prob)).sum()) for trace in traces if trace.log_prob is not None
    )


def check_agreement(reader: SegmentReader, replays: Sequence[Replay], batch: int = 4) -> int:
    """Committed probabilities are those of the trace; how many were compared."""
    compared = 0
    for moment, found in placed_by(reader, replays, batch):
        assert np.log(found.committed) == pytest.approx(moment.log_prob, abs=1e-4)
        compared += len(moment.committed)
    return compared


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("policy", ["average", "minimum", "first", "left_to_right", "random"])
@pytest.mark.parametrize(("k", "tail"), [(1, "stop"), (2, "keep"), (2, "first")])
def test_committed_probabilities_are_those_of_the_trace(
    net: LatentNet, temperature: float, policy: str, k: int, tail: Any
) -> None:
    options = LatentOptions(policy=policy, k=k, tail=tail, temperature=temperature)
    traces, replays = sampled(latentmdm, net, CANVASES, options)
    # The ends that close segments are drawn too, but stand in no trace.
    assert check_agreement(latent_reader(net, VOCAB, options), replays) == drawn(traces) > 20


def plain(net: LatentNet, trace: Trace, step: int) -> dict[tuple[int, int], NDArray[np.float64]]:
    """(segment, place) -> posterior, of the canvas after `step` steps: one by one, no batches."""
    assert trace.segment is not None and trace.token_ids is not None
    assert trace.prompt_ids is not None and trace.reveal_step is not None
    ids = torch.tensor([trace.prompt_ids.tolist()])
    prompt = net.read(ids, torch.tensor([ids.shape[1]]))
    latents, later = [], {}
    for number in range(SLOTS):
        mine = trace.segment == number
        tokens = [token for token in trace.token_ids[mine].tolist() if token != EOS]
        if mine.any() and trace.reveal_step[mine][0] > step:
            latents.append(net.mask_vector)
            later[number] = (int(trace.reveal_step[mine][0]), tokens)
        elif tokens:
            latents.append(net.encode(torch.tensor([tokens]), torch.tensor([len(tokens)]))[0])
        else:
            latents.append(net.empty_vector)
    conditions = net.conditions(prompt, torch.stack(latents)[None])[0]
    following = min((reveal for reveal, _ in later.values()), default=0)
    assert trace.log_prob is not None
    found = {}
    for number, (reveal, tokens) in later.items():
        known = ~np.isnan(trace.log_prob[trace.segment == number]).any()
        told = [*tokens, EOS] if reveal == following and known else None
        text: list[int] = []
        while len(text) < L_SEG and EOS not in text:
            before = torch.tensor([text], dtype=torch.int64)
            logits = net.head(net.decode_states(conditions[number][None], before)[0, -1])
            for token in (VOCAB.mask_id, VOCAB.pad_id, VOCAB.bos_id):
                if token is not None:
                    logits[token] = -torch.inf
            found[number, len(text)] = logits.double().softmax(0).numpy()
            text.append(int(logits.argmax()) if told is None else told[len(text)])
    return found


@torch.no_grad()
def test_latentmdm_equals_a_plain_computation(net: LatentNet) -> None:
    options = LatentOptions(temperature=1.0)
    traces, replays = sampled(latentmdm, net, CANVASES, options)
    results = placed_by(latent_reader(net, VOCAB, options), replays)
    by_sample = iter([trace for trace in traces for _ in range(trace.steps or 0)])
    for (moment, found), trace in zip(results, by_sample, strict=True):
        expected = plain(net, trace, moment.step)
        positions = [number * L_SEG + at for number, at in expected]
        source = Dense.of(positions, np.stack(list(expected.values())))
        right = place(source, found.commits)
        assert found.tokens.tolist() == right.tokens.tolist()
        for name in ("mass", "loc", "entropy", "k_loc"):
            ours, theirs = (getattr(each.measures, name) for each in (found, right))
            assert ours == pytest.approx(theirs, abs=1e-4)
        assert found.localisation == pytest.approx(right.localisation, abs=1e-4)
        assert moment.open == len({number for number, _ in expected})


def test_at_temperature_0_the_texts_are_the_candidates_of_the_sampler(net: LatentNet) -> None:
    options = LatentOptions(candidates=True)
    traces, replays = sampled(latentmdm, net, CANVASES, options)
    reader = latent_reader(net, VOCAB, options)
    differ = 0
    for trace, moments in zip(traces, reader.moments(replays), strict=True):
        sources = dict(reader.posteriors(moments, 3))
        for number, moment in enumerate(moments):
            offered = {c.segment: c for c in trace.candidates or () if c.step == moment.step + 1}
            lengths = {n: min(L_SEG, len(c.token_ids or ()) + 1) for n, c in offered.items()}
            expected = [n * L_SEG + at for n, length in lengths.items() for at in range(length)]
            assert sources[number].positions.tolist() == expected
            final = {slot.number: slot.ids for slot in moment.slots if slot.open}
            differ += sum(offered[n].token_ids != ids for n, ids in final.items())
    assert differ > 5  # so that not the final texts were read


def test_by_hand() -> None:
    """Two slots: "ab" then "c", or "a" then "d"; what the oracle knows needs no machine."""
    a, b, c, d = range(4)
    oracle: Any = SegmentOracle({((a, b), (c,)): 0.75, ((a,), (d,)): 0.25}, EOS, VOCAB.size)
    trace = Trace.from_tokens(
        VOCAB,
        [a, d],
        prompt_ids=[7],
        insert_step=[0, 0],
        reveal_step=[2, 1],
        log_prob=np.log([1.0, 0.25]),
        segment=np.array([0, 1]),
    )
    (first, found), (second, last) = placed_by(latent_reader(oracle, VOCAB), [whole(trace)])
    # Slot 0 is likely "ab" and EOS; slot 1 is committed to "d" and EOS. L_seg is 3.
    assert (first.committed.tolist(), first.tokens.tolist()) == ([3], [d])
    masses = dict(zip(found.tokens.tolist(), found.measures.mass.tolist(), strict=True))
    # EOS: after "a" 0.25, after "ab" 1, after "d" 1.
    assert masses == pytest.approx({EOS: 2.25, a: 1.0, b: 0.75, c: 0.75, d: 0.25}, abs=1e-6)
    assert found.tokens[:2].tolist() == [EOS, a]
    assert found.measures.loc[0] == pytest.approx(1 / 2.25)
    assert found.measures.k_loc[0] == pytest.approx(2 / 2.25)
    assert found.localisation == pytest.approx([1.0])
    assert found.profiles[0][0].tolist() == [2, 4, 1]
    # Once "d" is known, slot 0 can only be "a".
    assert (second.committed.tolist(), second.tokens.tolist()) == ([0], [a])
    assert last.tokens.tolist() == [a, EOS]
    assert last.measures.mass == pytest.approx([1.0, 1.0])


FROZEN = [
    SegmentCanvas((0, 1), ((4, 5), (2,), None, (3, 3), None)),
    SegmentCanvas((0, 1), (None, None, (1, 2, 3, 4, 5), None)),
    SegmentCanvas((6,), ((4,), None, (), None)),
]


def test_segments_that_are_frozen(net: LatentNet) -> None:
    options = LatentOptions(temperature=1.0, tail="keep")
    traces, replays = sampled(latentmdm, net, FROZEN, options)
    reader = latent_reader(net, VOCAB, options)
    assert check_agreement(reader, replays) == drawn(traces) > 8
    moments = reader.moments(replays)
    assert [[slot.number for slot in each[0].slots] for each in moments] == [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3],
        [0, 1, 3],  # a frozen empty one stands in no trace
    ]
    assert moments[0][0].prompt == (0, 1)
    alone = replace(replays[0], canvas=None)
    with pytest.raises(ValueError, match="begins with segment 2, so some were given"):
        reader.moments([alone])
    other = replace(replays[0], canvas=replace(FROZEN[0], prompt=(0, 2)))
    with pytest.raises(ValueError, match="did not begin with the canvas"):
        reader.moments([other])


def test_batched_equals_alone(net: LatentNet) -> None:
    options = LatentOptions(temperature=1.0)
    _, replays = sampled(latentmdm, net, CANVASES, options)
    reader = latent_reader(net, VOCAB, options)
    together, alone = (placed_by(reader, replays, batch) for batch in (32, 1))
    for (_, left), (_, right) in zip(together, alone, strict=True):
        assert left.tokens.tolist() == right.tokens.tolist()
        assert left.measures.mass == pytest.approx(right.measures.mass, abs=1e-4)
        assert left.localisation == pytest.approx(right.localisation, abs=1e-4)


def test_one_call_serves_many_canvases_and_the_head_runs_in_pieces(
    net: LatentNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, replays = sampled(latentmdm, net, CANVASES, LatentOptions())
    reader = latent_reader(net, VOCAB)
    calls: list[int] = []
    headed: list[int] = []
    conditions, head = net.conditions, net.head

    def counted(prompt: Any, latents: Tensor, *rest: Any) -> Tensor:
        calls.append(len(latents))
        return conditions(prompt, latents, *rest)

    def seen(states: Tensor) -> Tensor:
        headed.append(len(states))
        return head(states)

    monkeypatch.setattr(net, "conditions", counted)
    at_once = placed_by(reader, replays, 100)
    assert calls == [len(at_once)]
    monkeypatch.setattr(replayer, "HEAD_BUDGET", 2 * VOCAB.size)
    monkeypatch.setattr(replayer, "KEPT_BUDGET", 3 * VOCAB.size)
    monkeypatch.setattr(net, "head", seen)
    moments = [moment for each in reader.moments(replays) for moment in each]
    for number, source in reader.posteriors(moments, 100):
        headed.clear()
        mass = source.mass()
        assert max(headed) <= 2 and sum(headed) == len(source.positions)
        assert source.profile(np.arange(VOCAB.size)).sum(axis=0) == pytest.approx(mass, abs=1e-5)
        kept = 1 if len(source.positions) <= 3 else 2
        assert sum(headed) == kept * len(source.positions)
        found = at_once[number][1]
        assert mass[found.tokens] == pytest.approx(found.measures.mass, abs=1e-5)


def test_only_segments_inside_are_read(net: LatentNet) -> None:
    (trace, *_), (replay, *_) = sampled(latentmdm, net, CANVASES, LatentOptions(tail="keep"))
    assert trace.segment is not None and trace.steps is not None
    inside = np.zeros(len(trace.segment), dtype=bool)
    inside[np.flatnonzero(trace.segment == 1)[-1]] = True  # one token is enough
    reader = latent_reader(net, VOCAB)
    results = placed_by(reader, [replace(replay, inside=inside)])
    reveal = int(trace.timing()[0].max(initial=0) or trace.timing()[1][trace.segment == 1][0])
    assert [moment.step for moment, _ in results] == list(range(reveal))
    for moment, found in results:
        assert moment.open == SLOTS - moment.step
        positions = {int(each) for places, _ in found.profiles for each in places}
        assert positions <= set(range(L_SEG, 2 * L_SEG))
        assert bool(len(moment.committed)) == (moment.step == reveal - 1)


def test_mode_compat_needs_candidates_where_it_erased(net: LatentNet) -> None:
    erased = 0
    for number in range(3, 40):
        if erased:
            break
        canvases = [replace(CANVASES[0], prompt=(number % 8, number // 8))]
        for k in (1, 2):
            told, bare = (
                LatentOptions(
                    mode="compat", candidates=recorded, k=k, policy="random", temperature=1.0
                )
                for recorded in (True, False)
            )
            traces, replays = sampled(latentmdm, net, canvases, told)
            reader = latent_reader(net, VOCAB, told)
            trace = traces[0]
            assert trace.segment is not None and trace.candidates is not None
            gone = [
                each
                for each in trace.candidates
                if each.taken and trace.timing()[1][trace.segment == each.segment][0] > each.step
            ]
            for moment, found in placed_by(reader, replays):
                said = ~np.isnan(moment.log_prob)
                assert np.log(found.committed[said]) == pytest.approx(
                    moment.log_prob[said], abs=1e-4
                )
                assert (~said).sum() == sum(
                    max(1, len(each.token_ids or ()))
                    for each in gone
                    if each.step == moment.step + 1
                )
            forgotten = [replace(replays[0], trace=replace(trace, candidates=None))]
            if gone:
                erased += 1
                with pytest.raises(ValueError, match=r"revealed was erased later.*candidates=True"):
                    latent_reader(net, VOCAB, bare).moments(forgotten)
            elif k == 1:
                latent_reader(net, VOCAB, bare).moments(forgotten)
    assert erased


GROWING = [
    GrowingSegments((0, 1, EOS), (), (True,), SLOTS),
    GrowingSegments((5, EOS), ((1, 2), (3,)), (False, True, True), 3),
    GrowingSegments((EOS,), ((4,),), (True, False), 4),
]


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 12, "temperature": 1.0},
        {"steps": 12, "policy": "random"},
        {"clock": "events", "temperature": 1.0},
        {"clock": "events", "policy": "left_to_right", "insertion_temperature": 0.5},
    ],
    ids=str,
)
def test_flexlatent_is_asked_at_the_times_of_the_sampler(
    flex_net: FlexLatentNet, options: dict[str, Any]
) -> None:
    chosen = FlexLatentOptions(**options)
    traces, replays = sampled(flexlatent, flex_net, GROWING, chosen)
    reader = flex_latent_reader(flex_net, VOCAB, chosen)
    assert check_agreement(reader, replays) == drawn(traces) > 10
    keys = [replay.key or 0 for replay in replays]
    rows = flexlatent.decode(flex_net, VOCAB, GROWING, keys, chosen)
    for row, moments in zip(rows, reader.moments(replays), strict=True):
        assert row.times == pytest.approx([moment.time for moment in moments], abs=1e-12)
    for moment, found in placed_by(reader, replays):
        assert moment.time is not None
        ends = found.tokens.tolist().index(EOS) if EOS in found.tokens else None
        if ends is not None:  # no segment is empty
            assert all(int(at) % L_SEG for at in found.profiles[ends][0])


def test_flexlatent_that_inserts_nothing(flex_net: FlexLatentNet) -> None:
    canvas = GrowingSegments((0, EOS), ((1, 2),), (False, True), 3)
    trace = Trace.from_tokens(
        VOCAB,
        [],
        prompt_ids=canvas.ids,
        insert_step=[],
        reveal_step=[],
        steps=2,
        segment=np.zeros(0, dtype=np.int32),
    )
    reader = flex_latent_reader(flex_net, VOCAB, FlexLatentOptions(steps=2))
    ((first, second),) = reader.moments([whole(trace, canvas=canvas)])
    assert [slot[:3] for slot in first.slots] == [(0, (1, 2), False)] and first.prompt == (0, EOS)
    assert (second.time or 0) > (first.time or 0) and second.open == 0
    assert list(reader.posteriors([first, second])) == []


def test_flexlatent_of_another_model_is_refused(flex_net: FlexLatentNet) -> None:
    chosen = FlexLatentOptions(clock="events", temperature=1.0)
    _, replays = sampled(flexlatent, flex_net, GROWING, chosen)
    other = lively(FlexLatentNet(flex_net.config, seed=9), 1.5)
    with pytest.raises(ValueError, match=r"in step .* this model reveals .*: give the model"):
        flex_latent_reader(other, VOCAB, chosen).moments(replays)
    reader = flex_latent_reader(flex_net, VOCAB, chosen)
    with pytest.raises(ValueError, match="its noise: sample it again, or give the canvas"):
        reader.moments([replace(replays[0], key=None)])
    shifted = replace(GROWING[1], segments=((1, 2), (4,)))
    with pytest.raises(ValueError, match="did not begin with the canvas"):
        reader.moments([replace(replays[1], canvas=shifted)])
    with pytest.raises(ValueError, match=r"flexlatent reads .* such as steps=128"):
        flex_latent_reader(flex_net, VOCAB)
    few = FlexLatentOptions(steps=2)
    with pytest.raises(ValueError, match="but its options make 3 at the most"):
        flex_latent_reader(flex_net, VOCAB, few).moments(replays)


def test_traces_that_are_refused(net: LatentNet) -> None:
    (trace, *_), (replay, *_) = sampled(latentmdm, net, CANVASES, LatentOptions())
    reader = latent_reader(net, VOCAB)
    assert trace.segment is not None and trace.reveal_step is not None

    def refused(match: str, **changes: Any) -> None:
        with pytest.raises(ValueError, match=match):
            list(reader.posteriors(_flat(reader, replace(replay, trace=replace(trace, **changes)))))

    refused("does not name the segment of each token", segment=None)
    refused("does not name the segment", segment=trace.segment - 1)
    several = trace.reveal_step.copy()
    several[0] -= 1
    refused("the tokens of segment 0 have different steps", reveal_step=several)
    event = Event(0, 0, 1, "b")
    refused("has tokens that changed, and a segment is inserted, revealed", events=(event,))
    masked, inside = Ghost(-1, 0, None, 1, None, None), Ghost(0, 0, 0, 1, 1, "b")
    refused("that step 1 deleted were not revealed as one", ghosts=(masked,))
    refused("has deleted tokens inside a segment", ghosts=(inside,))
    refused("the slots of this model stay", ghosts=(inside._replace(after=-1),))
    with pytest.raises(ValueError, match="holds strings, not token ids"):
        reader.moments([Replay(STRINGS, [0], np.ones(2, dtype=bool))])
    few = LatentNet(replace(net.config, slots=2), seed=0).eval()
    with pytest.raises(ValueError, match="and this model 2 slots"):
        placed_by(latent_reader(few, VOCAB), [replay])


def _flat(reader: SegmentReader, replay: Replay) -> list[SegmentMoment]:
    return [moment for each in reader.moments([replay]) for moment in each]


def test_logits_that_are_not_numbers(net: LatentNet) -> None:
    _, replays = sampled(latentmdm, net, CANVASES[:1], LatentOptions())
    broken = LatentNet(net.config, seed=0).eval()
    with torch.no_grad():
        broken.embed.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="not finite"):
        placed_by(latent_reader(broken, VOCAB), replays)
