#!/usr/bin/env python3
"""Counts places in C++ and Python that repeat six or more lines of another.

Usage: tools/repeats.py [--shape] [--list] [--lines N] [FOLDER ...]   (from anywhere)
A line is compared without blanks, comments and, with --shape, without names and values: `a = f(b, 3)` is then
as `x = g(y, 4)`. Lines without a letter (braces), includes, imports and docstrings do not count, and
neither do runs whose lines are all alike. Of k places that are the same, k - 1 count.
"""

from __future__ import annotations

import argparse
import itertools
import keyword
import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TOKEN = re.compile(
    r"""[rbfuL]{0,2}("""  # a string, a number, a name, or one other character
    r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(\d[\w.']*)|([A-Za-z_]\w*)|(\S)"""
)
_CPP_WORDS = """auto bool break case catch class const constexpr continue default delete do else enum explicit
false final for friend if inline int namespace new noexcept nullptr operator override private protected public
return sizeof static struct switch template this throw true try typename using virtual void while"""
WORDS = frozenset(_CPP_WORDS.split()) | frozenset(keyword.kwlist)
# Of what two thirds of the lines are.
KINDS = {
    "rows: of tables, arguments, parameters": re.compile(r",$"),
    "fields": re.compile(r"^\w+ : [^()]*$|^[^()=]*\w( = [\w.]+| \{ [\w.]+ \})? ;$"),
    "cases of a switch": re.compile(r"^case |^default :|^break ;$|^return [^()]*;$"),
}
PASSED_OVER = re.compile(r"\s*(#\s*include\b|#\s*pragma\b|import\b|from\b.*\bimport\b|using\b|///?|#|$)")


class Line(NamedTuple):
    number: int
    text: str


class Run(NamedTuple):
    """Lines [begin, begin + count) of a file, in lines that count."""

    file: int
    begin: int


def normalised(line: str, by_shape: bool) -> str:
    out = []
    for string, number, name, other in TOKEN.findall(line):
        if not by_shape:
            out.append(string or number or name or other)
        elif string or number:
            out.append("0")
        else:
            out.append(other or (name if name in WORDS else "n"))
    return " ".join(out)


def lines_of(path: Path, by_shape: bool) -> list[Line]:
    found = []
    in_text = False  # a docstring: prose, no code
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if path.suffix == ".py" and line.count('"""') % 2 == 1:
            in_text = not in_text
            continue
        if in_text or PASSED_OVER.match(line) or not re.search("[A-Za-z]", line):
            continue
        code = re.split(r"\s//[ /]|\s#\s" if path.suffix == ".py" else r"\s//", line)[0]
        found.append(Line(number, normalised(code, by_shape)))
    return found


def is_table(lines: list[Line], begin: int, count: int) -> bool:
    return len({re.sub(r"\w+", "n", line.text) for line in lines[begin : begin + count]}) <= 2


def find_pairs(files: list[list[Line]], least: int) -> list[tuple[Run, Run, int]]:
    """(one place, the next that repeats it, lines) of each pair, as long as it goes on."""
    windows: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for f, lines in enumerate(files):
        for i in range(len(lines) - least + 1):
            windows[tuple(line.text for line in lines[i : i + least])].append(Run(f, i))
    links = {
        (a, b)
        for places in windows.values()
        for a, b in itertools.pairwise(places)
        if a.file != b.file or b.begin >= a.begin + least
    }
    pairs = []
    for a, b in sorted(links):
        if (Run(a.file, a.begin - 1), Run(b.file, b.begin - 1)) in links:
            continue
        count = least
        while (Run(a.file, a.begin + count - least + 1), Run(b.file, b.begin + count - least + 1)) in links:
            count += 1
        if not is_table(files[a.file], a.begin, count):
            pairs.append((a, b, count))
    return pairs


def side_of(path: str) -> str:
    if path.startswith("examples/"):
        return "examples/"
    if path.startswith(("tests/", "fuzz/")) or re.search(
        r"_test\.cc$|/testing/|_(fixture|test_util)\.h$|/fake_", path
    ):
        return "tests"
    if path.endswith(".h"):
        return "headers"
    return "python/, bench/, tools/" if path.endswith(".py") or path.startswith("bench/") else "src/*.cc"


def kind_of(paths: tuple[str, str], lines: list[Line]) -> str:
    """What repeats what: rows, fields and cases are alike on purpose, wherever they stand."""
    texts = [line.text for line in lines]
    for kind, pattern in KINDS.items():
        if sum(bool(pattern.search(text)) for text in texts) * 3 >= len(texts) * 2:
            return kind
    return " and ".join(sorted({side_of(path) for path in paths}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", help="of the repository; all without any")
    parser.add_argument("--shape", action="store_true", help="whatever the names and values are")
    parser.add_argument("--list", action="store_true", help="name the places")
    parser.add_argument("--lines", type=int, default=6, help="that must be the same")
    args = parser.parse_args()
    listed = subprocess.run(
        ["git", "ls-files", *(args.folders or ["."])], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [n for n in listed.stdout.split("\n") if n.endswith((".cc", ".h", ".py")) and "/data/" not in n]
    files = [lines_of(ROOT / name, args.shape) for name in names]
    pairs = find_pairs(files, args.lines)
    counts: Counter[str] = Counter()
    for a, b, count in pairs:
        kind = kind_of((names[a.file], names[b.file]), files[a.file][a.begin : a.begin + count])
        counts[kind] += 1
        if args.list:
            places = [f"{names[at.file]}:{files[at.file][at.begin].number}" for at in (a, b)]
            print(f"{count:4} {places[0]}  {places[1]}  ({kind})")
    for kind, count in counts.most_common():
        print(f"{count:5}  {kind}")
    how = " by shape" if args.shape else ""
    print(f"{len(pairs):5}  pairs in {len(names)} files, {args.lines} lines or more{how}")


if __name__ == "__main__":
    main()
