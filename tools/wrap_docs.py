#!/usr/bin/env python3
"""Fails on lines of prose over 100 columns in Markdown files; --fix wraps them. What is read stays the same.

Usage: tools/wrap_docs.py [--fix]   (from anywhere)
Left as they are: tables, code, headings, quotes, HTML, and paragraphs with a hard line break.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
ITEM = re.compile(r"^(\s*)([*+-]|\d+[.)])(\s+)(?=\S)")
VERBATIM = re.compile(r"^\s*(\||#|>|<|\[[^\]]+\]:|[=*_-]{3,}\s*$)")
# Words that would begin a block if a line began with them.
BLOCK_WORD = re.compile(r" (?=([*+-]|#+|>\S*|\||\d+[.)]|[=-]{2,})(\s|$))")
CODE = re.compile(r"`[^`\n]{1,60}`")
GLUE = "\0"


def wrapped(text: str, first: str, rest: str) -> list[str]:
    text = re.sub(r"\s+", " ", text.strip())
    text = CODE.sub(lambda m: m[0].replace(" ", GLUE), text)
    text = BLOCK_WORD.sub(GLUE, text)
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(GLUE, " ") for line in lines]


def wrap(text: str) -> str:
    out: list[str] = []
    paragraph: list[str] = []
    first, rest = "", ""

    def end() -> None:
        nonlocal first, rest
        if paragraph:
            is_hard = any(line.endswith(("  ", "\\")) for line in paragraph[:-1])
            is_short = all(len(line) <= WIDTH for line in paragraph)
            # Only what is too long is touched: else each edit would move lines around.
            out.extend(
                paragraph
                if is_hard or is_short
                else wrapped(" ".join([paragraph[0][len(first) :], *paragraph[1:]]), first, rest)
            )
            paragraph.clear()
        first, rest = "", ""

    fence = ""
    for line in text.split("\n"):
        stripped = line.lstrip()
        if fence or stripped.startswith(("```", "~~~")):
            end()
            out.append(line)
            if not fence:
                fence = stripped[:3]
            elif stripped.startswith(fence):
                fence = ""
            continue
        if not stripped or (VERBATIM.match(line) and not (paragraph and stripped.startswith("<"))):
            end()
            out.append(line)
            continue
        item = ITEM.match(line)
        if item:
            end()
            first, rest = item[0], " " * len(item[0])
        elif not paragraph and line.startswith("    "):
            out.append(line)  # Code, or a paragraph deep in a list.
            continue
        elif not paragraph:
            first = rest = line[: len(line) - len(stripped)]
        paragraph.append(line)
    end()
    return "\n".join(out)


def main() -> int:
    fix = "--fix" in sys.argv[1:]
    names = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    bad = []
    for name in names:
        path = ROOT / name
        text = path.read_text()
        better = wrap(text)
        if better == text:
            continue
        if fix:
            path.write_text(better)
        else:
            bad.append(f"{name}: prose over {WIDTH} columns: run tools/wrap_docs.py --fix")
    print("\n".join(bad) if bad else f"docs: {len(names)} files, prose within {WIDTH} columns")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
