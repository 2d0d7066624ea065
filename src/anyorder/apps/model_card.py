"""The README.md of an exported model: what it is, how it was made, and the digests of its files.

The heading in YAML is what hubs read. Nothing is claimed that the model folder does not say: a
licence, for one, is the owner's to add.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anyorder.model import Model

LAYOUTS = {
    "qwen2": "Qwen2's names, as in Dream, DiffuCoder and Dream-Coder where it is a masked model",
    "llama": "Llama's names",
    "llada": "LLaDA's names",
    "flexmdm": "the FlexMDM release: a Dream backbone, and flexmdm_extras.pt beside it",
    "dultra": "LLaDA's names, with dUltra's planner head",
    "anyorder": "anyorder's own",
}


def model_card(model: Model, layout: str, files: Mapping[str, str]) -> str:
    """The text of README.md; `files` are the other files and their sha256."""
    family = model.family
    recipe = model.card.recipe
    count = sum(parameter.numel() for parameter in model.net.parameters())
    parts = [
        _heading([family.name, "causal" if family.causal else "diffusion"]),
        f"# A {family.name} model\n\n{family.summary[:1].upper()}{family.summary[1:]}.",
        _table(
            {
                "family": family.name,
                "parameters": f"{count:,}",
                "layout": LAYOUTS[layout],
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


def _heading(tags: list[str]) -> str:
    lines = ["library_name: anyorder", "pipeline_tag: text-generation", "tags:", "- anyorder"]
    return "\n".join(["---", *lines, *(f"- {tag}" for tag in tags), "---"])


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
