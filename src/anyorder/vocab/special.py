"""The roles of special tokens, and how a tokenizer names them.

    mask, pad, eos, bos     one id each; bos may be missing
    ends                    further ids that end a text, beside eos (chat models have two)
    prefix, suffix          what a network expects around a text: [CLS] ... [SEP], or BOS before it

`SPECIALS` holds the roles of published models. `with_roles` completes them by what a tokenizer says
of itself: the names in tokenizer_config.json, or the attributes of a `transformers` tokenizer.

Not here: the ids behind the roles and their checks (vocab/__init__.py); config.json and
generation_config.json of a checkpoint (hub/vocab.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from anyorder.vocab.codecs import parse_json, read_text

NEEDED_ROLES = frozenset({"mask", "pad", "eos"})
OPTIONAL_ROLES = ("ends", "prefix", "suffix")
"""Fields of SpecialIds that vocabulary.json leaves out where they are empty."""
NAMED_ROLES = ("mask", "pad", "eos", "bos", "cls", "sep", "unk")
"""The roles that tokenizer_config.json names, each as `<role>_token`."""


class SpecialTokens(TypedDict, total=False):
    """The special tokens of a tokenizer, each given by its id or by its spelling.

    Those that are not given are read from the tokenizer's own files, if these name them.
    """

    mask: int | str
    pad: int | str
    eos: int | str
    bos: int | str | None
    ends: Sequence[int | str]
    """Further tokens that end a text, beside eos."""
    prefix: Sequence[int | str]
    """What stands before every text; unset: as the tokenizer does."""
    suffix: Sequence[int | str]
    """What stands after every text that is not written left to right; unset: as the tokenizer
    does."""
    pad_is_eos: bool | None
    """Whether pad and eos are one id; an error if that is not so. None: as it comes."""
    size: int | None
    """Rows of the embedding table, if not the number of tokens."""
    named: Mapping[str, int]
    """Ids of special tokens by spelling; an error if the tokenizer disagrees."""


_END = "<|endoftext|>"  # published models pad with it
_QWEN2 = {_END: 151643, "<|im_start|>": 151644}
_DREAM = {**_QWEN2, "<|im_end|>": 151645, "<|beginoftext|>": 151665, "<|mask|>": 151666}
_LLADA = {"<|startoftext|>": 126080, _END: 126081, "<|mdm_mask|>": 126336}
_LLADA |= {"<|start_header_id|>": 126346, "<|end_header_id|>": 126347, "<|eot_id|>": 126348}


# Mask, BOS, what ends a turn of a chat, size, ids
_MODELS: Mapping[str, tuple[str, str | None, str | None, int, Mapping[str, int]]] = {
    # As LatentMDM: <|im_start|>, which its data never holds, is the mask and the last row
    "qwen2": ("<|im_start|>", None, None, 151645, _QWEN2),
    "dream": ("<|mask|>", "<|beginoftext|>", "<|im_end|>", 152064, _DREAM),
    "llada": ("<|mdm_mask|>", "<|startoftext|>", "<|eot_id|>", 126464, _LLADA),
}
SPECIALS: Mapping[str, SpecialTokens] = MappingProxyType(
    {
        name: {
            "mask": mask,
            "pad": _END,
            "eos": _END,
            "bos": bos,
            "ends": () if turn is None else (turn,),
            "pad_is_eos": True,
            "size": size,
            "named": MappingProxyType(named),
        }
        for name, (mask, bos, turn, size, named) in _MODELS.items()
    }
)
"""Special tokens of published models: `Vocab.from_tokenizer_json(path, **SPECIALS["dream"])`."""


def spelling_in(token: Any) -> str | None:
    """The spelling of a token in tokenizer_config.json: a string, or an object that holds it."""
    spelling = token.get("content") if isinstance(token, dict) else token
    return spelling if isinstance(spelling, str) else None


def names_beside(path: Path) -> dict[str, str]:
    """The roles that the files beside a tokenizer.json name: role -> spelling."""
    found: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        beside = path.parent / name
        if not beside.is_file():
            continue
        settings = parse_json(read_text(beside))
        if not isinstance(settings, dict):
            raise ValueError(f"{beside} holds no dictionary: restore it")
        for role in NAMED_ROLES:
            if (spelling := spelling_in(settings.get(f"{role}_token"))) is not None:
                found.setdefault(role, spelling)
    return found


def with_roles(tokens: SpecialTokens, found: Mapping[str, int | str]) -> SpecialTokens:
    """The given tokens, completed by the roles that a tokenizer names.

    [SEP] ends a text where there is no other end, [CLS] begins it, and eos pads if nothing else
    does.
    """
    roles: dict[str, Any] = {role: found[role] for role in ("mask", "pad", "eos") if role in found}
    if "sep" in found:
        roles.setdefault("eos", found["sep"])
    bos = found.get("bos", found.get("cls"))
    both: dict[str, Any] = {"bos": bos, "pad_is_eos": None, **roles, **tokens}
    if "eos" in both:
        both.setdefault("pad", both["eos"])
    if "mask" not in both:
        raise ValueError(
            "this tokenizer names no mask token: give mask=, an id or a spelling; for a network "
            "that has none, a token that no text holds"
        )
    return SpecialTokens(**both)  # type: ignore[typeddict-item]
