"""Python programs as lists of the pieces that the segmenter `statement` must find in them."""

from __future__ import annotations

from hypothesis import strategies as st

PROGRAMS: dict[str, list[str]] = {
    "nothing": [],
    "blank lines alone": ["\n  \n\n"],
    "a comment alone": ["# a plan"],
    "no final newline": ["x = 1\n", "y = 2"],
    "semicolons": ["x = 1; y = 2; z = 3\n", "w = 4;\n"],
    "semicolons over two lines": ["x = (1,\n 2); y = 3\n", "z = 4\n"],
    "nested blocks": [
        "def f(x):\n",
        "    for y in x:\n",
        "        if y:\n",
        "            return y\n",
        "    return None\n",
        "f([1])\n",
    ],
    "decorators": [
        "@first\n@second(\n    1,\n)\n# why\n@third\ndef f(): pass\n",
        "\n@last\nclass A:\n",
        "    @property\n    async def g(self):\n",
        "        return a @ b\n",
    ],
    "docstrings": [
        '"""Of\n\nthe module: if x:\n    pass\n"""\n',
        "def f():\n",
        "    '''Of f\n@decorator\n    '''\n",
        "    return 1\n",
    ],
    "a call over many lines": ["x = call(\n    1,\n# between\n\n    b=[\n2],\n)\n", "y = 1\n"],
    "comments": [
        "# before\nx = 1  # beside\n",
        "if x:\n",
        "    # within\n    y = 1\n",
        "    # dedented later\n\n# at the end of the block\nz = 1\n",
        "w = 2\n# last\n\n",
    ],
    "clauses": [
        "if a: b\n",
        "elif c:\n",
        "    d\n",
        "else: e\n",
        "for x in y:\n",
        "    pass\n",
        "else:\n",
        "    pass\n",
        "while x:\n",
        "    break\n",
        "# no break\nelse:\n",
        "    x\n",
    ],
    "try": [
        "try:\n",
        "    f()\n",
        "except (A,\n        B) as e:\n",
        "    pass\n",
        "except:\n",
        "    raise\n",
        "else:\n",
        "    g()\n",
        "finally:\n",
        "    h()\n",
    ],
    "groups": ["try:\n", "    f()\n", "except* A:\n", "    pass\n"],
    "match": [
        "match x:\n",
        "    case [1, *_] if y:\n",
        "        pass\n",
        "    case {'a':\n 1}: pass\n",
        "    # else\n    case _:\n",
        "        match = case = 1\n",
    ],
    "with": ["with (\n    a as b,\n    c,\n):\n", "    pass\n", "with a: pass\n"],
    "async": [
        "async def f():\n",
        "    async with a as b:\n",
        "        await c\n",
        "    async for d in e:\n",
        "        yield d\n",
    ],
    "continued lines": ["x = 1 + \\\n    2\n", "if x and \\\n   y:\n", "    z\n", "\\\nw = 1\n"],
    "words that look like headers": ["else_ = 'else:'\n", "x = a if b else c\n", "elif_\n"],
    "tabs": ["if x:\n", "\ty = 1\n", "\tif y:\n", "\t\tz = '\t'\n"],
    "windows": ["if x:\r\n", "    y = '''a\r\nb'''\r\n", "\r\n# c\r\nz = 1\r\n"],
    "old line ends": ["x = 1\r", "\ry = 2\r", "z = 3"],
    "mixed line ends": ["x = 1\r", "y = 2\r\n", "z = 3\n"],
    "form feeds": ["x = 1\n", "\x0c\ny = 2\n", "\x0cz = 3\n"],
    "unicode": ["prix_é = 'déjà\u2028vu \x85'  # \u4f60\n", "变量 = '\U0001f600'\n"],
    "strings": ['x = \'a#b;c\'; y = """\n#\n"""\n', "z = f'{x}' 'b' \\\n  'c'\n"],
}


SIMPLE = [
    "x = 1",
    "x = 1; y = 2",
    "call(\n  1,\n# inner\n\n)",
    '"""one\n  @two\n"""',
    "x = \\\n  3",
    "pass  # beside",
    "s = 'é;b#c'; t = [\n]",
    "del x,",
    "x: int = {'a':\n'b'}",
    "lambda: (\nyield_)",
]
ABOVE = ["", "", "", "\n", "# above\n", "   # odd\n\n", "\t \n", "\n\n#\n"]
DECORATORS = ["", "", "@a\n", "@a.b(\n 1)\n# between\n\n@c\n"]
DECORATED = ["def f(a,\n  b=1) -> c:", "class A(b):", "async def f():"]
HEADERS = [
    ["if a:"],
    ["if (a\n):", "elif b:", "else:"],
    ["for a in b:", "else:"],
    ["while a and \\\n b:"],
    ["try:", "except A:", "except B as b:", "else:", "finally:"],
    ["try:", "finally:"],
    ["with a as b, c:"],
]


def indented(text: str, depth: int) -> str:
    """Decorators and their like indented line by line; what is inside brackets may stay."""
    return "    " * depth + text


@st.composite
def block(draw: st.DrawFn, depth: int) -> list[str]:
    """The pieces of some statements, each at this depth or below."""
    found: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["simple", "simple", "compound", "decorated", "match"]))
        if depth > 2 or kind == "simple":
            found.append(piece(draw, draw(st.sampled_from(SIMPLE)), depth))
        elif kind == "decorated":
            above = draw(st.sampled_from(DECORATORS))
            # Decorators must be indented, what stands inside brackets or in comments need not.
            above = "".join(
                indented(line, depth) if line.startswith("@") else line
                for line in above.splitlines(keepends=True)
            )
            header = indented(draw(st.sampled_from(DECORATED)), depth)
            found.append(f"{draw(st.sampled_from(ABOVE))}{above}{header}\n")
            found += draw(block(depth + 1))
        elif kind == "match":
            found.append(piece(draw, "match a, b:", depth))
            for header in ("case [1, *_]:", "case _:"):
                found += clause(draw, header, depth + 1)
        else:
            for header in draw(st.sampled_from(HEADERS)):
                found += clause(draw, header, depth)
    return found


def piece(draw: st.DrawFn, text: str, depth: int) -> str:
    return f"{draw(st.sampled_from(ABOVE))}{indented(text, depth)}\n"


def clause(draw: st.DrawFn, header: str, depth: int) -> list[str]:
    if draw(st.booleans()):
        return [piece(draw, header, depth), *draw(block(depth + 1))]
    return [piece(draw, f"{header} pass", depth)]


@st.composite
def program(draw: st.DrawFn) -> list[str]:
    """The pieces of a program, with any line ends, and something or nothing behind the last."""
    pieces = draw(block(0))
    pieces[-1] = pieces[-1].removesuffix("\n") + draw(
        st.sampled_from(["", "\n", "\n\n# end", "\n\n"])
    )
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    return [each.replace("\n", end) for each in pieces]
