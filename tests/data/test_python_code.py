"""What counts as Python in each mode, and what is taken off a program."""

from __future__ import annotations

import ast

import pytest

from anyorder.data.filters import (
    extract_python,
    has_marks_of_python,
    is_python,
    whole_program,
    without_blank_lines,
    without_docstring,
)
from anyorder.data.published import FlaskApp, without_demonstration

SOLUTION = "def area(w, h):\n    return w * h\n"


@pytest.mark.parametrize(
    ("code", "by_marks", "by_parse"),
    [
        ("def f(x):\n    return x", True, True),
        ('def f(x):\n    """Solved using a stack."""\n    return x', False, True),
        ("def f(func ):\n    return func ", False, True),
        ("import java.util.*;\npublic class A {}", False, False),
        ("def f(x)\n    return x", True, False),
        ("I define def f in class, from here on.", True, False),
        ("x = 1", False, False),
        ("Hello", False, False),
    ],
)
def test_the_substring_test_and_the_parse_disagree_where_the_text_misleads(
    code: str, by_marks: bool, by_parse: bool
) -> None:
    assert has_marks_of_python(code) is by_marks
    assert is_python(code) is by_parse


def fenced(*blocks: tuple[str, str]) -> str:
    return "Text.\n" + "\nMore.\n".join(f"```{name}\n{code}\n```" for name, code in blocks)


def test_the_last_python_block_is_taken_else_the_last_block() -> None:
    one, two = "def one(): pass", "def two(): pass"
    assert extract_python(fenced(("python", one), ("py", two), ("bash", "ls")), "compat") == two
    assert extract_python(fenced(("", one), ("text", two)), "compat") == two
    assert extract_python(one, "compat") == extract_python(one, "exact") == one
    assert extract_python("no code here", "exact") is None


def test_exact_looks_further_where_the_last_block_is_no_program() -> None:
    text = fenced(("python", SOLUTION), ("python", ">>> area(1, 2)\n2"))
    assert extract_python(text, "compat") is None
    assert extract_python(text, "exact") == SOLUTION.strip()
    output = fenced(("", SOLUTION), ("", "2\n3"))
    assert extract_python(output, "exact") == SOLUTION.strip()


def test_a_whole_program_may_stand_between_fences() -> None:
    assert whole_program(f"```python\n{SOLUTION}```") == SOLUTION.strip()
    assert whole_program("x = 1") == "x = 1"
    assert whole_program("```java\nint x;\n```") is None
    assert whole_program("def f(:") is None


def test_docstrings_and_blank_lines_go_and_the_rest_stays() -> None:
    code = (
        'def f() -> int:\n    """How many?\n\n    Many."""\n\n    x = "a\\n\\nb"\n  \n    return x'
    )
    cleaned = without_blank_lines(without_docstring(code))
    assert cleaned == 'def f() -> int:\n    x = "a\\n\\nb"\n    return x'
    alone = 'def f():\n    """Only this."""'
    assert without_docstring(alone) == alone
    broken = 'def f(:\n    """Text."""\n    return 1'
    assert without_docstring(broken) == broken
    assert without_docstring("x = 1") == "x = 1"


DEMONSTRATED = {
    "calls": "print(area(1, 2))\narea(3, 4)\n",
    "a main guard": 'if __name__ == "__main__":\n    x = area(1, 2)\n    print(x)\n',
    "a named test": "def test_area():\n    assert area(1, 2) == 2\ntest_area()\n",
    "a loop with a banner": "\n# Example usage:\nfor w in range(3):\n    print(area(w, w))\n",
    "many prints": "try:\n    print(1)\n    print(2)\n    print(3)\nexcept ValueError:\n    pass\n",
}


@pytest.mark.parametrize("tail", DEMONSTRATED.values(), ids=DEMONSTRATED)
def test_a_tail_of_example_calls_is_taken_off(tail: str) -> None:
    assert without_demonstration(SOLUTION + tail, "Compute the area.") == SOLUTION


KEPT = {
    "nothing to take off": SOLUTION,
    "a bare assertion": f"{SOLUTION}assert area(1, 2) == 2\n",
    "something before the last definition": f"print(1)\n{SOLUTION}print(2)\n",
    "input": f"{SOLUTION}print(area(int(input()), 1))\n",
    "arguments": f"import sys\n{SOLUTION}print(area(int(sys.argv[1]), 1))\n",
    "flask": f"from flask import Flask\napp = 1\n{SOLUTION}",
    "no Python": "def f(:\nprint(1)\n",
    "only a demonstration": "def main():\n    print(1)\nmain()\n",
    "an else": f'{SOLUTION}if __name__ == "__main__":\n    print(1)\nelse:\n    print(2)\n',
}


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_other_tails_stay(code: str) -> None:
    assert without_demonstration(code, "Compute the area.") == code


@pytest.mark.parametrize("prompt", ["Write a script.", "a command-line tool", "Use argparse."])
def test_a_prompt_for_a_script_keeps_its_calls(prompt: str) -> None:
    code = f"{SOLUTION}print(area(1, 2))\n"
    assert without_demonstration(code, prompt) == code


def test_a_name_that_the_prompt_asks_for_is_no_demonstration() -> None:
    code = f"{SOLUTION}def run():\n    return 1\nrun()\n"
    assert without_demonstration(code, "Compute the area.") == SOLUTION
    asked = without_demonstration(code, "Write the function run.")
    assert asked == f"{SOLUTION}def run():\n    return 1\n"


def test_a_flask_app_with_a_main_guard_is_left_out() -> None:
    code = 'from flask import Flask\ndef f():\n    return Flask("x")\n'
    with pytest.raises(FlaskApp):
        without_demonstration(f'{code}if __name__ == "__main__":\n    f().run()\n', "An app.")
    assert ast.parse(without_demonstration(f"{code}f()\n", "An app."))
