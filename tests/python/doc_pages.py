"""The pages of the documentation, their code and their links, for tests."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
_FENCE = re.compile(r"^( *)(```+|~~~+) *(\w*)[^\n]*\n(.*?)^ *\2 *$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SPAN = re.compile(r"(`+)(.+?)\1", re.S)


class Code(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def code_blocks(page: Path, *languages: str) -> Iterator[Code]:
    text = page.read_text()
    for match in _FENCE.finditer(text):
        if match[3] in languages:
            line = text.count("\n", 0, match.start()) + 2
            yield Code(page, line, match[3], textwrap.dedent(match[4]))


def without_code(page: Path) -> str:
    """The page with blank lines for its code blocks."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text())


def code_spans(page: Path, beginning: str) -> Iterator[Code]:
    """Code within a line that begins so."""
    text = without_code(page)
    for match in _SPAN.finditer(text):
        span = " ".join(match[2].split())
        if span.startswith(beginning):
            yield Code(page, text.count("\n", 0, match.start()) + 1, "span", span)


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Line and target of each link to a file or a heading of ours."""
    text = _SPAN.sub(lambda match: " " * len(match[0]), without_code(page))
    for match in _LINK.finditer(text):
        if "://" not in match[1] and not match[1].startswith("mailto:"):
            yield text.count("\n", 0, match.start()) + 1, match[1]


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.+?) *$", without_code(page), re.M)
    names: set[str] = set()
    for heading in headings:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = sum(1 for other in names if other == name or re.fullmatch(rf"{re.escape(name)}-\d+", other))
        names.add(f"{name}-{count}" if count else name)
    return names
