"""tools/mutate.py breaks what tests can notice, in places that depend on the seed alone."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "src").is_dir():
    pytest.skip("needs the sources of the engine", allow_module_level=True)
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402
import mutate  # noqa: E402


def broken(body: str, head: str = "int f(int a, int b)") -> list[str]:
    """What each mutant of a function makes of its body."""
    text = f"namespace x {{\n{head} {{\n  {body}\n}}\n}}\n"
    found = []
    for place in mutants.Source(text).places():
        changed = text[: place.begin] + place.template.replace("{m}", "M") + text[place.end :]
        found.append(changed.split("{\n", 2)[2].removesuffix("\n}\n}\n").strip())
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b;", ["return (M ? (a) <= (b) : (a) < (b));"]),
        ("return g(a, b) == a + b;", ["(g(a, b)) != (a + b)", "a + (M ? -(b) : (b))"]),
        ("return a && b || f(a);", ["(M ? (a) || (b) : (a) && (b)) || f(a)", "(a && b) && (f(a))"]),
        ("return a * 7 - b;", ["a * (M ? 7 + 1 : 7)", "a * 7 - (M ? -(b) : (b))"]),
        ("if (a) g(b);", ["if (M != static_cast<bool>(a))", "if (a) { if (!M) { g(b); } }"]),
        ("return std::min(a, b);", ["return (M ? std::max(a, b) : std::min(a, b));"]),
        ("a.b->c[a] = b;", ["{ if (!M) { a.b->c[a] = b; } }"]),
        ("while (true) continue;", ["while ((M != true))", "{ if (!M) { continue; } }"]),
    ],
)
def test_what_is_broken(body: str, expected: list[str]) -> None:
    found = broken(body)
    assert len(found) == len(expected)
    assert all(one in text for one, text in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    "body",
    [
        'Status s(Code::kCorrupt, fmt::format("{} of {}", a + 1, b - 1));',  # words of a message
        'std::string text = name + ": " + std::string(key);',
        "items.reserve(a);",
        "HEADRACE_DCHECK(a < b);",
        "constexpr int kCount = 7;",
        "std::vector<int> items(a);",  # a declaration
        "// a < b",
        "/* f(a); */",
    ],
)
def test_what_no_test_could_notice_is_left_alone(body: str) -> None:
    assert broken(body) == []


def test_only_bodies_of_functions_that_run_are_broken() -> None:
    assert broken("return a < b;", head="constexpr bool f(int a, int b)") == []
    assert broken("int count = 7;", head="struct Options") == []
    assert broken("f(a);", head="template <class T> void f(T a)") != []


def test_lines_keep_their_numbers() -> None:
    [first, *_] = mutants.Source("bool f() {\n  return a &&\n         b;\n}\n").places()
    assert (first.line, first.template.count("\n")) == (2, 0)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git knows which files there are")
def test_the_seed_decides_and_every_folder_has_its_share() -> None:
    folders = ["copy", "pack", "bindings"]
    found = mutate.Draw(5, folders).all(70)
    assert found == mutate.Draw(5, folders).all(70)
    assert len({(m.file, m.line) for m in found}) == 70
    assert min(Counter(m.folder for m in found).values()) >= mutate.LEAST
    assert not [m.file for m in found if m.file.endswith("_test.cc") or "fixture" in m.file]
