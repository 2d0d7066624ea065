"""Small tokenizers of every kind, as `transformers` loads them, trained here on a few lines.

Each has the pipeline of a published family: normaliser, splitter, model, decoder and what stands
around a text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as splitters

ACCENT, COMBINED, GRIN = "é", "é", "\U0001f600"
LINES = [
    "def total(values):\n    return sum(values)  # of all\n",
    "if x >= 10 and not y:\n\treturn [x, y, {'a': 1}]\n",
    "the quick brown fox jumps over the lazy dog; 0123456789!?",
    f"caf{ACCENT} naïve Größe Straße Привет 你好 世界",
    'print("<|im_start|>", s[0], a_b, 3.5e-7, x ** 2 % 7 | ~z & w, a\\b, $5, `q`, x@y, ^)',
]
PARTS = [
    *("def f(x):", "return", "    ", "\n", "\t", " ", "  ", "x + 1", "values", "the", "fox", "_"),
    *("'s", "don't", "WE'LL", "3.14", "10000", "==", "!=", "(", ")", "[", "]", "{'a': 1}", "#"),
    *(f"caf{ACCENT}", f"caf{COMBINED}", "naïve", "Größe", "ﬁ", "Å", "A\u030a", "Привет"),
    *("你好", "مرحبا", GRIN, "\U0001f468\u200d\U0001f469", "\u00a0", "\u3000", "\u2028", "\u200b"),
    *("\x00", "\x04", "\x1b[0m", "\x7f", "\ufffd", "\uffff", "\U0010ffff", "\U0004abcd", "▁", "##"),
]
# Half of the texts have a character that tokenizers without bytes do not know.
UNKNOWN = {GRIN, "\U0001f468", "\x04", "\U0004abcd", "\U0010ffff", "م"}
ALPHABET = sorted({c for line in [*LINES, *PARTS, "[]<>|/_"] for c in line} - UNKNOWN)


def texts(specials: list[str], count: int = 300) -> list[str]:
    """Texts of code, Unicode, emoji, control characters and the spelling of every special token."""
    chance = random.Random(0)
    rows = [*LINES, "", " ", "\n", *PARTS]
    while len(rows) < count - 5 * len(specials):
        rows.append("".join(chance.choices(PARTS, k=chance.randint(1, 12))))
    around = ("{}", "a{}b", " x {} y ", "{0}{0}", "the {}, fox")
    return rows + [each.format(name) for name in specials for each in around]


def loaded(tokenizer: Tokenizer, **roles: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def _framed(tokenizer: Tokenizer, template: str) -> None:
    names = [name for name in template.split() if name != "$A"]
    known = [(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(names)]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=known)


ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
ROBERTA |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}


def byte_level(size: int = 330) -> Any:
    """As RoBERTa and ModernBERT: byte-level BPE, NFC, marks around a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = splitters.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=splitters.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    _framed(tokenizer, "<s> $A </s>")
    return loaded(tokenizer, **ROBERTA)


def few_bytes() -> Any:
    """As SmolLM2: byte-level BPE that lacks some bytes and has no unknown token."""
    lacking = {4, 6, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}
    from anyorder.vocab.codecs import BYTE_OF

    table = {name: id for id, name in enumerate(["<|endoftext|>", "<|im_start|>", "<|mask|>"])}
    for character, byte in BYTE_OF.items():
        if byte not in lacking:
            table[character] = len(table)
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("r", "e")]
    for left, right in merges:
        table[left + right] = len(table)
    tokenizer = Tokenizer(models.BPE(table, merges))
    tokenizer.pre_tokenizer = splitters.Sequence(
        [splitters.Digits(individual_digits=True), splitters.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|mask|>"])
    return loaded(tokenizer, eos_token="<|endoftext|>", mask_token="<|mask|>")


def byte_fallback() -> Any:
    """As Llama 2: BPE on characters, spaces as U+2581, other bytes as <0xHH>, BOS before a text."""
    table = {
        "<unk>": 0,
        "<s>": 1,
        "</s>": 2,
        **{f"<0x{byte:02X}>": 3 + byte for byte in range(256)},
    }
    for character in ["▁", *"abcdefghijklmnopqrstuvwxyz.,:()=+"]:
        table[character] = len(table)
    merges = [
        ("▁", "t"),
        ("▁t", "h"),
        ("▁th", "e"),
        ("▁", "▁"),
        ("▁▁", "▁▁"),
        ("r", "e"),
        ("f", "o"),
    ]
    for left, right in merges:
        table[left + right] = len(table)
    model = models.BPE(table, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "<mask>"])
    _framed(tokenizer, "<s> $A")
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return loaded(tokenizer, **roles)


def wordpiece(size: int = 420) -> Any:
    """As BERT, uncased."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = splitters.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=names, initial_alphabet=ALPHABET, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    _framed(tokenizer, "[CLS] $A [SEP]")
    roles = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return loaded(tokenizer, **dict(zip(roles, names, strict=True)))


def unigram(size: int = 300, scheme: str = "always") -> Any:
    """As XLM-R and T5: spaces as U+2581, NFKC, special tokens in the table with the best score."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = splitters.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        unk_token="<unk>",
        initial_alphabet=ALPHABET,
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES * 3, trainer)
    _framed(tokenizer, "<s> $A </s>")
    return loaded(tokenizer, **ROBERTA)


KINDS: dict[str, Callable[[], Any]] = {
    "byte-level BPE": byte_level,
    "byte-level BPE that lacks bytes": few_bytes,
    "byte-fallback BPE": byte_fallback,
    "WordPiece": wordpiece,
    "Unigram": unigram,
    "Unigram, marked at the first word": lambda: unigram(scheme="first"),
}
