"""Help texts and complaints: flags in groups, examples that work as typed, "did you mean ...?"."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tyro

from anyorder.checks import nearest
from anyorder.cli import FILES, VERBS, main, models, parsing, runs, sample
from anyorder.cli import models as train
from anyorder.cli.parsing import (
    FlagGroup,
    help_text,
    job_flags,
    mistakes,
    parse,
    read_flags,
)

OURS = [verb for verbs in FILES.values() for verb in verbs]
"""The verbs whose flags are in the files of the command line."""
FLAGS = json.loads((Path(__file__).parents[1] / "goldens" / "flags.json").read_text())
"""What version 0.1 took, by verb or recipe."""
FLAG = re.compile(r"^  (--[a-z0-9][\w.-]*)", re.MULTILINE)


def help_of(
    *words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    capsys.readouterr()
    try:
        code = main([*words, "--help"])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 0
    return capsys.readouterr().out


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a wrong command prints; it ends with 2 and one line."""
    capsys.readouterr()
    assert main(words) == 2
    output = capsys.readouterr()
    assert output.out == "" and len(output.err.splitlines()) == 1
    return output.err.removeprefix("anyorder: error: ").strip()


def examples(text: str) -> list[str]:
    """The commands of a help text, one by one; a backslash at the end of a line joins two."""
    found = re.search(r"^examples:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert found, "a help text shows an example"
    return [line.strip() for line in found[1].replace("\\\n", " ").splitlines()]


# --- flags -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_of_the_first_version_is_there(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", name.replace("train-tiny-", "tiny/")] if "train-" in name else [name]
    text = help_of(*words, capsys=capsys, monkeypatch=monkeypatch, width=100)
    assert set(FLAGS[name]) <= set(FLAG.findall(text))


def test_every_option_of_every_family_is_a_flag_of_sample() -> None:
    shown = {flag.field: flag for flag in read_flags(sample.sample_flags())}
    for owner in sample.option_classes().values():
        for flag in read_flags(owner):
            assert flag.field in shown
            assert shown[flag.field].default in (None, False)


def test_the_options_are_those_of_the_table_of_families() -> None:
    from anyorder.families.descriptions import DESCRIPTIONS
    from anyorder.families.family import FAMILIES

    described = {name: each.options for name, each in DESCRIPTIONS.items()}
    assert {name: each.options for name, each in FAMILIES.items()} == described


@pytest.mark.parametrize("verb", ["sample", "train", "grade", "measure", "demo", "export"])
def test_help_of_a_verb_needs_no_torch(verb: str) -> None:
    code = (
        "import sys\nfrom anyorder.cli import main\n"
        f"try: main([{verb!r}, '--help'])\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


def test_the_parser_takes_a_value_for_every_flag_of_sample() -> None:
    """What the help shows is what tyro parses: names, and whether a value follows."""
    owner = sample.sample_flags()
    base = ["mdm", "--task", "stories"]
    needs = {"prompt", "fill", "task"}
    for flag in read_flags(owner):
        if flag.positional or flag.field in needs:
            continue
        value = {int: "1", float: "0.5", bool: "", str: "0/1"}.get(flag.kind, "x")
        flags = parse(owner, "sample", [*base, flag.name, *([value] if value else [])])
        where = flags if hasattr(flags, flag.field) else flags.job
        where = where if hasattr(where, flag.field) else flags.decoding
        assert getattr(where, flag.field) not in (None, False, flag.default)


def test_sample_shows_what_is_shared_first_then_each_family_then_experts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of("sample", capsys=capsys, monkeypatch=monkeypatch, width=100)
    titles = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    families = [f"decoding, {name}" for name in sample.option_classes()]
    shared = titles.index("decoding, most families")
    assert titles[shared + 1 : shared + 1 + len(families)] == families
    assert titles[-2:] == ["published protocols", "expert"]
    at = {flag: text.index(f"\n  {flag}") for flag in ("--task", "--temperature", "--velocity")}
    assert at["--task"] < at["--temperature"] < at["--velocity"] < text.index("\n  --preset")
    assert len(FLAG.findall(text)) == len(set(FLAG.findall(text))), "each flag once"


# --- how a help text looks -------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    """What is inside."""

    width: int = 3
    """How wide,
    on two lines."""


@dataclass(frozen=True)
class Outer:
    """All kinds of flags.

    A second paragraph.

      anyorder x --level 3
    """

    thing: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="THING")]
    """The thing."""
    level: int
    """How far."""
    kind: Literal["plain", "fancy"] = "plain"
    """Which kind."""
    rate: float | None = None
    """How fast."""
    pair: tuple[float, float] = (0.5, 1.0)
    """Two numbers."""
    quiet: bool = False
    """Say nothing."""
    colour: bool = True
    """Whether in colour."""
    inner: Inner = field(default_factory=Inner)


def test_a_help_text_is_made_of_a_dataclass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    groups = [FlagGroup("first", ("quiet",), "A note."), FlagGroup("empty", ("nothing",))]
    text = help_text("anyorder x", Outer.__doc__ or "", list(read_flags(Outer)), groups)
    assert text.splitlines()[0] == "usage: anyorder x THING [--flag value ...]"
    assert "examples:\n  anyorder x --level 3\n" in text
    assert "first:\n  A note.\n  THING               The thing.\n  --quiet" in text
    assert "empty" not in text
    assert "--level N           How far. (must be given)" in text
    assert "--kind {plain,fancy}\n" in text and "Which kind. (default: plain)" in text
    assert "--pair X X          Two numbers. (default: 0.5 1.0)" in text
    assert "--no-colour         Whether in colour. (on by default;\n" in text
    assert "--inner.*:\n  What is inside.\n  --inner.width N     How wide, on two lines." in text


@pytest.mark.parametrize("verb", OURS)
@pytest.mark.parametrize("width", [72, 100])
def test_lines_end_where_the_terminal_does(
    verb: str,
    width: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not where a line of the source ended: the next word would not have fitted."""
    text = help_of(verb, capsys=capsys, monkeypatch=monkeypatch, width=width)
    for block in text.split("\n\n"):
        if block.startswith(("examples:", "usage:")):
            continue
        lines = block.splitlines()
        for line, after in pairwise(lines):
            assert len(line) <= width or " " not in line.strip()
            indent = len(after) - len(after.lstrip())
            families = re.match(r"\s+[a-z, ]+: ", after)  # what each of several families says
            if indent != 22 or families or (FLAG.match(line) and len(line.split()) < 4):
                continue
            assert len(line) + 1 + len(after.split()[0]) > width, (line, after)


# --- examples --------------------------------------------------------------------------------


class Parsed(Exception):
    """The words were understood."""


def texts(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    return examples(help_of(verb, capsys=capsys, monkeypatch=monkeypatch, width=100))


@pytest.mark.parametrize("verb", OURS)
def test_every_example_is_understood(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [shlex.split(line) for line in texts(verb, capsys, monkeypatch)]
    assert any(words[:2] == ["anyorder", verb] for words in commands)

    def only_parse(*given: Any, **settings: Any) -> Any:
        parse(*given, **settings)
        raise Parsed

    for module in (train, sample, runs, models):
        monkeypatch.setattr(module, "parse", only_parse)
    for words in commands:
        if words[0] == "anyorder":
            with pytest.raises(Parsed):
                main(words[1:])


SMALLER = (
    (r"--limit \d+", "--limit 2"),
    (r"^(anyorder race(?!.*--limit).*)", r"\1 --limit 2"),
    (r"^(anyorder race.*)", r"\1 --samples 1 --texts 1 --infill 1 --allow-weak-isolation"),
    (r"^(anyorder grade .*)", r"\1 --allow-weak-isolation"),
    (r"--problems 20", "--problems 2"),
    (r"^(anyorder demo(?!.*--problems).*)", r"\1 --problems 2"),
    (r"^anyorder demo --train", r"\g<0> --minutes 0.05"),
    (r"^anyorder train tiny/mdm --out runs/mdm$", r"\g<0> --steps 4 --warmup 1"),
)
"""The same commands with less work; a level of isolation is the machine's."""
ELSEWHERE = {
    "paper": "it needs a published checkpoint",
    "play": "it serves until it is interrupted",
    "push": "it needs a hub",
}


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("verb", [verb for verb in OURS if verb not in ELSEWHERE])
def test_every_example_works_as_typed(
    verb: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a new folder, in the order of the help text, in a shell."""
    shell = f'anyorder() {{ {shlex.quote(sys.executable)} -m anyorder "$@"; }}\n'
    for line in texts(verb, capsys, monkeypatch):
        for pattern, smaller in SMALLER:
            line = re.sub(pattern, smaller, line)
        done = subprocess.run(
            ["bash", "-c", shell + line],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


# --- complaints ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sample mdm --task stories --polcy x", "no flag --polcy; did you mean --policy?"),
        ("sample mdm --task stories --steps abc", "--steps takes a whole number, not 'abc'"),
        ("sample mdm --task stories --top-p=much", "--top-p takes a number, not 'much'"),
        ("sample mdm --task", "--task takes a value (NAME): none is given"),
        ("sample mdm --task stories --watch yes", "one word too many: 'yes'"),
        ("sample --task stories", "MODEL is missing: a shipped model"),
        ("smaple mdm", "no verb 'smaple'; did you mean sample?"),
        ("mesure runs/x", "no verb 'mesure'; did you mean measure?"),
        ("train mdm", "no recipe 'mdm'; did you mean tiny/mdm or trails/mdm?"),
        ("train tiny/flexmdn", "no recipe 'tiny/flexmdn'; did you mean tiny/flexmdm?"),
        ("train tiny/mdm --stepz 3", "no flag --stepz; did you mean --steps?"),
        ("train tiny/mdm --width 3", "no flag --width; did you mean --net.width"),
        ("train tiny/mdm --lr fast", "--lr takes a number, not 'fast'"),
        ("train tiny/mdm --betas 0.9 b", "--betas takes a number, not 'b'"),
        ("train tiny/mdm --betas 0.9", "--betas takes 2 values, not 1"),
        (
            "train tiny/mdm --decay matrix",
            "--decay takes matrices or everything, not 'matrix'; did you mean matrices?",
        ),
        ("train tiny/mdm --family ar", "--family is 'mdm' in this recipe and cannot be changed"),
        ("import theirs.jsonl", "--out PATH must be given: the run folder to make"),
        ("doctor --jsn", "no flag --jsn; did you mean --json?"),
        ("doctor --qqqq", "no flag --qqqq (see anyorder doctor --help)"),
    ],
)
def test_a_mistake_is_told_in_one_plain_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = complaint(words.split(), capsys)
    assert told.startswith(says)
    assert "--help)" in told


def test_a_misspelt_model(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["sample", "flexmdn", "--task", "stories"]) == 1
    assert capsys.readouterr().err == "anyorder: error: no model 'flexmdn'; did you mean flexmdm?\n"


def test_what_is_nearest() -> None:
    names = ["tiny/mdm", "tiny/flexmdm", "paper/mdm-125m"]
    assert nearest("mdm", names)[0] == "tiny/mdm"
    assert nearest("zzz", names) == []
    assert nearest("temp", ["--temperature", "--steps"]) == ["--temperature"]
    assert len(nearest("aaa", [f"aa{letter}" for letter in "bcdefg"])) <= 3


def test_words_that_are_right_have_no_mistakes() -> None:
    flags = list(read_flags(Outer))
    right = "thing --level -3 --pair 1 2 --rate None --no-colour --inner.width=4 --kind fancy"
    assert list(mistakes(right.split(), flags)) == []
    assert list(mistakes(["thing", "--quiet=1", "--level", "1"], flags)) == [
        "--quiet takes no value"
    ]


# --- the device ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "there", "used", "tells"),
    [
        ("", False, "cpu", ""),
        ("", True, "cuda", "on cuda (A Card); use --device cpu for the processor\n"),
        ("--device cpu", True, "cpu", ""),
        ("--device auto", True, "cuda", "on cuda (A Card); use --device cpu for the processor\n"),
        ("--device=cuda:1", False, "cuda:1", ""),
    ],
)
def test_auto_is_cuda_where_it_is_there(
    flags: str,
    there: bool,
    used: str,
    tells: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from anyorder.apps import sample as sampling

    def seen(job: Any, options: Any, *, place: str, **_: Any) -> Any:
        assert (job.device, place) == (used, used)
        raise Parsed

    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A Card")
    monkeypatch.setattr(sampling, "sample_to_run", seen)
    capsys.readouterr()
    with pytest.raises(Parsed):
        main(["sample", "mdm", "--task", "stories", *flags.split()])
    assert capsys.readouterr().err == tells


def test_the_device_is_stored_as_it_was_found(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["sample", "ar", "--prompt", "def solve(", "--max-new-tokens", "2", "--out", str(out)]
    assert main(words) == 0
    card = json.loads((out / "run.json").read_text())
    assert card["device"] == parsing.found_device("auto") and "auto" not in card["command"]


def test_recipes_for_gpus_keep_their_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(recipe: str) -> str:
        text = help_of("train", recipe, capsys=capsys, monkeypatch=monkeypatch, width=100)
        found = re.search(r"^  --device .*\n", text, re.MULTILINE)
        assert found
        return found[0]

    assert "(default: auto" in shown("tiny/mdm")
    assert "(default: cuda)" in shown("paper/mdm-125m")


def test_all_verbs_have_a_place() -> None:
    assert {*OURS} <= {*VERBS} and len(OURS) == len({*OURS})
    assert job_flags(Inner)(Inner()).json is False
