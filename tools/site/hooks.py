"""Hooks of mkdocs (mkdocs.yml). The pages of docs/ are written as GitHub shows them; here they become what
mkdocs needs: files outside of docs/ that they link to (examples, headers, CHANGELOG.md) become pages under
files/, and lists get the blank lines and the four spaces that Python-Markdown wants."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = "files/"
"""Where pages of files outside of docs/ are."""
LANGUAGES = {
    ".h": "cpp",
    ".cc": "cpp",
    ".py": "python",
    ".sh": "sh",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".sbatch": "sh",
}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^ *(```|~~~)")
ITEM = re.compile(r"^( *)([*+-]|\d+\.)( +)")


def file_of(page: str) -> Path:
    """The file, relative to the root, that a page of the site is made of."""
    if not page.startswith(PAGES):
        return Path("docs") / page
    plain = Path(page[len(PAGES) :])
    return plain if (ROOT / plain).is_file() else plain.with_suffix("")


def page_of(path: Path) -> str | None:
    """The page, or the picture, that stands for a path relative to the root; None where there is nothing."""
    full = ROOT / path
    if path == Path("docs/design"):
        return "design/index.md"
    if full.is_dir():
        return page_of(path / "README.md")
    if not full.is_file():
        return None
    if path.parts[0] == "docs":
        return path.relative_to("docs").as_posix()
    return PAGES + (path.as_posix() if path.suffix == ".md" else f"{path.as_posix()}.md")


def linked(target: str, page: str) -> Path:
    """What a link of a page names, relative to the root."""
    return Path(os.path.normpath(file_of(page).parent / target))


def prose(text: str) -> list[tuple[bool, str]]:
    """Lines, and whether they are outside of code."""
    found, inside = [], False
    for line in text.split("\n"):
        is_fence = bool(FENCE.match(line))
        found.append((not inside and not is_fence, line))
        inside ^= is_fence
    return found


def is_elsewhere(target: str) -> bool:
    return "://" in target or target.startswith(("#", "mailto:", "/"))


def with_links(text: str, page: str) -> str:
    """Links between files as links between pages."""

    def replace(match: re.Match[str]) -> str:
        if is_elsewhere(match[2]):
            return match[0]
        target = page_of(linked(match[2], page))
        if target is None:
            return match[0]  # mkdocs says that it is broken.
        relative = os.path.relpath(target, os.path.dirname(page) or ".")
        return f"{match[1]}{relative}{match[3] or ''}{match[4]}"

    return LINK.sub(replace, text)


def with_lists(text: str) -> str:
    """Lists as Python-Markdown wants them."""
    out: list[str] = []
    width = 0  # Of the mark of the list that the line is in; 0: in none.
    for is_prose, line in prose(text):
        item = ITEM.match(line) if is_prose else None
        before = out[-1] if out else ""
        if item and not item[1]:
            width = len(item[0])
        elif width and line.startswith(" " * width):
            line = "    " + line[width:]
        elif width and line and not line.startswith(" ") and not before:
            width = 0
        is_in_paragraph = bool(before) and not ITEM.match(before if item and not item[1] else before[4:])
        if item and is_in_paragraph and (item[1] or not before.startswith(" ")):
            out.append("")
        out.append(line)
    return "\n".join(out)


def as_page(path: Path) -> str:
    text = (ROOT / path).read_text()
    if path.suffix == ".md":
        return text
    fence = "~~~~" if "```" in text else "```"
    return f"# {path.name}\n\n`{path}`\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"


def design_notes() -> str:
    notes = sorted((ROOT / "docs" / "design").glob("[0-9]*.md"))
    titles = [(note.name, note.read_text().split("\n", 1)[0].lstrip("# ")) for note in notes]
    return "# Design notes\n\n" + "\n".join(f"* [{title}]({name})" for name, title in titles) + "\n"


def on_files(files: Files, config: Any) -> Files:
    """Adds what pages link to, and what those pages link to."""
    waiting = [file.src_uri for file in files.documentation_pages()]
    files.append(File.generated(config, "design/index.md", content=design_notes()))
    while waiting:
        page = waiting.pop()
        text = (ROOT / file_of(page)).read_text()
        for match in LINK.finditer("\n".join(line for is_prose, line in prose(text) if is_prose)):
            target = None if is_elsewhere(match[2]) else page_of(linked(match[2], page))
            if target and target.startswith(PAGES) and target not in files.src_uris:
                files.append(File.generated(config, target, content=as_page(linked_file(match[2], page))))
                if target.endswith(".md") and linked_file(match[2], page).suffix == ".md":
                    waiting.append(target)
    return files


def linked_file(target: str, page: str) -> Path:
    path = linked(target, page)
    return path / "README.md" if (ROOT / path).is_dir() else path


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return with_lists(with_links(markdown, page.file.src_uri))
