"""The rooms of the package: who imports whom, in one direction, at the top of a file and inside of
functions."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "python"

# A room imports from those above it; those of one line know nothing of each other.
ROOMS = [
    ["errors", "_native"],
    ["base"],
    ["store"],
    ["sources", "checkpoint"],
    ["data"],
    ["decode"],
    ["loader"],
    ["caching", "prepare", "verification", "sim", "torch", "jax", "collate", "transforms", "fsspec"],
    ["bench"],
    ["compat", "cli"],
]

# Stands on fsspec, below which its name puts it; imported by users alone.
ELSEWHERE = {"headrace.checkpoint.torch_checkpointing": "compat"}

# Imports inside of functions, of what is slow to import (numpy, typer) where most callers never need it.
LATE = {
    ("headrace.checkpoint.converting", "headrace.checkpoint.dcp.metadata"),
    ("headrace.cli", "headrace.cli.commands"),
    ("headrace.cli", "headrace.cli.common"),
    ("headrace.cli", "headrace.cli.library"),
    ("headrace.cli.packing", "headrace.data.dataset"),
    ("headrace.cli.packing", "headrace.prepare.conversion"),
    ("headrace.cli.packing", "headrace.prepare.job"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / "headrace").rglob("*.py"))}


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(node: ast.AST, is_late: bool = False) -> set[tuple[str, bool]]:
    """(module of ours, is inside of a function) of everything that a file imports when it runs."""
    found: set[tuple[str, bool]] = set()
    for child in ast.iter_child_nodes(node):
        if is_for_types(child):
            continue
        if isinstance(child, ast.Import):
            found |= {(name.name, is_late) for name in child.names}
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports name the module in full"
            for name in child.names:
                inner = f"{child.module}.{name.name}"
                is_module = inner in MODULES or inner == "headrace._native"
                found.add((inner if is_module else str(child.module), is_late))
        else:
            found |= imports(child, is_late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))
    return {(name, late) for name, late in found if name.partition(".")[0] == "headrace"}


EDGES = {name: imports(ast.parse(path.read_text())) for name, path in MODULES.items()}


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: {target for target, _ in found} for name, found in EDGES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_rooms_import_only_from_rooms_above() -> None:
    level = {room: i for i, rooms in enumerate(ROOMS) for room in rooms}

    def room_of(module: str) -> str:
        return ELSEWHERE.get(module) or module.partition(".")[2].partition(".")[0]

    wrong = []
    for name, found in EDGES.items():
        room = room_of(name)
        for target, _ in found:
            other = room_of(target)
            if room and other and room != other and level[other] >= level[room]:
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def test_late_imports_are_the_ones_that_are_meant() -> None:
    late = {(name, target) for name, found in EDGES.items() for target, is_late in found if is_late}
    assert late == LATE


def test_every_module_can_be_the_first_that_is_imported() -> None:
    needs_more = (
        "headrace.checkpoint.torchtitan",
        "headrace.compat",
        "headrace.torch",
        "headrace.jax",
        "headrace.loader.device",
        "headrace.loader.relay.hooks",
        "headrace.loader.relay.remote",
        "headrace.loader.relay.sharing",
        "headrace.loader.frameworks",
        "headrace.loader.trainer",
    )
    names = [name for name in MODULES if not name.endswith("__main__") and not name.startswith(needs_more)]
    code = """
import importlib, os, sys
for name in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(name)
        os._exit(0)
    _, status = os.wait()
    if status:
        sys.exit(f"{name} cannot be imported first")
"""
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
