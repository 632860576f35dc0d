#!/usr/bin/env python3
"""Which sources may be compiled together: prints `GROUP<tab>FILE` lines for the files named as arguments.

Files of one group share a translation unit (CMake's UNITY_BUILD_MODE GROUP), so no two may declare the same
name in an anonymous namespace, and none may open a namespace of other people's (`using namespace`). Names are
found by their indentation, which clang-format fixes; a name that is missed is a compile error, never a wrong
program.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST_LINES = 2400
MOST_FILES = 8

TYPE = re.compile(r"^(?:struct|class|enum class|enum|union|using|namespace) (\w+)")
OTHER = re.compile(r"\b([A-Za-z_]\w*)\s*(?:\(|=|\[|\{|;)")
MACRO = re.compile(r"^#define (\w+)")


def private_names(text: str) -> set[str]:
    """What an anonymous namespace of the file declares, and its macros."""
    names = set(MACRO.findall(text))
    is_private = False
    for line in text.splitlines():
        if line.startswith("namespace {"):
            is_private = True
        elif line == "}  // namespace":
            is_private = False
        elif (
            is_private
            and (line[:1].isalpha() or line[:1] == "_")
            and (found := TYPE.match(line) or OTHER.search(line))
        ):
            names.add(found[1])
    return names


class Group:
    def __init__(self) -> None:
        self.files: list[str] = []
        self.names: set[str] = set()
        self.lines = 0

    def takes(self, names: set[str], lines: int) -> bool:
        return len(self.files) < MOST_FILES and self.lines + lines <= MOST_LINES and not self.names & names


def main() -> None:
    groups: list[Group] = []
    for file in sys.argv[1:]:
        text = Path(file).read_text()
        names, lines = private_names(text), text.count("\n")
        is_alone = re.search(r"^using namespace", text, re.MULTILINE) is not None
        group = None if is_alone else next((g for g in groups if g.takes(names, lines)), None)
        if group is None:
            group = Group()
            groups.append(group)
        group.files.append(file)
        group.names |= names
        group.lines = MOST_LINES if is_alone else group.lines + lines
    for number, group in enumerate(groups):
        for file in group.files:
            print(f"{number}\t{file}")


if __name__ == "__main__":
    main()
