"""tools/check_layers.py holds files to what the build declares."""

from __future__ import annotations

from pathlib import Path

from tool_module import ROOT, load_tool

check_layers = load_tool("check_layers")


def _tree(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return check_layers.Checker(root).run()[1]


BUILD = {
    "src/base/CMakeLists.txt": "headrace_module(base\n  HEADERS status)\n",
    "src/order/CMakeLists.txt": "headrace_module(order USES base LINKS Threads::Threads)\n",
    "src/store/CMakeLists.txt": "headrace_module(store USES base)\n",
    "include/headrace/status.h": "#include <string>\n",
    "src/store/a.cc": '#include "headrace/status.h"\n',
}


def test_what_is_declared_is_right(tmp_path: Path) -> None:
    assert (
        _tree(tmp_path, {**BUILD, "src/order/a.cc": '#include "headrace/status.h"\n#include "order/a.h"\n'})
        == []
    )


def test_what_is_not_declared_is_found(tmp_path: Path) -> None:
    problems = _tree(
        tmp_path, {**BUILD, "src/order/a.cc": '#include "store/a.h"\n#include "headrace/status.h"\n'}
    )
    assert problems == [
        "src/order/a.cc: includes store/a.h: order does not declare that it uses store "
        "(src/order/CMakeLists.txt)"
    ]


def test_a_declaration_that_nothing_needs_is_found(tmp_path: Path) -> None:
    problems = _tree(tmp_path, {**BUILD, "src/order/a.cc": "#include <vector>\n"})
    assert problems == ["src/order/CMakeLists.txt: declares base, of which it includes nothing"]


def test_public_headers_stand_alone(tmp_path: Path) -> None:
    files = {
        **BUILD,
        "src/order/a.cc": '#include "headrace/status.h"\n',
        "include/headrace/status.h": '#include "base/x.h"\n#include <fmt/core.h>\n',
    }
    problems = _tree(tmp_path, files)
    assert len(problems) == 2
    assert "only the standard library" in problems[0]
    assert "third-party" in problems[1]


def test_the_tree_keeps_to_it() -> None:
    assert check_layers.Checker(ROOT).run()[1] == []
