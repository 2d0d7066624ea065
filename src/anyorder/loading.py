"""From a name to a model: our own folders, shipped models, published checkpoints, hub ids.

    name       a folder, a shipped name, or a hub id (owner/name, owner/name@revision)
    Opened     family, card, vocabulary and digest; the network on the meta device, without memory;
               and where each of its tensors is stored, all checked
    Model      the network with its weights, copied tensor by tensor in the wanted precision

A folder whose config.json has our `format` is ours (model.py lists its files). Any other is a
published checkpoint in one of the formats of hub/formats.py. No code of a checkpoint is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from anyorder.checks import did_you_mean
from anyorder.families.family import Family, find_family
from anyorder.files import sha256_of
from anyorder.hub.files import (
    INDEX,
    SINGLE,
    SafetensorFiles,
    Store,
    TensorPickle,
    fetch,
    is_hub_id,
    open_folder,
)
from anyorder.hub.vocab import open_vocab
from anyorder.hub.weights import (
    OUR_KEY,
    PublishedWeights,
    fill,
    is_real,
    match_published,
    on_meta,
    open_own,
    shared,
    usable_device,
)
from anyorder.model import CONFIG_FILE, FORMAT, SHIPPED, Card, Model, checked_config, shipped_folder
from anyorder.nets.shapes import as_record
from anyorder.vocab import VOCABULARY_FILE, Vocab

if TYPE_CHECKING:
    from anyorder.hub.formats import Layout, Published

PUBLISHED = {"model_type", "architectures"}
"""Fields of other libraries' config.json, which ours does not have."""
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class ModelShape:
    """What a model is, without its weights."""

    name: str
    config: Any
    vocab: Vocab


@dataclass(frozen=True)
class Opened:
    """A checked model whose weights are not in memory yet."""

    name: str
    family: Family
    card: Card
    vocab: Vocab
    digest: str
    """The value of `Model.digest`."""
    net: nn.Module
    """On the meta device."""
    weights: PublishedWeights

    @property
    def config(self) -> Any:
        """The shape of the network."""
        return self.net.config

    def tensor(self, name: str) -> Tensor:
        """The whole tensor of one of our parameter names, on the CPU, as stored."""
        return self.weights.tensor(name)

    def model(self, device: str = "cpu", dtype: str | torch.dtype | None = None) -> Model:
        """A model with a new network and its weights; `net` stays on the meta device."""
        place, kind = usable_device(device), self._kind(device, dtype)
        network = self.family.network
        net = on_meta(lambda: network.build(network.read(self.card.net)), Path(self.name))
        fill(net, self.weights, device=place, dtype=kind)
        if not is_real(net):
            # A registered family may compute constants in its constructor; meta has no values.
            net = network.build(network.read(self.card.net)).to(kind)
            for names, tensor in shared(net):
                self.weights.copy(names[0], tensor)
        net.eval()
        model = Model(self.family, net, self.vocab, self.card, name=self.name, digest=self.digest)
        return model.to(device)

    def _kind(self, device: str, dtype: str | torch.dtype | None) -> torch.dtype:
        if dtype is None:
            # Half precision is slow or unsafe on many CPUs: only on request.
            on_cpu = torch.device(device).type == "cpu"
            return torch.float32 if on_cpu else self.weights.stored_kind()
        kind = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
        if kind is None or kind not in DTYPES.values():
            raise ValueError(f"dtype={dtype!r}: choose {' or '.join(DTYPES)}")
        return kind


def open_model(
    name: str, *, device: str, dtype: str | torch.dtype | None, family: str | None
) -> Model:
    """See `anyorder.load`."""
    model = open_weights(name, family=family).model(device, dtype)
    _check_computes(next(model.net.parameters()))
    return model


def _check_computes(weight: Tensor) -> None:
    """Refuse a precision in which this device has no matrix product."""
    one = weight.new_ones(1, 1)
    try:
        one @ one
    except RuntimeError as error:
        raise ValueError(
            f"dtype={str(weight.dtype).removeprefix('torch.')!r} is not computed on "
            f"{weight.device} ({str(error).splitlines()[0]}): choose float32"
        ) from None


def open_weights(name: str | Path, *, family: str | None = None) -> Opened:
    """Open and check a model without reading its weights."""
    folder = find_folder(str(name))
    record = _read_json(folder / CONFIG_FILE)
    if _is_published(record):
        return _open_published(str(name), folder, record, family)
    return _open_own(str(name), folder, record, family)


def open_shape(name: str) -> ModelShape:
    """The shape and the vocabulary of a model; of a hub id, no weights are fetched."""
    folder = find_folder(name, weights=False)
    record = _read_json(folder / CONFIG_FILE)
    if _is_published(record):
        card, vocab, _ = _read_published(folder, record, _stored_names(folder), None)
    else:
        card, vocab = _read_card(folder / CONFIG_FILE, record), Vocab.load(folder)
    return ModelShape(name, checked_config(card, vocab), vocab)


def _stored_names(folder: Path) -> Collection[str]:
    """The names of the tensors, as far as they are known without the weights."""
    if (folder / INDEX).is_file() and not (folder / SINGLE).is_file():
        return dict(_read_json(folder / INDEX).get("weight_map") or {})
    return open_folder(folder).shapes if (folder / SINGLE).is_file() else ()


def _is_published(record: Any) -> bool:
    return isinstance(record, dict) and "format" not in record and bool(PUBLISHED & record.keys())


def find_folder(name: str, *, weights: bool = True) -> Path:
    """The folder of a model: the name itself, a shipped one, or the cached copy of a hub id.

    `weights`: whether those of a hub id are fetched.
    """
    shipped = shipped_names()
    packed = shipped_folder(name)
    ours = packed.is_relative_to(SHIPPED) and packed.relative_to(SHIPPED).as_posix() in shipped
    for folder in (Path(name), packed):
        # A folder that is no model must not hide a shipped model of the same name.
        if folder.is_dir() and (not ours or (folder / CONFIG_FILE).is_file()):
            trained = (folder / SINGLE).is_file() or (folder / INDEX).is_file()
            if (folder / "checkpoints").is_dir() and not trained:
                raise ValueError(f"the training in {folder} is unfinished: repeat its command")
            if not (folder / CONFIG_FILE).is_file():
                raise ValueError(
                    f"{folder} is not a model folder ({CONFIG_FILE} is missing): name a folder "
                    "written by `anyorder train`, or a published checkpoint"
                )
            return folder
    if is_hub_id(name):
        return fetch(name, weights=weights)
    # Of names with a slash the whole one may be meant (trails/mdn), or the last part (tiny/mdn).
    wholes = [each for each in shipped if ("/" in each) == ("/" in name)]
    plain = [each for each in shipped if "/" not in each]
    if close := did_you_mean(name, wholes) or did_you_mean(name.rpartition("/")[2], plain):
        raise ValueError(f"no model {name!r}{close}")
    raise ValueError(
        f"no model {name!r}: name a shipped one ({', '.join(shipped)}), a folder written by "
        "`anyorder train` (for example `anyorder train tiny/mdm --out runs/mdm`), or a published "
        "checkpoint (a folder or a hub id)"
    )


def shipped_names() -> list[str]:
    """The names of the shipped models: those of stories, then those of trails."""
    found = (card.parent.relative_to(SHIPPED) for card in SHIPPED.rglob(CONFIG_FILE))
    return [path.as_posix() for path in sorted(found, key=lambda path: (len(path.parts), path))]


def find_vocab(name: str) -> Vocab:
    """The vocabulary of a model or of a tokenizer's folder.

    `qwen2:NAME` chooses the special tokens; vocab.SPECIALS lists the words before the colon.
    """
    preset, colon, rest = name.rpartition(":")
    if not colon or Path(name).is_dir():
        preset, rest = "", name
    folder = Path(rest)
    if not folder.is_dir():
        folder = fetch(rest) if is_hub_id(rest) else find_folder(rest)
    return open_vocab(folder, preset or None)


def _open_own(name: str, folder: Path, record: Any, family: str | None) -> Opened:
    card = _read_card(folder / CONFIG_FILE, record)
    if family is not None and card.family != family:
        raise ValueError(f"{folder} holds a model of family {card.family!r}, not {family!r}")
    store = open_folder(folder, what="finish its training, or name another model")
    vocab = Vocab.load(folder)
    found = find_family(card.family)
    net = on_meta(lambda: found.network.build(checked_config(card, vocab)), folder / CONFIG_FILE)
    weights = open_own(store, net, f"a model of family {card.family}")
    digest = _digest(card, [sha256_of(path) for path in store.paths])
    return Opened(name, found, card, vocab, digest, net, weights)


def _open_published(
    name: str, folder: Path, record: Mapping[str, Any], family: str | None
) -> Opened:
    from anyorder.hub.formats import find_layout

    files = open_folder(folder)
    card, vocab, published = _read_published(folder, record, files.shapes, family)
    found = find_family(card.family)
    config = checked_config(card, vocab)
    net = on_meta(lambda: found.network.build(config), folder / CONFIG_FILE)
    layout = find_layout(published.layout)
    stores = _stores(layout, published.config, files, folder)
    weights = match_published(layout.head, stores, net)
    digest = _digest(card, [sha256_of(path) for path in _files_of(stores)])
    return Opened(name, found, card, vocab, digest, net, weights)


def register_formats() -> None:
    """Import the published formats of the families, for their effect."""
    import anyorder.families.block.published
    import anyorder.families.flexmdm.published
    import anyorder.families.mdm.published  # noqa: F401


def _read_published(
    folder: Path, record: Mapping[str, Any], names: Collection[str], family: str | None
) -> tuple[Card, Vocab, Published]:
    """The card and the vocabulary of a folder with tensors of these names, and its format."""
    from anyorder.hub.formats import Folder, read_published

    register_formats()
    ours = _read_ours(folder, record)
    published = read_published(Folder(folder, record, names), family or ours.get("family"))
    card = Card(
        published.family,
        as_record(published.config),
        ours.get("max_new_tokens", published.max_new_tokens),
        ours.get("max_length", published.max_length),
        ours.get("recipe", {}),
    )
    vocab = open_vocab(folder)
    if (folder / VOCABULARY_FILE).is_file():
        _check_ids(folder, vocab, record)
    return card, vocab, published


def _stores(
    layout: Layout, config: Any, files: SafetensorFiles, folder: Path
) -> dict[Store, dict[str, str]]:
    """File -> our names of the tensors in it, with the file's names."""
    names, apart = layout.names(config), layout.apart(config)
    if not apart:
        return {files: names}
    others = {ours: theirs for ours, theirs in names.items() if ours not in apart}
    # The smaller store first, while little else is in memory.
    return {TensorPickle(folder / layout.apart_file): apart, files: others}


def _files_of(stores: Mapping[Store, Any]) -> list[Path]:
    return [path for store in stores for path in getattr(store, "paths", [store.where])]


def _digest(card: Card, weights: list[str]) -> str:
    # Family and shape are included, because the same weights compute something else with others.
    about = [card.family, card.net, weights[0] if len(weights) == 1 else weights]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _check_ids(folder: Path, vocab: Vocab, record: Mapping[str, Any]) -> None:
    """Refuse a vocabulary file of ours whose special ids differ from config.json."""
    for role, id in {"mask": vocab.mask_id, "eos": vocab.eos_id, "pad": vocab.pad_id}.items():
        stated = record.get(f"{role}_token_id")
        if stated is not None and stated != id:
            raise ValueError(
                f"{folder}: {role} is {stated} in config.json and {id} in {VOCABULARY_FILE}: "
                "restore them from one model"
            )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is truncated or not JSON ({error}): restore it") from None


def _read_ours(folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `anyorder export` added to a config.json of a published format."""
    ours = {} if record.get(OUR_KEY) is None else record[OUR_KEY]
    kinds = {"family": str, "max_new_tokens": int, "max_length": int | None, "recipe": dict}
    if not isinstance(ours, dict) or not all(
        isinstance(ours[name], kind) for name, kind in kinds.items() if name in ours
    ):
        raise ValueError(f"{folder / CONFIG_FILE}: {OUR_KEY} is not what export wrote: restore it")
    return ours


def _read_card(path: Path, record: Any) -> Card:
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(
            f"{path} is neither a model of format {FORMAT}, which this version trains, nor the "
            "config.json of a published checkpoint (model_type is missing)"
        )
    names = {field.name for field in fields(Card)}
    if set(record) != names:
        wrong = sorted(set(record) ^ names)
        raise ValueError(f"{path} lacks or does not know {', '.join(wrong)}: restore the file")
    kinds = {"family": str, "net": dict, "recipe": dict, "max_new_tokens": int}
    for field, kind in kinds.items():
        if not isinstance(record[field], kind):
            raise ValueError(f"{path}: {field} is no {kind.__name__}: restore the file")
    if not isinstance(record["max_length"], int | None):
        raise ValueError(f"{path}: max_length is neither a number nor null: restore the file")
    if not isinstance(record["recipe"].get("data", {}), dict):
        raise ValueError(f"{path}: recipe.data is no dict: restore the file")
    return Card(**record)
