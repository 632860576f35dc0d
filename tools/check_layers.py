#!/usr/bin/env python3
"""Fails when a file includes what its module does not declare to use.

Usage: tools/check_layers.py   (from anywhere)
The declarations are the headrace_module() calls in src/*/CMakeLists.txt, which the build links by. A file may
include headers of its own module and of those that the module USES; public headers (include/headrace/) belong
to the module whose HEADERS name them, and include only the standard library and each other; bindings include
only public headers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
CALL = re.compile(r"headrace_module\(\s*(\w+)([^)]*)\)")
KEYS = ("HEADERS", "USES", "LINKS", "TEST_LINKS")


class Module(NamedTuple):
    headers: set[str]
    uses: set[str]


def read_modules(source: Path) -> dict[str, Module]:
    """What the build files of a source tree declare, by name."""
    modules = {}
    for path in sorted(source.glob("*/CMakeLists.txt")):
        for name, rest in CALL.findall(path.read_text()):
            lists: dict[str, set[str]] = {key: set() for key in KEYS}
            key = ""
            for word in rest.split():
                if word in KEYS:
                    key = word
                else:
                    lists[key].add(word)
            modules[name] = Module(lists["HEADERS"], lists["USES"])
    # The extension module is no library of ours: it stands above all.
    modules["bindings"] = Module(set(), set(modules))
    return modules


class Checker:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = read_modules(root / "src")
        self.owner = {header: name for name, module in self.modules.items() for header in module.headers}

    def module_of(self, path: Path) -> str | None:
        parts = path.relative_to(self.root).parts
        if parts[0] == "include":
            return self.owner.get(path.stem)
        return parts[1] if parts[0] == "src" and parts[1] in self.modules else None

    def target_of(self, name: str) -> str | None:
        """The module of an included file; None: it is none of ours."""
        parts = name.split("/")
        if parts[0] == "headrace":
            return self.owner.get(Path(name).stem, "unknown")
        return parts[0] if parts[0] in self.modules and len(parts) > 1 else None

    def problems_of(self, path: Path) -> list[str]:
        module = self.module_of(path)
        rel = path.relative_to(self.root)
        is_public = rel.parts[0] == "include"
        if module is None:
            return [f"{rel}: no headrace_module() declares it"]
        found = []
        for quote, name in INCLUDE.findall(path.read_text()):
            target = self.target_of(name)
            where = f"{rel}: includes {name}"
            if is_public and quote == '"' and not name.startswith("headrace/"):
                found.append(f"{where}: public headers include only the standard library and headrace/")
            if is_public and quote == "<" and ("/" in name or name.endswith(".h")):
                found.append(f"{where}: no third-party header in a public header")
            if target is None or target == module:
                continue
            if target == "unknown":
                found.append(f"{where}: no module's HEADERS name it")
            elif module == "bindings" and not name.startswith("headrace/"):
                found.append(f"{where}: bindings use public headers only")
            elif target not in self.modules[module].uses:
                found.append(
                    f"{where}: {module} does not declare that it uses {target} (src/{module}/CMakeLists.txt)"
                )
        return found

    def unused(self, used: dict[str, set[str]]) -> list[str]:
        """Declarations that nothing needs."""
        return [
            f"src/{name}/CMakeLists.txt: declares {use}, of which it includes nothing"
            for name, module in self.modules.items()
            if name != "bindings"
            for use in sorted(module.uses - used.get(name, set()))
        ]

    def run(self) -> tuple[int, list[str]]:
        files = [
            p
            for top in ("include", "src")
            for p in sorted((self.root / top).rglob("*"))
            if p.suffix in {".h", ".cc"}
        ]
        used: dict[str, set[str]] = {}
        for path in files:
            targets = {self.target_of(name) for _, name in INCLUDE.findall(path.read_text())}
            used.setdefault(self.module_of(path) or "", set()).update(t for t in targets if t)
        missing = [
            f"src/{name}/CMakeLists.txt: there is no include/headrace/{header}.h"
            for name, module in self.modules.items()
            for header in sorted(module.headers)
            if not (self.root / "include" / "headrace" / f"{header}.h").exists()
        ]
        return len(files), missing + [
            line for path in files for line in self.problems_of(path)
        ] + self.unused(used)


def main() -> int:
    count, problems = Checker(ROOT).run()
    print(
        "\n".join(problems) if problems else f"layers: {count} files include only what their modules declare"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
