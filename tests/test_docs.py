"""The pages for users keep their word: marked blocks run and print what is shown, links lead on.

How blocks are marked is in marked_blocks.py; the blocks of README.md are run by test_readme.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from marked_blocks import SECONDS, blocks, run_pages

from anyorder.bench import tasks
from anyorder.data.batches import Batch
from anyorder.decode import policy
from anyorder.decode.canvas import Canvas, Decoded
from anyorder.decode.policy import Items, Score, find_score, find_segment_score, register_policy
from anyorder.families.ar import decode as ar
from anyorder.families.family import FAMILIES, find_family, register_family
from anyorder.nets.transformer import Transformer, TransformerConfig
from anyorder.vocab import Vocab

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = (
    *("../README.md", "quickstart.md", "diagnose.md", "extend.md", "chat.md"),
    *("infilling.md", "loggers.md", "notebooks.md", "recording.md"),
)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
TABLES = (policy.SCORES, policy.SEGMENT_SCORES, FAMILIES, tasks.TASKS)


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


SLOW = {
    "diagnose.md": [pytest.mark.long],  # it samples and measures for a minute
    "recording.md": [pytest.mark.long],  # it imports transformers and diffusers
}


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=SLOW.get(page, ())) for page in PAGES[1:]]
)
def test_marked_blocks_run(page: str, tmp_path: Path) -> None:
    """Page by page, so that they need not wait for each other."""
    assert {block.language for block in blocks(text_of(page)) if block.run} == {"bash", "python"}
    (outcome,) = run_pages([DOCS / page], tmp_path).values()
    assert outcome.complaint is None, outcome.complaint


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_parse_and_links_lead_to_files(page: str) -> None:
    text = text_of(page)
    for block in blocks(text):
        if block.language == "python":
            compile(block.code, f"{page} line {block.line}", "exec")
    targets = [name for name in LINK.findall(text) if "://" not in name]
    assert targets
    folder = (DOCS / page).parent
    assert [name for name in targets if not (folder / name).exists()] == []


BROKEN = (
    ("```python run\n1 / 0\n```\n", "ZeroDivisionError"),
    ("```bash run\nanyorder --version\nanyorder dance\n```\n", "no verb 'dance'"),
    ("```python file=a.py\nexit(3)\n```\n```bash run\npython a.py\n```\n", "python a.py"),
    ("```python run\nprint(1)\n```\n```text\n2\n```\n", "not what is printed:\n1\n"),
    ("```bash run\ncat a.txt\n```\n", "cannot run cat"),
    ("```bash run\ncat > a.py <<'END'\n1 / 0\nEND\npython a.py\n```\n", "ZeroDivisionError"),
    ("```python rum\n```\n", "does not know ['rum']"),
)
"""Pages, and what is said of them."""

FINE = """\
```python file=a.py
import sys
print(*sys.argv[1:])
```
```bash run
python a.py one \\
  'two three'  # a comment
```
```text
one two three
```
```bash run
cat > b.py <<'END'
print("four")
print("five")
END
python b.py
```
```text
four
five
```
```python run
import sys
sys.done = True
```
```python run
import sys, a
assert not hasattr(sys, 'done'), "every block is a process of its own"
```
"""


@pytest.mark.timeout(SECONDS + 60)
def test_the_runner_fails_where_a_page_is_wrong_and_only_there(tmp_path: Path) -> None:
    pages = {f"{number}.md": text for number, (text, _) in enumerate(BROKEN)} | {"fine.md": FINE}
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    found = run_pages([tmp_path / name for name in pages], tmp_path)
    fine = found.pop("fine.md")
    assert fine.complaint is None
    assert fine.printed[:3] == ["one two three\n", "four\nfive\n", ""] and len(fine.printed) == 4
    for outcome, (_, complaint) in zip(found.values(), BROKEN, strict=True):
        assert outcome.complaint is not None and complaint in outcome.complaint


@pytest.fixture
def tables() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = [dict(table) for table in TABLES]
    yield
    for table, old in zip(TABLES, before, strict=True):
        table.clear()
        table.update(old)  # type: ignore[arg-type]


def file_of(page: str, name: str) -> SimpleNamespace:
    """A file that a page shows, imported."""
    [code] = [block.code for block in blocks(text_of(page)) if block.file == name]
    space: dict[str, Any] = {"__name__": name}
    sys.modules[name] = SimpleNamespace()  # type: ignore[assignment]
    try:
        exec(compile(code, name, "exec"), space)
    finally:
        del sys.modules[name]
    return SimpleNamespace(**space)


@pytest.mark.usefixtures("tables")
def test_a_policy_is_registered_for_what_it_reads() -> None:
    register_policy(Score("mine", lambda items: -items.position.double(), reads="nothing"))
    assert find_score("mine") is find_segment_score("mine")
    register_policy(Score("sure", lambda items: items.position.double()))
    assert find_score("sure").name == "sure"
    with pytest.raises(ValueError, match="ranks tokens"):
        find_segment_score("sure")
    register_policy(Score("long", lambda items: items.position.double(), reads="segment"))
    with pytest.raises(ValueError, match="ranks segments"):
        find_score("long")


@pytest.mark.usefixtures("tables")
def test_names_that_are_taken_are_refused() -> None:
    for name in ("confidence", "average", "random"):
        with pytest.raises(ValueError, match=f"policy '{name}' already: choose another"):
            register_policy(Score(name, lambda items: items.position.double()))
    with pytest.raises(ValueError, match="family 'mdm' already: choose another"):
        register_family(find_family("mdm"))
    for name, complaint in {"gsm8k": "already", "a:b": "no colon", "": "cannot be called"}.items():
        with pytest.raises(ValueError, match=complaint):
            tasks.register_task(name, tasks.TASKS["gsm8k"])
    file_of("extend.md", "alternating.py")
    with pytest.raises(ValueError, match="already"):
        file_of("extend.md", "alternating.py")


@pytest.mark.usefixtures("tables")
def test_leaning_prefers_the_left_among_equals() -> None:
    found = file_of("extend.md", "alternating.py")

    class Sure:
        def log_confidence(self) -> torch.Tensor:
            return torch.tensor([-0.01, -0.5, -0.5, -0.02], dtype=torch.float64)

    place = torch.tensor([40, 3, 4, 12])
    scores = found.leaning(Items(place, place, Sure()))  # type: ignore[arg-type]
    assert scores.argsort(descending=True).tolist() == [3, 1, 2, 0]


@pytest.mark.usefixtures("tables")
def test_backward_turns_answers_round() -> None:
    found = file_of("extend.md", "backward.py")
    ids = torch.tensor([[1, 2, 3, 4, 5, 9], [1, 2, 3, 9, 0, 0], [1, 9, 0, 0, 0, 0]])
    batch = Batch(ids, torch.tensor([2, 1, 1]), torch.tensor([6, 4, 2]), torch.arange(3))
    turned = found.backward_answers(batch)
    assert turned.ids.tolist() == [[1, 2, 5, 4, 3, 9], [1, 3, 2, 9, 0, 0], [1, 9, 0, 0, 0, 0]]
    assert torch.equal(found.backward_answers(turned).ids, ids)


@pytest.mark.usefixtures("tables")
def test_backward_writes_what_ar_writes_from_the_other_end() -> None:
    found = file_of("extend.md", "backward.py")
    vocab = Vocab.words(list("abcd"))
    net = Transformer(
        TransformerConfig(
            vocab.size, width=8, layers=1, heads=2, kv_heads=2, head_width=4, mlp_width=8,
            causal=True,
        )
    ).eval()  # fmt: skip
    canvases = [Canvas.of([[0, 1], 5], vocab), Canvas.of([[2], 12], vocab)] * 4
    options, keys = found.BackwardOptions(temperature=1.0), list(range(8))
    shown: dict[int, Decoded] = {}
    rows = found.decode(
        net,
        vocab,
        canvases,
        keys,
        options,
        watch=lambda rows: shown.update((r.row, r) for r in rows),
    )
    plain = ar.decode(net, vocab, canvases, keys, options)
    ended = 0
    for number, (row, same) in enumerate(zip(rows, plain, strict=True)):
        ends = same.token_ids[-1] == vocab.eos_id
        ended += ends
        text = len(same.token_ids) - ends
        assert row.token_ids[:text] == same.token_ids[:text][::-1]
        assert row.reveal_step[:text] == row.insert_step[:text] == [*range(text, 0, -1)]
        assert row.token_ids[text:] == [vocab.eos_id] * ends
        assert shown[number].token_ids == row.token_ids
        alone = found.decode(net, vocab, [canvases[number]], [keys[number]], options)[0]
        assert alone.token_ids == row.token_ids
        assert replace(same, **{name: getattr(row, name) for name in found.LISTS}) == row
    assert 0 < ended < len(rows), "rows of both kinds are needed here"
