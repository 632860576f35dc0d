#!/usr/bin/env python3
"""Fails when an include points down the layer list of docs/architecture.md.

Usage: tools/check_layers.py   (from anywhere)
Rules: a file in layer L may include headers of L and of layers above it in LAYERS; public headers count as the layer that
implements them; public headers include only the standard library and each other; bindings include only public headers;
order, http and the shard parsers include no I/O.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = [
    "base",
    "mem",
    "insight",
    "reactor",
    "http",
    "auth",
    "store",
    "copy",
    "shard",
    "order",
    "feed",
    "sim",
    "pack",
    "bindings",
]
PUBLIC = {  # header -> layer that implements it
    "status": "base",
    "clock": "base",
    "environment": "base",
    "memory": "mem",
    "slab_arena": "mem",
    "metrics": "insight",
    "store": "store",
    "router": "store",
    "whoami": "store",
    "access_log": "store",
    "probe": "store",
    "copy": "copy",
    "dataset": "shard",
    "inflate": "shard",
    "rebuild": "shard",
    "views": "shard",
    "table": "shard",
    "verify": "shard",
    "second_look": "shard",
    "order": "order",
    "mosaic_order": "order",
    "litdata_order": "order",
    "order_table": "feed",
    "quarantine": "feed",
    "list_sources": "feed",
    "mixture": "order",
    "order_source": "order",
    "loader": "feed",
    "sim": "sim",
    "pack": "pack",
}
# Layers that may be used only by the ones named: exceptions to "everything above" that keep pure code pure.
FORBIDDEN = {
    "http": {"reactor", "mem", "insight"},
    "auth": {"mem", "insight"},
    "order": {"reactor", "http", "auth", "store", "shard", "mem", "insight"},
    "sim": {"store", "copy", "shard", "order", "feed", "reactor"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def layer_of(path: Path) -> str | None:
    rel = path.relative_to(ROOT)
    if rel.parts[0] == "include":
        return PUBLIC.get(path.stem)
    return rel.parts[1] if rel.parts[0] == "src" and len(rel.parts) > 2 else None


def included_layer(name: str) -> str | None:
    parts = name.split("/")
    if parts[0] == "headrace":
        return PUBLIC.get(Path(name).stem, "unknown")
    return parts[0] if parts[0] in LAYERS else None


def problems_of(path: Path) -> list[str]:
    layer = layer_of(path)
    is_public = path.relative_to(ROOT).parts[0] == "include"
    if layer is None:
        return [f"{path.relative_to(ROOT)}: not in a known layer; add it to tools/check_layers.py"]
    found = []
    for quote, name in INCLUDE.findall(path.read_text()):
        target = included_layer(name)
        where = f"{path.relative_to(ROOT)}: includes {name}"
        if is_public and quote == '"' and not name.startswith("headrace/"):
            found.append(f"{where}: public headers include only the standard library and headrace/")
        if is_public and quote == "<" and ("/" in name or name.endswith(".h")):
            found.append(f"{where}: no third-party header in a public header")
        if target is None or target == layer:
            continue
        if target == "unknown":
            found.append(f"{where}: unknown public header")
        elif layer == "bindings" and not name.startswith("headrace/"):
            found.append(f"{where}: bindings use public headers only")
        elif LAYERS.index(target) > LAYERS.index(layer):
            found.append(f"{where}: {layer} may not use {target}, which is below it")
        elif target in FORBIDDEN.get(layer, set()) and not path.name.endswith("_test.cc"):
            found.append(f"{where}: {layer} may not use {target}")
    return found


def main() -> int:
    files = [
        p for top in ("include", "src") for p in sorted((ROOT / top).rglob("*")) if p.suffix in {".h", ".cc"}
    ]
    problems = [line for path in files for line in problems_of(path)]
    print("\n".join(problems) if problems else f"layers: {len(files)} files, no include points down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
