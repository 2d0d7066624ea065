"""What test statements see of a program that runs elsewhere, and how its calls are batched.

`Function` is a name of the program, `Object` something it returned that is no plain value (an
instance of its class, a generator, a match). Both ask the confined child and return plain values.
An exception of the program becomes the builtin exception of the same type, so tests with `try`
work. Its end (time, memory, death) becomes `ProgramEnded`, which tests cannot take for an ordinary
exception, and which is remembered even if they catch it. An `Object` has no ==, ordering,
arithmetic or `in` of the program's: these would show the sample what is expected, and let it answer
as it likes. It equals only itself. It asks the program only questions that give nothing away:
truth, length, items, attributes.

`compile_tests` inserts a statement before each run of asserts whose calls have constant arguments:

    assert f(1) == 2                         __prefetch__(((f, (1,)), (f, (2,))), ())
    assert set(f(2)) == {3}        ->        assert f(1) == 2
                                             assert set(f(2)) == {3}

It names the calls in the order in which they will be made, so that judge.py can send them as one
batch; nine in ten tests of HumanEval and MBPP are such runs. The asserts themselves stay as they
are. A run is broken by whatever could change the number, order or arguments of the calls: anything
but an assert, short circuits, comprehensions, other arguments. Tests that could catch a failure and
continue (`try`, `with`) are not rewritten. Only at run time is it known which names are the
program's, so all names of a run are handed over.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from anyorder.bench.sandbox import Broken, Child, Failed, Remote

MOST_ITEMS = 1 << 20
"""The most items that one loop may fetch from an iterable of the program."""

FROM_PROGRAM = "_anyorder_failed"
"""The attribute of a rebuilt exception that holds the program's failure."""


class ProgramEnded(BaseException):
    """The program has ended and answers no more."""

    def __init__(self, why: Failed | Broken) -> None:
        super().__init__(str(why))
        self.why = why


class RemoteSession:
    """The exchange between one run of test statements and one child."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.ended: Failed | Broken | None = None
        """Why the program ended, if it did; Broken: the fork-server died, perhaps not its doing."""
        self.raised: Failed | None = None
        """The first exception that a call of the program raised."""
        self._objects: dict[int, Object] = {}
        self._batch: Iterator[Any] = iter(())
        self._waiting: deque[tuple[str, tuple[Any, ...] | None]] = deque()
        """Calls of the batch that the test statements have not made yet; None for the arguments of
        a call that has run, since the program may have changed them."""
        self._results: deque[Any] = deque()
        """Results of these calls that were read early, to free the channel."""

    def prefetch(self, function: str, calls: Sequence[tuple[Any, ...]]) -> None:
        """Send calls that the test statements will make next, in this order."""
        assert not self._waiting
        self._waiting.extend((function, arguments) for arguments in calls)
        self._batch = self.child.calls(function, tuple(calls))

    def call(
        self, function: str | Remote, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        if self._waiting and not isinstance(function, Remote):
            foreseen = self._waiting.popleft()
            assert foreseen in ((function, arguments), (function, None)), "not foreseen"
            return self._called(self._next_result)
        lowered = tuple(map(_lowered, arguments))
        named = {name: _lowered(value) for name, value in keywords.items()}
        return self._called(lambda: self._settled().call(function, lowered, named))

    def ask(self, operation: str, *arguments: Any) -> Any:
        lowered = tuple(map(_lowered, arguments))
        return self._answered(lambda: self._settled().ask(operation, *lowered))

    def _next_result(self) -> Any:
        return self._results.popleft() if self._results else next(self._batch)

    def _settled(self) -> Child:
        """The child, after it has answered the whole batch, ready for another question.

        If it fails on a later call of the batch, the tests learn that now. The verdict is the same:
        tests that could catch a failure are never batched.
        """
        while len(self._results) < len(self._waiting):
            place = len(self._results)
            self._waiting[place] = (self._waiting[place][0], None)
            self._results.append(next(self._batch))
        return self.child

    def object_of(self, remote: Remote) -> Object:
        """The object for a handle: the same thing of the program is the same object here."""
        return self._objects.setdefault(remote.handle, Object(self, remote))

    def _called(self, answer: Any) -> Any:
        try:
            return self._answered(answer)
        except BaseException as error:
            self.raised = self.raised or getattr(error, FROM_PROGRAM, None)
            raise

    def _answered(self, answer: Any) -> Any:
        if self.ended is not None:
            raise ProgramEnded(self.ended)
        try:
            return _raised_up(answer(), self)
        except Failed as failed:
            if failed.exception is not None:
                raise _builtin_exception(failed) from None
            self.ended = failed
        except Broken as broken:
            self.ended = broken
        raise ProgramEnded(self.ended)


class Function:
    """A function or class of the program, by name."""

    def __init__(self, session: RemoteSession, name: str) -> None:
        self._session = session
        self.__name__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._session.call(self.__name__, arguments, keywords)


class Object:
    """Something that the program returned and that stays with it."""

    __slots__ = ("_ahead", "_remote", "_session")

    def __init__(self, session: RemoteSession, remote: Remote) -> None:
        object.__setattr__(self, "_session", session)
        object.__setattr__(self, "_remote", remote)
        object.__setattr__(self, "_ahead", deque())  # items of an iterator, brought over early

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._session.call(self._remote, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        # Python and its libraries look such names up unasked and trust the answer: numpy would read
        # this process's memory at an address that the program gives in `__array_interface__`.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._session.ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._session.ask("attribute", self, "__setattr__")(name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._session.ask("item", self, key)

    def __len__(self) -> int:
        return int(self._session.ask("length", self))

    def __bool__(self) -> bool:
        for ask in (lambda: self._session.ask("attribute", self, "__bool__")(), self.__len__):
            try:
                return ask() not in (False, 0)
            except (AttributeError, TypeError):
                continue
        return True

    def __iter__(self) -> Iterator[Any]:
        source = self._session.ask("iterator", self)
        if type(source) is not Object:
            raise TypeError("the object has no iterator")
        return _in_pieces(source)

    def __next__(self) -> Any:
        return self._ahead.popleft() if self._ahead else self._session.ask("next", self)

    def __contains__(self, item: Any) -> bool:
        return any(item is each or item == each for each in self)

    def __repr__(self) -> str:
        return f"<{self._remote.type_name} of the program>"


def _in_pieces(source: Object) -> Iterator[Any]:
    """The items of a remote iterator, in growing pieces: it may be endless, and tests want few."""
    wanted, total, done = 1, 0, False
    while True:
        while source._ahead:
            yield source._ahead.popleft()
        if done:
            return
        piece = source._session.ask("items", source, wanted)
        if type(piece) is not list:
            raise TypeError("these are no items")
        total += len(piece)
        if total > MOST_ITEMS:
            raise ValueError(f"more than {MOST_ITEMS} items")
        source._ahead.extend(piece)
        wanted, done = 2 * wanted, len(piece) < wanted


def failure_of(error: BaseException) -> Failed | Broken | None:
    """The program's failure behind an exception; None if the tests raised it."""
    if isinstance(error, ProgramEnded):
        return error.why
    failed = getattr(error, FROM_PROGRAM, None)
    return failed if isinstance(failed, Failed) else None


def _builtin_exception(failed: Failed) -> BaseException:
    """The program's exception as the nearest builtin type: no class of the program comes here."""
    for name in (*failed.bases, "Exception"):
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            try:
                error = kind.__new__(kind)
            except TypeError:  # exception groups must have members
                continue
            error.args = (failed.detail.partition(": ")[2],)
            setattr(error, FROM_PROGRAM, failed)
            return error
    raise AssertionError("Exception itself can always be made")


def _raised_up(value: Any, session: RemoteSession) -> Any:
    """A result for the test statements: remote handles in it become objects."""
    kind = type(value)
    if kind is Remote:
        return session.object_of(value)
    if kind in (list, tuple) and any(type(item) in _HOLDERS for item in value):
        return kind(_raised_up(item, session) for item in value)
    if kind is dict and any(type(item) in _HOLDERS for item in value.values()):
        return {key: _raised_up(item, session) for key, item in value.items()}
    return value


def _lowered(value: Any) -> Any:
    """An argument for the child: objects in it become the handles that they stand for."""
    kind = type(value)
    if kind is Object:
        return object.__getattribute__(value, "_remote")
    if kind is Function:
        raise TypeError(f"{value.__name__} is the program's own: it cannot be an argument")
    if kind in (list, tuple) and any(type(item) in _HOLDERS for item in value):
        lowered = [_lowered(item) for item in value]
        same = all(old is new for old, new in zip(value, lowered, strict=True))
        return value if same else kind(lowered)  # the same one: the child's changes go into it
    return value


_HOLDERS = frozenset({Remote, Object, Function, list, tuple, dict})
"""Types that are, or may hold, something remote."""


PREFETCH = "__prefetch__"
"""The name that inserted statements call: __prefetch__(((function, arguments), ...), others)."""

_CATCHING = re.compile(r"\b(?:try|with|except)\b")

FEWEST = 2
"""Calls that are worth a batch."""

_PLAIN = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Call),
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.keyword),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.cmpop),
)
"""Nodes whose parts are all evaluated, once each, in the order of the syntax tree."""


@dataclass
class _Asserts:
    """Neighbouring asserts, and what they call."""

    statements: list[ast.stmt] = field(default_factory=list)
    calls: list[ast.expr] = field(default_factory=list)
    """Tuples (function, arguments), each of a name and constants."""
    others: set[str] = field(default_factory=set)
    """All other names: if one is the program's, there are more calls than these."""

    def with_prefetch(self) -> list[ast.stmt]:
        if len(self.calls) < FEWEST:
            return self.statements
        here = self.statements[0]
        names = [_name(name, here) for name in sorted(self.others)]
        arguments = [_tuple(self.calls, here), _tuple(names, here)]
        call = ast.copy_location(ast.Call(_name(PREFETCH, here), arguments, []), here)
        return [ast.copy_location(ast.Expr(call), here), *self.statements]


def compile_tests(code: str, filename: str, *, foresee: bool = True) -> CodeType:
    """The statements as a code object that calls `__prefetch__` before runs of plain asserts."""
    tree = ast.parse(code, filename)
    if foresee and not goes_on_after_failure(code):
        tree.body = list(_rewritten(tree.body))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                node.body = list(_rewritten(node.body))
    # Without these two, our own future import and -O would change what the tests say.
    return compile(tree, filename, "exec", dont_inherit=True, optimize=0)


def goes_on_after_failure(code: str) -> bool:
    """Whether the statements may catch what they raise; in doubt, yes."""
    return _CATCHING.search(code) is not None


def _rewritten(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    run = _Asserts()
    for statement in body:
        found = _plain_assert(statement)
        if found is None:
            yield from run.with_prefetch()
            yield statement
            run = _Asserts()
        else:
            run.statements.append(statement)
            run.calls += found.calls
            run.others |= found.others
    yield from run.with_prefetch()


def _plain_assert(statement: ast.stmt) -> _Asserts | None:
    """The calls of an assert; None if the statement is no assert, or breaks a run."""
    if not isinstance(statement, ast.Assert):
        return None
    if statement.msg is not None and not _is_constant(statement.msg):
        return None
    found = _Asserts()
    return found if _collect(statement.test, found) else None


def _collect(node: ast.AST, found: _Asserts) -> bool:
    """Add the calls below `node` in the order of evaluation; False if that is not certain."""
    if _is_constant(node):
        return True
    if not isinstance(node, _PLAIN) or (isinstance(node, ast.Compare) and len(node.ops) > 1):
        return False
    if isinstance(node, ast.Name):
        found.others.add(node.id)
        return True
    if isinstance(node, ast.Call):
        if not isinstance(_root(node.func), ast.Name):
            return False  # a method of something that a call returned may be the program's
        constant = not node.keywords and all(map(_is_constant, node.args))
        if constant and isinstance(node.func, ast.Name):
            arguments = _tuple(list(node.args), node)
            found.calls.append(_tuple([_name(node.func.id, node), arguments], node))
            return True
    return all(_collect(child, found) for child in ast.iter_child_nodes(node))


def _root(node: ast.expr) -> ast.expr:
    """The expression before the first dot."""
    return _root(node.value) if isinstance(node, ast.Attribute) else node


def _is_constant(node: ast.AST | None) -> bool:
    """Whether an expression holds only literals and operators. Fast, since tests have long ones."""
    kind = type(node)
    if kind is ast.Constant:
        return True
    parts = _PARTS.get(kind)
    return parts is not None and all(map(_is_constant, parts(node)))


_PARTS: dict[type, Callable[[Any], Iterable[ast.AST | None]]] = {
    ast.List: lambda node: node.elts,
    ast.Tuple: lambda node: node.elts,
    ast.Set: lambda node: node.elts,
    ast.Dict: lambda node: [*node.keys, *node.values],
    ast.UnaryOp: lambda node: (node.operand,),
    ast.BinOp: lambda node: (node.left, node.right),
}
"""The expressions that are constant if their parts are; a dict's `**` has no key, hence is not."""


def _name(name: str, where: ast.stmt | ast.expr) -> ast.expr:
    return ast.copy_location(ast.Name(name, ast.Load()), where)


def _tuple(items: list[ast.expr], where: ast.stmt | ast.expr) -> ast.expr:
    return ast.copy_location(ast.Tuple(items, ast.Load()), where)
