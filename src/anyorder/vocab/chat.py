"""Chat templates: a conversation -> the text and the ids of a prompt; and turns to train on.

A template is a jinja2 program that comes with a checkpoint. It is rendered by a child process with
bounds on time, memory and length (chat_child.py): the sandbox of jinja2 bounds none of these.
Starting the child takes longer than a rendering, so whoever renders again and again keeps one
(`TemplateChild`).

From text to ids: what the template writes may be special tokens, what messages say is text. Special
spellings inside messages are put between two characters that occur nowhere else, and encoded apart
as ordinary text. A template may leave a message out, but to keep the spelling and lose these
characters is an error. All other text between two special
tokens is encoded in one piece. A template that itself makes a spelling, by changing letters of a
message or by writing a part of it beside the message, has written a special token.

    conversation ends with a user's turn      the prompt ends where the assistant's turn begins
    it ends with an assistant's turn          that turn is left open: the model goes on with it

A turn that is left open is found by a mark behind its text; where the template trims the text (a
rare blank behind the mark is gone), the blanks before the mark go too.

The date that templates may ask for is fixed (DATE), so that a prompt does not depend on the day.
Not here: which checkpoints want a chat (hub/chats.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from anyorder.vocab import NAMED_TEMPLATES, SETTINGS_FILES, TEMPLATE_FILE, Vocab
from anyorder.vocab.codecs import parse_json, read_text

DEFAULT = "default"
ROLES = ("system", "user", "assistant", "tool")
LONGEST_TEMPLATE = 1 << 16
"""Characters. The longest published ones have some 10,000."""
LONGEST_REASON = 300
"""Characters of an error's text."""
DATE = "2024-07-26"
CHILD = Path(__file__).with_name("chat_child.py")
AT_ONCE = 500
"""Renderings of one child process."""
KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TMPDIR")

ChatMessage = Mapping[str, Any]
ChatMessages = Sequence[ChatMessage]


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt whose ids are known, special ones among them."""

    text: str
    """As the template wrote it, with the spellings of special tokens."""
    ids: tuple[int, ...]


@dataclass(frozen=True)
class ChatTurn:
    """One turn of an assistant, as an example to train on."""

    prompt: ChatPrompt
    """Everything before the turn."""
    answer: str


AnyPrompt = str | ChatPrompt
"""A text to encode, or a prompt with its ids."""


SECONDS, MORE_SECONDS = 10.0, "ANYORDER_CHAT_SECONDS"
"""Processor time of one rendering, and the environment variable that sets another."""


def _seconds() -> float:
    given = os.environ.get(MORE_SECONDS, "")
    try:
        found = float(given or SECONDS)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ValueError(f"{MORE_SECONDS}={given!r}: give a number of seconds above 0, or unset it")
    return found


@dataclass(frozen=True)
class RenderLimits:
    """The bounds of a rendering."""

    seconds: float = SECONDS
    """Of processor time, for one conversation."""
    memory: int = 1 << 29
    """Bytes of address space."""
    longest: int = 1_000_000
    """Characters of one rendered conversation."""


@dataclass(frozen=True)
class ChatTemplate:
    """The text of a template."""

    source: str
    origin: str = ""
    """Where it comes from, for messages."""
    limits: RenderLimits | None = None
    """None: the usual ones."""
    refusal: str = ""
    """Why there is no text. Loading a model must not fail, so the first use is the error."""
    child: TemplateChild | None = field(default=None, compare=False, repr=False)
    """The process that renders; None: a new one for every call."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    def prompts(
        self, conversations: Sequence[ChatMessages], vocab: Vocab, **values: Any
    ) -> list[ChatPrompt]:
        """The prompt of each conversation; `values` are further variables of the template."""
        marks = _Marks.beside([conversations, values, self.source], vocab)
        jobs, all_messages = [], [checked(messages) for messages in conversations]
        for messages in all_messages:
            left_open = messages[-1]["role"] == "assistant"
            jobs.append(self._job(messages, marks, left_open=left_open, **values))
        texts = self._rendered(jobs, marks, vocab)
        for number, messages in enumerate(all_messages):
            if messages[-1]["role"] == "assistant":
                texts[number] = self._until_mark(texts[number], messages, marks)
        return [marks.prompt(text, vocab) for text in texts]

    def turns(self, messages: ChatMessages, vocab: Vocab) -> list[ChatTurn]:
        """Every turn of the assistant in a conversation that has a text."""
        return self.all_turns([messages], vocab)[0]

    def all_turns(
        self, conversations: Sequence[ChatMessages], vocab: Vocab
    ) -> list[list[ChatTurn]]:
        """`turns` of each conversation."""
        marks = _Marks.beside([conversations, self.source], vocab)
        jobs, places = [], []
        for number, messages in enumerate(map(checked, conversations)):
            for place in range(len(messages)):
                if is_answer(conversations[number][place]):
                    jobs.append(self._job(messages[:place], marks, left_open=False))
                    jobs.append(self._job(messages[: place + 1], marks, left_open=True))
                    places.append((number, messages[: place + 1]))
        texts = self._rendered(jobs, marks, vocab)
        found: list[list[ChatTurn]] = [[] for _ in conversations]
        for (number, until), before, whole in zip(places, texts[::2], texts[1::2], strict=True):
            text = self._until_mark(whole, until, marks)
            found[number].append(self._turn(before, text, marks, vocab))
        return found

    def _turn(self, before: str, text: str, marks: _Marks, vocab: Vocab) -> ChatTurn:
        if not text.startswith(before):
            raise ValueError(
                f"{self._called} renders the earlier turns differently when the answer is present, "
                "so no prompt of this answer exists: use another template"
            )
        return ChatTurn(marks.prompt(before, vocab), marks.plain(text[len(before) :]))

    def _job(
        self, messages: ChatMessages, marks: _Marks, *, left_open: bool, **values: Any
    ) -> dict[str, Any]:
        """The variables of one rendering."""
        if not messages:
            raise ValueError("the assistant begins the conversation: put a turn of the user first")
        # `checked` knows the roles: they need no marks, and templates compare them.
        marked = [{**marks.marked(message), "role": message["role"]} for message in messages]
        if left_open:
            content = marked[-1]["content"]
            if content.isspace():  # told from the template's own blanks
                content = marks.blank
            # The blank behind the mark shows whether the template trims.
            marked[-1]["content"] = f"{content}{marks.cut}{marks.blank}"
        common = {"tools": None, "documents": None, "add_generation_prompt": not left_open}
        return {**common, **marks.marked(values), "messages": marked}

    def _until_mark(self, text: str, messages: ChatMessages, marks: _Marks) -> str:
        """The text before the mark of the open turn, which is the last of the messages."""
        before, mark, after = text.rpartition(marks.cut)
        if not mark:
            raise ValueError(
                f"{self._called} does not write the last turn, which is the assistant's: leave "
                "the turn (the prefill) out, or use another template"
            )
        content, trimmed = messages[-1]["content"], not after.startswith(marks.blank)
        if content.isspace():
            head = before.removesuffix(marks.blank)
            return head if trimmed or head == before else head + content
        return before.rstrip() if trimmed and content else before

    def _rendered(
        self, jobs: Sequence[Mapping[str, Any]], marks: _Marks, vocab: Vocab
    ) -> list[str]:
        if self.refusal:
            raise ValueError(self.refusal)
        if len(self.source) > LONGEST_TEMPLATE:
            raise ValueError(
                f"{self._called} has {len(self.source):,} characters, and at most "
                f"{LONGEST_TEMPLATE:,} are rendered: give a shorter one"
            )
        texts = self._texts(jobs, vocab)
        doubtful = [
            number
            for number, (job, text) in enumerate(zip(jobs, texts, strict=True))
            if marks.lost(job, text)
        ]
        without = self._texts([marks.without_spellings(jobs[number]) for number in doubtful], vocab)
        for number, other in zip(doubtful, without, strict=True):
            marks.check(texts[number], other)
        return texts

    def _texts(self, jobs: Sequence[Mapping[str, Any]], vocab: Vocab) -> list[str]:
        """What the template writes, marks and all."""
        roles = {"bos": vocab.bos_id, "eos": vocab.eos_id, "pad": vocab.pad_id}
        roles["mask"] = vocab.mask_id
        tokens = {f"{role}_token": vocab.token(id) for role, id in roles.items() if id is not None}
        limits = self.limits or RenderLimits(_seconds())
        request: dict[str, Any] = {"template": self.source, "tokens": tokens, "date": DATE}
        request |= {"seconds": limits.seconds, "memory": limits.memory, "longest": limits.longest}
        texts: list[str] = []
        for start in range(0, len(jobs), AT_ONCE):
            answer = self._answer({**request, "jobs": jobs[start : start + AT_ONCE]}, limits)
            if "error" in answer:
                raise ValueError(f"{self._called} cannot be rendered: {_line(answer['error'])}")
            texts += answer["texts"]
        return texts

    def _answer(self, request: Mapping[str, Any], limits: RenderLimits) -> dict[str, Any]:
        """What the child says of a request, or how it ended."""
        child = self.child or TemplateChild()
        try:
            return child.ask(request, limits)
        finally:
            if self.child is None:
                child.close()

    @property
    def _called(self) -> str:
        return f"the chat template{f' {self.origin}' if self.origin else ''}"


class TemplateChild:
    """A process that renders templates, kept for several requests.

    It begins with the first request, and anew after an error. It ends with `close`, with this
    object, or with the program.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._end: Any = None

    def ask(self, request: Mapping[str, Any], limits: RenderLimits) -> dict[str, Any]:
        """The answer to a request: its texts, or an error."""
        process = self._process or self._begin()
        assert process.stdin is not None and process.stdout is not None
        # Templates cannot wait; this is for a machine that stands still.
        patience = 60 * limits.seconds * max(1, len(request["jobs"]))
        guard = threading.Timer(patience, process.kill)
        guard.daemon = True
        guard.start()
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline(limits.memory)
        except BrokenPipeError:  # it has ended: its code says why
            line = b""
        finally:
            guard.cancel()
        if line.endswith(b"\n"):
            found: dict[str, Any] = json.loads(line)
            if "error" in found:
                self.close()  # what the template did to its process is not known
            return found
        if line:
            process.kill()
        return {"error": self._why(process.wait(), limits)}

    def _begin(self) -> subprocess.Popen[bytes]:
        kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        self._errors = TemporaryFile()  # noqa: SIM115  (closed by `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=kept,
        )
        self._end = weakref.finalize(self, _end, self._process, self._errors)
        return self._process

    def _why(self, code: int, limits: RenderLimits) -> str:
        """How the process ended."""
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        if code == -signal.SIGXCPU:
            return (
                f"it takes more than {limits.seconds:g} s of processor time for one conversation "
                f"(the environment variable {MORE_SECONDS} allows more)"
            )
        if code == -signal.SIGKILL:
            return "its process does not end, or writes too much"
        reason = _line(lines[-1]) if lines else f"code {code}"
        return f"its process failed ({reason})"

    def close(self) -> None:
        """End the process; a later request begins another."""
        if self._end is not None:
            self._end()
        self._process = self._errors = self._end = None


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()
    process.communicate()
    errors.close()


def checked(messages: ChatMessages) -> ChatMessages:
    """The messages, if they are a conversation of texts by known roles.

    A turn of the assistant that only calls tools may have null as its text, and gets an empty one.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        raise ValueError("a conversation is a list of at least one message")
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping) or not (
            isinstance(message.get("content"), str) or _only_calls(message)
        ):
            raise ValueError(
                f"message {number} is no object with a text as `content`: give it one, which may "
                "be empty; null is for turns of the assistant with `tool_calls`"
            )
        if message.get("role") not in ROLES:
            raise ValueError(
                f"message {number} has the role {message.get('role')!r}: give {', '.join(ROLES)}"
            )
    return [
        {**message, "content": ""} if message["content"] is None else message
        for message in messages
    ]


def is_answer(message: ChatMessage) -> bool:
    """Whether it is a turn of the assistant with a text."""
    return message["role"] == "assistant" and message["content"] is not None


def _only_calls(message: ChatMessage) -> bool:
    empty = "content" in message and message["content"] is None
    return empty and message.get("role") == "assistant" and bool(message.get("tool_calls"))


@dataclass(frozen=True)
class _Marks:
    """Characters that occur in no message, and the spellings that they surround."""

    first: str
    last: str
    cut: str
    blank: str
    """What a template that trims takes away, and none writes."""
    spellings: re.Pattern[str]

    @classmethod
    def beside(cls, given: Sequence[Any], vocab: Vocab) -> _Marks:
        """`given`: all that takes part in the renderings."""
        try:
            used = json.dumps(given, ensure_ascii=False, default=_object)
        except (TypeError, ValueError) as error:
            raise ValueError(f"messages hold texts, numbers, lists and objects: {error}") from None
        characters, low = set(used), used.lower()

        def free(codes: Iterable[int]) -> Iterator[str]:
            # The escape is looked for in the rendered text, so it is not there before.
            for character in map(chr, codes):
                if character not in characters and _escape(character) not in low:
                    yield character

        private, blanks = free(range(0xE000, 0xF8FF)), free(range(0x2000, 0x200B))
        longest_first = sorted(vocab.special_names.values(), key=len, reverse=True)
        spellings = re.compile("|".join(map(re.escape, longest_first)))
        return cls(next(private), next(private), next(private), next(blanks, " "), spellings)

    def marked(self, value: Any) -> Any:
        """The same, with the special spellings of all texts between the two characters."""
        if isinstance(value, str):
            return self.spellings.sub(self._between, value)
        if isinstance(value, Mapping):
            return {self.marked(name): self.marked(each) for name, each in value.items()}
        return [self.marked(each) for each in value] if isinstance(value, list | tuple) else value

    def lost(self, job: Mapping[str, Any], text: str) -> bool:
        """Whether a rendered text has fewer marks than its job."""
        went_in = json.dumps(job, ensure_ascii=False, default=_object).count(self.first)
        return self._escaped(text) or text.count(self.first) < went_in

    def without_spellings(self, value: Any) -> Any:
        """A job with nothing between its marks."""
        if isinstance(value, str):
            return self._stretches.sub(f"{self.first}{self.last}", value)
        if isinstance(value, Mapping):
            each = self.without_spellings
            return {each(name): each(inner) for name, inner in value.items()}
        return (
            [self.without_spellings(each) for each in value] if isinstance(value, list) else value
        )

    def check(self, text: str, without: str) -> None:
        """Refuse a rendered text that lost a mark but not the spelling, which would become an id.

        If the same job without spellings gives the same text outside the marks, no spelling has
        left them: the template has left a message out.
        """
        same = self._stretches.sub("", text) == self._stretches.sub("", without)
        if self._escaped(text) or not same:
            raise ValueError(
                "the chat template changes a special token's spelling in a message: take the "
                "spelling out of the message"
            )

    def _escaped(self, text: str) -> bool:
        low = text.lower()
        return any(_escape(mark) in low for mark in (self.first, self.last, self.cut))

    def _between(self, found: re.Match[str]) -> str:
        return f"{self.first}{found[0]}{self.last}"

    @cached_property
    def _stretches(self) -> re.Pattern[str]:
        return re.compile(f"{self.first}([^{self.first}{self.last}]*){self.last}")

    def plain(self, text: str) -> str:
        """The text without the characters; an error if a template has torn a pair apart."""
        text = self._stretches.sub(r"\1", text)
        if self.first in text or self.last in text:
            raise ValueError(
                "the chat template cuts through a special token's spelling in a message: take the "
                "spelling out of the message"
            )
        return text

    def prompt(self, text: str, vocab: Vocab) -> ChatPrompt:
        """A rendered text with its ids."""
        ids: list[int] = []
        for number, part in enumerate(self._stretches.split(text)):
            ids += vocab.encode(part, specials=number % 2 == 0, begun=number > 0)
        return ChatPrompt(self.plain(text), tuple(ids))


def _line(reason: str) -> str:
    """An error's text on one line, printable and short: a template may have written it."""
    line = " ".join("".join(each if each.isprintable() else " " for each in reason).split())
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]} ..."


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}"


def _object(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is none of these")


def find_template(folder: Path) -> ChatTemplate | None:
    """The template of a checkpoint's folder; of several the one called `default`."""
    return one_template(dict(_in_files(folder)) or dict(_in_settings(folder)), str(folder))


def one_template(named: Mapping[str, str], owner: str) -> ChatTemplate | None:
    """Of several templates by name the one called `default`."""
    if not named:
        return None
    if len(named) == 1 or DEFAULT in named:
        name = DEFAULT if DEFAULT in named else next(iter(named))
        return ChatTemplate(named[name], f"of {owner}")
    refusal = (
        f"{owner} has several chat templates ({', '.join(named)}), none called {DEFAULT}: give "
        "the file of one"
    )
    return ChatTemplate("", f"of {owner}", refusal=refusal)


def _in_files(folder: Path) -> Iterator[tuple[str, str]]:
    if (folder / TEMPLATE_FILE).is_file():
        yield DEFAULT, _read(folder / TEMPLATE_FILE)
    for path in sorted((folder / NAMED_TEMPLATES).glob("*.jinja")):
        yield path.stem, _read(path)


def _in_settings(folder: Path) -> Iterator[tuple[str, str]]:
    for path in (folder / name for name in SETTINGS_FILES):
        if path.is_file():
            settings = _read(path, parse_json)
            given = settings.get("chat_template") if isinstance(settings, dict) else None
            several = given if isinstance(given, list) else [{"name": DEFAULT, "template": given}]
            for each in several:
                if isinstance(each, dict) and isinstance(each.get("template"), str):
                    yield str(each.get("name", DEFAULT)), each["template"]


def read_template(path: Path) -> ChatTemplate:
    """The template in a file."""
    return ChatTemplate(_read(path), str(path))


def _read(path: Path, parsed: Callable[[str], Any] = str) -> Any:
    """The content of a file; errors name it."""
    try:
        return parsed(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
