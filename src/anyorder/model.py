"""A model: a network, its vocabulary and its family, ready to sample.

`load` opens a model folder; `wrap` takes a network of another library. Both give a `Model`, whose
`sample` returns traces. A model folder holds

    config.json         family, network shape, context length, the recipe that made it
    model.safetensors   weights
    vocabulary.json     the vocabulary (and tokenizer.json for BPE, chat_template.jinja for chats)

Not here: reading folders and published checkpoints (loading.py); run folders, progress bars and
resumption (apps/sample.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from anyorder.checks import check_rows, is_whole
from anyorder.decode.canvas import (
    Canvas,
    GrowingCanvas,
    Sizes,
    Watcher,
    check_lengths,
    has_gaps,
    prefix_of,
)
from anyorder.decode.loop import TimedWatcher, counted_from
from anyorder.families.descriptions import WRAPPED
from anyorder.families.family import Family, find_family
from anyorder.files import replacing
from anyorder.hub.weights import save_weights, usable_device
from anyorder.nets.denoiser import Barred, as_denoiser
from anyorder.nets.prompts import check_prompt
from anyorder.nets.shapes import ends_of
from anyorder.process.noise import key_of
from anyorder.trace import Trace
from anyorder.trace.events import spelled, spelled_ghosts
from anyorder.vocab import Vocab
from anyorder.vocab.chat import AnyPrompt, ChatMessages, ChatPrompt, ChatTemplate

CONFIG_FILE, WEIGHTS_FILE, FORMAT = "config.json", "model.safetensors", 1
SHIPPED = Path(__file__).parent / "pretrained"


def shipped_folder(name: str) -> Path:
    """The folder of a shipped model of this name: `mdm`, or `tiny/mdm` after its recipe."""
    return SHIPPED / name.removeprefix("tiny/")


@dataclass(frozen=True)
class Request:
    """One sample to make."""

    task_id: str
    sample: int
    prompt: str
    """The text before the first slot."""
    canvas: Canvas | GrowingCanvas
    noise: str
    """With the seed and the sample number, the key of the noise."""
    entry_point: str | None = None


@dataclass(frozen=True)
class Card:
    """The content of config.json."""

    family: str
    net: dict[str, Any]
    """The fields of the network's configuration; empty for a wrapped network."""
    max_new_tokens: int
    """Default number of free slots in a canvas, as in training."""
    max_length: int | None
    """Longest sequence the model was trained on; None: not known."""
    recipe: dict[str, Any]
    """The resolved recipe that trained it; empty for a wrapped network."""
    format: int = FORMAT


class Model:
    """A network with its vocabulary and family, ready to sample."""

    def __init__(
        self, family: Family, net: Any, vocab: Vocab, card: Card, *, name: str, digest: str
    ) -> None:
        self.family, self.net, self.vocab, self.card = family, net, vocab, card
        self.name, self.digest = name, digest
        self.module: Any = net
        """The network that `to` moves; `net` may be a wrapper around it."""
        self.config = family.network.read(card.net) if card.net else None
        self.device = torch.device("cpu")

    def __repr__(self) -> str:
        return f"Model({self.name!r}, family={self.family.name!r}, device={str(self.device)!r})"

    @property
    def trained_on(self) -> dict[str, Any]:
        """The data part of the recipe that trained it; empty if unknown."""
        recipe = self.card.recipe
        dials = {"trails": recipe["trails"]} if "trails" in recipe else {}
        return {**recipe.get("data", {}), **dials}

    def to(self, device: str | torch.device) -> Model:
        """Move the network; sampling happens there."""
        self.device = usable_device(str(device))
        if isinstance(self.module, torch.nn.Module):
            self.module.to(self.device)
        return self

    def sample(
        self,
        prompts: AnyPrompt | Sequence[AnyPrompt],
        *,
        samples: int = 1,
        seed: int = 0,
        batch: int = 32,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        watch: Watcher | None = None,
        **options: Any,
    ) -> list[Trace]:
        """Traces of `samples` texts for each prompt, prompt by prompt.

        A prompt is a text, or what `chat` returns. A text with `<fill>` or `<fill:12>` marks is
        filled only there. `options` are the family's: `policy`, `steps`, `temperature`, ... (see
        its docs page). The noise of a sample depends on (seed, prompt, sample number). `watch` is
        called with the rows after every step, numbered like the traces; it may raise to stop.
        """
        _check_counts(batch=batch)
        check_seed(seed)
        sizes = {"max_new_tokens": max_new_tokens, "max_length": max_length}
        requests, chosen = self.prepare(prompts, samples=samples, **sizes, **options)
        return [
            trace
            for start in range(0, len(requests), batch)
            for part in [requests[start : start + batch]]
            for trace in self.decode(part, chosen, seed, watch=counted_from(start, watch))
        ]

    def prepare(
        self,
        prompts: AnyPrompt | Sequence[AnyPrompt],
        *,
        samples: int = 1,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        **options: Any,
    ) -> tuple[list[Request], Any]:
        """Check everything that `sample` needs; returns requests and resolved options."""
        _check_counts(samples=samples, max_new_tokens=max_new_tokens, max_length=max_length)
        texts = [prompts] if isinstance(prompts, AnyPrompt) else list(prompts)
        if not all(isinstance(text, AnyPrompt) for text in texts):
            raise ValueError("prompts are texts: decode ids with the vocabulary first")
        if not texts:
            return [], None
        chosen = self.choose(options, texts)
        check_lengths(texts, max_new_tokens)
        canvas_sizes = self.sizes(max_new_tokens, max_length, chosen)
        requests = [
            Request(f"prompt/{number}", sample, prefix_of(text), canvas, noise=noise)
            for number, text in enumerate(texts)
            for noise in [text if isinstance(text, str) else text.text]
            for canvas in [self.canvas(text, canvas_sizes)]
            for sample in range(samples)
        ]
        self.family.check([request.canvas for request in requests], chosen)
        return requests, chosen

    def chat(self, messages: ChatMessages, template: ChatTemplate | None = None) -> ChatPrompt:
        """The prompt of a conversation; unset: by the template of the model's folder.

        Messages are dicts with `role` and `content`. A last turn of the assistant is left open, and
        the model goes on with it.
        """
        chosen = template or self.vocab.chat
        if chosen is None:
            raise ValueError(f"{self.name} has no chat template: give template=")
        return chosen.prompts([messages], self.vocab)[0]

    def choose(self, given: Mapping[str, Any], texts: Sequence[AnyPrompt]) -> Any:
        """The resolved decoding options for these texts."""
        gaps = [has_gaps(text) for text in texts]
        if any(gaps) and "eos" not in given and "eos" in self.family.option_names():
            if not all(gaps):
                raise ValueError(
                    "prompts and texts with <fill> marks end differently: sample them apart, "
                    "or set eos"
                )
            # A gap of given length needs no end: an EOS in it would cut the text in two.
            given = {**given, "eos": "forbid"}
        chosen = self.family.choose({**given, **self.family.usual(self.net, given)})
        self.family.suits(self.net, chosen)
        return chosen

    def decode(
        self,
        requests: Sequence[Request],
        options: Any,
        seed: int,
        watch: Watcher | None = None,
    ) -> Iterator[Trace]:
        """Decode one batch. A sample depends on its own noise, not on the rest of the batch."""
        keys = [key_of(seed, request.noise, request.sample) for request in requests]
        canvases = [request.canvas for request in requests]
        started = time.perf_counter()
        timed = None if watch is None else TimedWatcher(watch)
        rows = self.family.decode(self.net, self.vocab, canvases, keys, options, self.device, timed)
        # Without the watcher's time: watching must not make a model look slower.
        seconds = time.perf_counter() - started - (timed.seconds if timed else 0)
        seconds /= max(1, len(requests))
        for request, row in zip(requests, rows, strict=True):
            yield Trace.from_tokens(
                self.vocab,
                row.token_ids,
                prompt_ids=request.canvas.ids[: request.canvas.prompt_length],
                insert_step=row.insert_step,
                reveal_step=row.reveal_step,
                steps=row.steps,
                events=spelled(self.vocab, row.changes) if row.changes else (),
                log_prob=row.log_prob,  # type: ignore[arg-type]
                segment=row.segment,  # type: ignore[arg-type]
                score=row.score,  # type: ignore[arg-type]
                candidates=row.candidates,
                ghosts=spelled_ghosts(self.vocab, row.ghosts) if row.ghosts else None,
                times=row.times,
                task_id=request.task_id,
                sample=request.sample,
                prompt=request.prompt,
                entry_point=request.entry_point,
                forwards=row.forwards,
                columns=row.columns,
                seconds=seconds,
                ties=row.ties,
                family=self.family.name,
                policy=policy_name(options),
                seed=seed,
            )

    @property
    def suffix(self) -> tuple[int, ...]:
        """What the network expects after every text; ours learn their ends as text."""
        return () if self.card.net else self.vocab.suffix_ids

    def canvas(self, text: AnyPrompt, sizes: Sizes | None = None) -> Any:
        """The canvas for a prompt, or for a text with `<fill>` marks."""
        data = self.trained_on
        known = self.family.answers == "canvas" and data.get("align") == "left"
        trained = data["canvas"] if known else None
        sizes = replace(sizes or self.sizes(), trained=trained, suffix=self.suffix)
        canvas = self.family.canvas(text, sizes, self.vocab, self.config)
        check_prompt(canvas.ids[: canvas.prompt_length], ends_of(self.config))
        return canvas

    def sizes(
        self, max_new_tokens: int | None = None, max_length: int | None = None, options: Any = None
    ) -> Sizes:
        """The sizes of a canvas; those that are not given are as in training."""
        if self.family.counts_segments:
            if max_new_tokens is not None or max_length is not None:
                raise ValueError(
                    f"{self.family.name} counts segments, not tokens: give slots instead of "
                    "max_new_tokens and max_length"
                )
            slots = getattr(options, "slots", None)
            return Sizes(None, None, slots=slots, prompt=self.card.max_length)
        # The published samplers have a total length only.
        total_only = max_length is not None or getattr(options, "mode", None) == "compat"
        return Sizes(
            new_tokens=self.card.max_new_tokens if max_new_tokens is None else max_new_tokens,
            length=self.card.max_length if max_length is None else max_length,
            only_length_told=max_new_tokens is None and total_only,
        )

    def save(self, folder: str | Path) -> None:
        """Write the model folder; the weights come last, so a folder with weights is complete."""
        folder = Path(folder)
        if not self.card.net:
            raise ValueError("a wrapped network is not ours to save: save it with its own library")
        folder.mkdir(parents=True, exist_ok=True)
        self.vocab.save(folder)
        with replacing(folder / CONFIG_FILE) as file:
            file.write(json.dumps(asdict(self.card), indent=2).encode() + b"\n")
        save_weights(folder / WEIGHTS_FILE, self.net, f"a model of family {self.family.name}")


def check_seed(seed: Any) -> None:
    """Refuse a seed that is not a whole number from 0 to 2^63 - 1."""
    if not is_whole(seed) or not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be a whole number from 0 to 2^63 - 1, not {seed!r}")


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if value is not None and (not is_whole(value) or value < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def policy_name(options: Any) -> str:
    """The policy that decides the order; left to right for a family without policies."""
    return str(getattr(options, "policy", "left_to_right"))


def build(card: Card, vocab: Vocab, *, name: str, seed: int = 0) -> Model:
    """A fresh model with random weights."""
    family = find_family(card.family)
    config = checked_config(card, vocab)
    net = family.network.build(config, seed=seed)
    return Model(family, net, vocab, card, name=name, digest="untrained")


def checked_config(card: Card, vocab: Vocab) -> Any:
    """The network's configuration, checked against its vocabulary and family."""
    family = find_family(card.family)
    config = family.network.read(card.net)
    backbone = getattr(config, "backbone", config)
    if backbone.vocab_size < vocab.size:
        raise ValueError(
            f"the network has {backbone.vocab_size} vocabulary rows, the vocabulary {vocab.size}: "
            "use the vocabulary that it was trained with"
        )
    if backbone.causal != family.causal:
        raise ValueError(f"family {family.name!r} needs net.causal={family.causal}")
    return config


def load(
    name: str | Path,
    *,
    device: str = "cpu",
    dtype: str | torch.dtype | None = None,
    family: str | None = None,
) -> Model:
    """Open a model folder, a shipped model or a published checkpoint (loading.py).

    `name` is a folder, a shipped name or a hub id. `family` requires one, or chooses if a
    checkpoint fits several. `dtype` is the precision of the weights; unset: float32 on the CPU,
    elsewhere as stored.
    """
    from anyorder.loading import open_model

    return open_model(str(name), device=device, dtype=dtype, family=family)


def _vocab_of(given: Any, module: Any) -> Vocab:
    if isinstance(given, Vocab):
        return given
    if not hasattr(given, "all_special_ids"):
        raise ValueError(
            "give the network's vocabulary as a Vocab, or its tokenizer of transformers, not a "
            f"{type(given).__name__}"
        )
    ends: list[int] = []
    for settings in (getattr(module, "config", None), getattr(module, "generation_config", None)):
        told = getattr(settings, "eos_token_id", None)
        ends += [] if told is None else told if isinstance(told, list) else [told]
    special = set(given.all_special_ids)
    return Vocab.from_transformers(given, ends=[id for id in dict.fromkeys(ends) if id in special])


def _longest(module: Any) -> int | None:
    """The most tokens that a network of `transformers` has positions for; None: not known."""
    limit = getattr(getattr(module, "config", None), "max_position_embeddings", None)
    if isinstance(module, torch.nn.Module) and isinstance(limit, int):
        for name, part in module.named_modules():
            # RoBERTa counts positions from behind the padding id on.
            if name.endswith("position_embeddings") and isinstance(part, torch.nn.Embedding):
                return limit if part.padding_idx is None else limit - part.padding_idx - 1
    return limit


def wrap(
    module: Any,
    vocab: Any,
    *,
    shift: bool = False,
    family: str = WRAPPED,
    max_new_tokens: int = 64,
    max_length: int | None = None,
    draw_specials: bool | None = None,
) -> Model:
    """Sample and trace a network of another library, such as any `transformers` masked LM.

    `vocab` is a `Vocab`, or the tokenizer of `transformers` that belongs to the network.
    `module(ids, attention_mask=...)` must give logits, or an object with `.logits`. A module that
    takes only ids works for prompts of equal length. `shift=True` is for networks whose logits at
    i - 1 predict token i (the Dream family). The module is switched to `.eval()`.

    What the vocabulary has as prefix and suffix ([CLS] text [SEP]) stands around every text.
    `draw_specials` is whether special tokens other than ends may be drawn. Unset: not with a
    tokenizer or its Vocab; and where a suffix ends the text, no special token at all.
    """
    chosen = find_family(family)
    vocab = _vocab_of(vocab, module)
    if draw_specials is None:
        draw_specials = not (vocab.of_tokenizer or vocab.suffix_ids)
    if chosen.causal or chosen.answers != "canvas":
        raise ValueError(f"{family} needs a network of our own: wrap masked models, as mdm")
    if isinstance(module, torch.nn.Module):
        module.eval()
    rows = getattr(getattr(module, "config", None), "vocab_size", None)
    if isinstance(rows, int):
        check_rows(rows, vocab.size)
    card = Card(family, {}, max_new_tokens, max_length or _longest(module), {})
    net = as_denoiser(module, shift=shift)
    if not draw_specials:
        net = Barred(net, vocab.special_ids.difference(() if vocab.suffix_ids else vocab.end_ids))
    model = Model(chosen, net, vocab, card, name=type(module).__name__, digest="wrapped")
    model.module = module
    if isinstance(module, torch.nn.Module):
        model.device = next((p.device for p in module.parameters()), model.device)
    model.choose({}, [])  # refuses a network that the family cannot use
    return model
