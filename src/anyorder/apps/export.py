"""`anyorder export` and `anyorder push`: a model as a folder that other libraries can read.

    config.json            in a published layout if one fits (hub/formats.py), otherwise our own;
                           `anyorder.load` reads both
    model*.safetensors     with that layout's names, in shards of bounded size with their index
    flexmdm_extras.pt      layout flexmdm only: the weights that it adds to its backbone
    vocabulary.json        the vocabulary (tokenizer.json and tokenizer_config.json for BPE)
    README.md              the model card: what the model is, its training, digests of all files

The folder is written under a temporary name and renamed when it is complete. The model card claims
only what the model folder says; a licence, for example, is for the owner to add.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyorder.apps.jobs import ExportOptions
from anyorder.checks import one_of, positive
from anyorder.files import TEMPORARY_SUFFIX, replacing, replacing_path, sha256_of, sync, write_json
from anyorder.hub import formats as layouts
from anyorder.hub.files import HubApi, push
from anyorder.hub.formats import can_hold, config_json, find_layout, layout_of, tokenizer_config
from anyorder.hub.weights import OUR_KEY, named_tensors, save_parts
from anyorder.loading import DTYPES, find_folder, open_weights, register_formats
from anyorder.model import CONFIG_FILE, Model

HEADING = """\
---
library_name: anyorder
pipeline_tag: text-generation
tags:
- anyorder
- {family}
- {kind}
---"""


def model_card(model: Model, layout: str, files: Mapping[str, str]) -> str:
    """The text of README.md; `files` maps the other files to their sha256."""
    family = model.family
    recipe = model.card.recipe
    count = sum(parameter.numel() for parameter in model.net.parameters())
    parts = [
        HEADING.format(family=family.name, kind="causal" if family.causal else "diffusion"),
        f"# A {family.name} model\n\n{family.summary[:1].upper()}{family.summary[1:]}.",
        _table(
            {
                "family": family.name,
                "parameters": f"{count:,}",
                "layout": "anyorder's own" if layout == OURS else find_layout(layout).title,
                "vocabulary": f"{model.vocab.size:,} ids, digest `{model.vocab.digest()}`",
                "longest sequence": model.card.max_length or "not known",
                "model digest before export": f"`{model.digest or 'none'}`",
            }
        ),
        '## Use\n\n```bash\nanyorder sample FOLDER_OR_ID --prompt "..."\n```\n\n'
        '```python\nimport anyorder\n\nmodel = anyorder.load("FOLDER_OR_ID")\n```\n\n'
        "Loading runs no code of this folder.",
        _training(recipe),
        "## Files\n\n" + _table({f"`{name}`": f"`{digest}`" for name, digest in files.items()}),
    ]
    return "\n\n".join(parts) + "\n"


def _training(recipe: Mapping[str, Any]) -> str:
    if not recipe:
        return "## Training\n\nNot recorded: the weights come from a published checkpoint."
    start = recipe.get("start")
    begun = f"It began with `{start}`. " if start else ""
    return (
        f"## Training\n\n{begun}The resolved recipe:\n\n```json\n"
        f"{json.dumps(recipe, indent=1, sort_keys=True)}\n```"
    )


def _table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


OURS = "anyorder"
"""The name of our own layout."""
README = "README.md"


def export(model: Model, out: Path, options: ExportOptions | None = None) -> dict[str, Any]:
    """Write a model as a folder to share; return its layout and files."""
    options = options or ExportOptions()
    if not model.card.net:
        raise ValueError("a wrapped network is not ours to save: save it with its own library")
    layout = _layout(model, options.layout)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists already: choose another --out, or remove it")
    positive("shard_gb", options.shard_gb)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    partial.mkdir()
    try:
        _write(model, partial, layout, options)
        files = {path.name: sha256_of(path) for path in sorted(partial.iterdir())}
        with replacing(partial / README) as file:
            file.write(model_card(model, layout, files).encode())
        # Data must be on disk before the name is: a crash must not leave a complete-looking folder.
        for path in (*partial.iterdir(), partial):
            sync(path)
        if out.exists():
            out.rmdir()
        os.rename(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sync(out.parent)
    return {"folder": str(out), "layout": layout, "files": files}


def export_to(name: str, out: Path, options: ExportOptions) -> dict[str, Any]:
    """Export a model by its name; unless `options` say more, in its stored precision."""
    return export(_as_stored(name), out, options)


def _as_stored(name: str) -> Model:
    """The model in its stored precision: nothing is computed, so half precision is safe."""
    opened = open_weights(name)
    return opened.model(dtype=opened.weights.stored_kind())


def push_model(
    name: str,
    repo: str,
    *,
    private: bool = False,
    options: ExportOptions | None = None,
    api: HubApi | None = None,
) -> dict[str, Any]:
    """Upload a model. A folder that `export` wrote is pushed unchanged, others are exported."""
    folder = find_folder(name)
    if _is_export(folder):
        if options is not None and options != ExportOptions():
            raise ValueError(f"{folder} is exported already, and pushed as it is: give no options")
        where = _pushed(folder, repo, private, api)
        return {"repo": repo, "commit": where}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as place:
        made = export(_as_stored(name), Path(place) / "model", options)
        where = _pushed(Path(made["folder"]), repo, private, api)
    return {"repo": repo, "commit": where, "layout": made["layout"]}


def _pushed(folder: Path, repo: str, private: bool, api: HubApi | None) -> str:
    return push(folder, repo, private=private, message="Model exported by anyorder", api=api)


def _is_export(folder: Path) -> bool:
    readme = folder / README
    return readme.is_file() and "library_name: anyorder" in readme.read_text(encoding="utf-8")


def _layout(model: Model, wanted: str | None) -> str:
    register_formats()
    if wanted is None:
        return layout_of(model.config) or OURS
    if wanted == OURS:
        return OURS
    if wanted not in layouts.LAYOUTS:
        raise ValueError(
            f"unknown layout {wanted!r}: choose {', '.join(layouts.LAYOUTS)} or {OURS}"
        )
    if not can_hold(wanted, model.config):
        raise ValueError(
            f"this {model.family.name} network cannot be written in the layout {wanted}: leave "
            f"--layout out ({layout_of(model.config) or OURS} fits)"
        )
    return wanted


def _write(model: Model, folder: Path, layout: str, options: ExportOptions) -> None:
    """Write all files except the model card."""
    model.vocab.save(folder)
    if (folder / "tokenizer.json").is_file():
        write_json(folder / "tokenizer_config.json", tokenizer_config(model.vocab), indent=2)
    write_json(folder / CONFIG_FILE, _config(model, layout, options), indent=2)
    cast = _cast(options.dtype)
    limit = int(options.shard_gb * 1e9)
    about = {"about": f"a model of family {model.family.name}"}
    if layout == OURS:
        # Lazy, so that only one shard of cast copies is in memory.
        parts = [(name, lambda m=make: cast(m())) for name, make in named_tensors(model.net)]
        save_parts(folder, parts, limit, about)
        return
    tensors = dict(named_tensors(model.net))
    config: Any = model.config
    found = find_layout(layout)
    names, apart = found.names(config), found.apart(config)
    if apart:
        with replacing_path(folder / found.apart_file) as path:
            torch.save({theirs: cast(tensors[ours]()) for ours, theirs in apart.items()}, path)
    parts = [
        (theirs, lambda m=tensors[ours]: cast(m()))
        for ours, theirs in names.items()
        if ours not in apart
    ]
    save_parts(folder, parts, limit, about)


def _config(model: Model, layout: str, options: ExportOptions) -> dict[str, Any]:
    card = asdict(model.card)
    if layout == OURS:
        return card
    record = config_json(layout, model.config, model.vocab, model.card.max_length)
    kind = options.dtype or str(next(model.net.parameters()).dtype).removeprefix("torch.")
    kept = {name: card[name] for name in ("family", "max_new_tokens", "max_length", "recipe")}
    return record | {"torch_dtype": kind, OUR_KEY: kept}


def _cast(dtype: str | None) -> Callable[[Tensor], Tensor]:
    if dtype is None:
        return lambda tensor: tensor
    one_of("dtype", dtype, DTYPES)
    kind = DTYPES[dtype]
    return lambda tensor: tensor.to(kind) if tensor.is_floating_point() else tensor
