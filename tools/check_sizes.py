#!/usr/bin/env python3
"""Fails on files over 1,000 lines and functions over 100 lines (house limits); lists what is near.

Usage: tools/check_sizes.py [-v]
Functions are found by brace matching after stripping comments and strings: a heuristic, good to a few lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LIMIT, FUNCTION_LIMIT, FUNCTION_ASK = 1000, 100, 60
STRIP = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
HEAD = re.compile(r"[\w>&*\]]\s*\([^;{}]*\)\s*(?:const|noexcept|override|final|\s|->[^{;]*|:[^{;]*)*\{")


def functions(text: str) -> list[tuple[int, int]]:
    """(first line, line count) of every outermost brace block that follows a parameter list."""
    text = STRIP.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    found, at = [], 0
    while match := HEAD.search(text, at):
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        first = text.count("\n", 0, match.start()) + 1
        found.append((first, text.count("\n", 0, end) + 1 - first + 1))
        at = end
    return found


def main() -> int:
    names = subprocess.run(
        ["git", "ls-files", "*.h", "*.cc", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    bad, near = [], []
    for name in names.stdout.split():
        text = (ROOT / name).read_text()
        lines = text.count("\n")
        if lines > FILE_LIMIT:
            bad.append(f"{name}: {lines} lines (limit {FILE_LIMIT})")
        if name.endswith(".py"):
            continue
        for first, count in functions(text):
            if count > FUNCTION_LIMIT and not name.endswith("_test.cc"):
                bad.append(f"{name}:{first}: function of {count} lines (limit {FUNCTION_LIMIT})")
            elif count > FUNCTION_ASK:
                near.append(f"{name}:{first}: function of {count} lines")
    if "-v" in sys.argv:
        print("\n".join(near))
    print("\n".join(bad) if bad else f"sizes: within limits; {len(near)} functions over {FUNCTION_ASK} lines")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
