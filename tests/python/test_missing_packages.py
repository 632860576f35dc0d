"""Where a package that a feature needs is not installed, one short line says what to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import prepare
from headrace.base.packages import find_missing_package, missing_package
from headrace.data.index import write_index

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
sys.modules["pyarrow"] = None
"""


def python(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "HEADRACE_INDEX_CACHE": ""},
    )


def command(*arguments: object) -> str:
    """What a command that fails says, without pyarrow."""
    ran = python("from headrace.cli import main\nsys.exit(main())", *arguments)
    assert ran.returncode == 1
    return ran.stdout + ran.stderr


def is_one_line(said: str, *, begins: str) -> bool:
    line = said.rstrip("\n")
    return line.startswith(f"{begins}tables need pyarrow: pip install pyarrow (") and "\n" not in line


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    pytest.importorskip("pyarrow")
    url = tmp_path / "rows"
    prepare.write(({"x": i} for i in range(60)), url, format="parquet", shard_bytes=64)
    assert len(list(url.glob("*.parquet"))) > 6
    return url


@pytest.mark.parametrize("name", ["inspect", "verify", "index"])
def test_a_dataset_without_it_is_not_taken_for_broken(name: str, rows: Path) -> None:
    assert is_one_line(command(name, rows), begins=f"headrace: {rows}: ")


@pytest.mark.parametrize("more", [(), ("--use-index",)])
def test_verify_does_not_blame_the_blocks_of_an_index(more: tuple[str, ...], rows: Path) -> None:
    write_index(rows)
    assert is_one_line(command("verify", rows, *more), begins=f"headrace: {rows}: ")


@pytest.mark.parametrize("source", ["files", "dataset", "python"])
def test_pack_says_it_before_it_writes(source: str, tmp_path: Path) -> None:
    where: list[object] = [tmp_path / "in", tmp_path / "out", "--format", "parquet"]
    if source == "files":
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a.txt").write_text("a")
    elif source == "dataset":
        prepare.write([{"x": 1}], tmp_path / "in", format="mds")
    else:
        (tmp_path / "source.py").write_text("def samples():\n    yield {'x': 1}\n")
        where = ["source:samples", *where[1:], "--from", "python"]
    program = f"sys.path.insert(0, {str(tmp_path)!r})\nfrom headrace.cli import main\nsys.exit(main())"
    ran = python(program, "pack", *where)
    assert ran.returncode == 1
    assert is_one_line(ran.stderr, begins="headrace: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "call",
    [
        "prepare.write([{'x': 1}], url, format='parquet')",
        "prepare.ParquetWriter(url)",
        "prepare.ParquetWriter(url, columns={'x': 'int'})",
    ],
)
def test_writers_say_it_before_they_write(call: str, tmp_path: Path) -> None:
    program = f"from headrace import prepare\nurl = sys.argv[1]\n{call}"
    ran = python(program, tmp_path / "out")
    assert ran.returncode == 1
    assert is_one_line(ran.stderr.splitlines()[-1], begins="headrace.errors.UnsupportedError: ")
    assert not (tmp_path / "out").exists()


def test_the_readme_says_what_each_extra_installs() -> None:
    named = {}
    for extra, package in re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "README.md").read_text(), re.M):
        named[extra] = package.lower()
    extras = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]\n")[2]
    given = re.findall(r"^(\w+) = \[\"(\w+)[^\",]*\"\]", extras.partition("\n[")[0], re.M)
    assert named == dict(given)


def test_data_of_tokens_needs_no_pillow(tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "make_data.py")
    program = f"import runpy\nsys.modules['PIL'] = None\nrunpy.run_path({script!r}, run_name='__main__')"
    ran = python(program, "tokens", tmp_path / "tokens", "--count", "8")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "tokens" / "index.json").exists()


def test_what_the_engine_makes_of_it_is_found() -> None:
    error = ImportError("No module named 'lance'")
    said = str(missing_package("Lance tables need", "lance", error, "pylance"))
    assert said == "Lance tables need lance: pip install pylance (No module named 'lance')"
    told = f"s3://b/x/a.lance: {said}; s3://b/x/b.lance: {said} (broken: 2, and no other was found whole)"
    assert str(find_missing_package("s3://b/x", told)) == f"s3://b/x: {said}"
    assert find_missing_package("s3://b/x", "a.parquet: Couldn't deserialize thrift (broken: 1)") is None
