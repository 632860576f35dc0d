"""What `headrace pack` says before and after it works: names that are nearly something else, files that may
be tokens, shards that are there."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import _native, prepare
from headrace.cli import app
from headrace.cli import index as cli_index
from headrace.errors import InvalidArgumentError
from headrace.prepare import conversion
from headrace.prepare.target import PackTarget
from headrace.verification import checks


class StoppedError(Exception):
    pass


def pack(*arguments: object) -> Any:
    """The command's result; its error when it fails."""
    result = CliRunner().invoke(app, ["pack", *map(str, arguments)])
    return result.exception if result.exit_code != 0 else result


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (
            "gen:samples",
            "out",
            "gen:samples: no such file or directory; samples of a function take --from",
        ),
        ("s3:/b/x", "out", r'did you mean "s3://b/x"\?'),
        ("gs//b/x", "out", r'did you mean "gs://b/x"\?'),
        ("file:/b/x", "out", r'did you mean "file:///b/x"\?'),
        ("in", "s3:/b/x", r'did you mean "s3://b/x"\?'),
    ],
)
def test_a_name_that_is_nearly_something_else_is_told(
    source: str, target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    error = pack(source, target)
    assert isinstance(error, InvalidArgumentError)
    assert re.search(said, str(error))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("way", [[], ["--from", "raw", "--hash", "sha1"]])
def test_a_pack_whose_shards_are_there_is_said_to_be(tmp_path: Path, cli: Any, way: list[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    words = "pack", str(tmp_path / "in"), str(tmp_path / "out"), *way
    assert "1 samples in 1 shards" in cli(*words).out
    assert cli(*words).out == "all 1 shards (1 samples) were there from an earlier run\n"


def test_a_run_that_only_writes_the_index_has_something_to_do(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    words = "pack", str(tmp_path / "in"), str(tmp_path / "out"), "--from", "raw"

    def stop(*_: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(PackTarget, "finish", stop)
        with pytest.raises(StoppedError):
            prepare.convert(tmp_path / "in", tmp_path / "out", source_format="raw")
    assert not (tmp_path / "out" / "index.json").exists()
    assert cli(*words).out == "all 1 shards (1 samples) were there from an earlier run\n"
    assert (tmp_path / "out" / "index.json").exists()


@pytest.mark.parametrize(
    ("sizes", "is_refused"),
    [
        ({"train.bin": 604_000, "val.bin": 72_000, "README.md": 9}, True),
        ({"train.bin": 256 << 10}, True),
        ({"train.bin": (256 << 10) - 1}, False),
        ({"d/x.bin": 300_000, "d/x.idx": 300_000}, True),
        ({"x.bin": 300_000, "x.jpg": 300_001}, False),
        ({f"{i}.bin": 400_000 for i in range(16)}, True),
        ({f"{i}.bin": 400_000 for i in range(17)}, False),
        ({f"{i}.bin": 8 << 20 for i in range(17)}, True),
        ({f"{i}.bin": (8 << 20) - (i == 0) for i in range(17)}, False),
        ({"a.txt": 300_000}, False),
    ],
)
def test_what_may_be_tokens_is_packed_as_files_only_when_asked(
    tmp_path: Path, sizes: dict[str, int], is_refused: bool
) -> None:
    for name, size in sizes.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / "in" / name).open("wb") as file:
            file.truncate(size)
    words = [tmp_path / "in", tmp_path / "out", "--dry-run"]
    found = pack(*words)
    assert isinstance(found, InvalidArgumentError) == is_refused
    if is_refused:
        assert re.search(
            r"nothing tells what .*\.bin is: .*\(--from files\), or tokens \(--from tokens;", str(found)
        )
    assert pack(*words, "--from", "files").exit_code == 0


def test_tokens_are_packed_as_tokens_when_asked(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(bytes(300_000))
    error = pack(tmp_path / "in", tmp_path / "out", "--from", "tokens")
    assert isinstance(error, InvalidArgumentError)
    assert "tokens_per_sample" in str(error)
    words = ["index", str(tmp_path / "in"), "--format", "tokens", "--tokens-per-sample", "1000"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert json.loads(pack(tmp_path / "in", tmp_path / "out", "--json").stdout)["sample_count"] == 150


def test_what_only_looks_like_it_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(["gen:samples", "./s3:/x", "az//x"]):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.txt").write_text("a")
        assert pack(name, tmp_path / f"out{number}").exit_code == 0


CSV = b"a,b\n1,x\n2,y\n"


@pytest.mark.parametrize(
    ("files", "rows"),
    [
        ({"1.csv": CSV, "d/2.csv": CSV}, 4),
        ({"1.csv.gz": gzip.compress(CSV)}, 2),
        ({"1.tsv": CSV.replace(b",", b"\t"), ".hidden": b"x"}, 2),
        ({"1.json": b'[{"a": 1}, {"a": 2}]', "2.json": b'[{"a": 3}]'}, 3),
        ({"1.json": b'{"a": 1}\n{"a": 2}\n'}, 2),
        ({"train.json": b'[{"a": 1}]', "test.json": b'[{"a": 2}]'}, 1),
        ({"1.json": b'{\n"a": 1}', "2.json": b'{\n"a": 2}'}, None),
        ({"1.csv": CSV, "1.txt": b"x"}, None),
        ({"1.csv": CSV, "1.json": b'[{"a": 1}]'}, None),
    ],
)
def test_a_folder_of_rows_is_packed_as_opening_it_reads_it(
    tmp_path: Path, files: dict[str, bytes], rows: int | None
) -> None:
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    words = ["--split", "train"] if "train.json" in files else []
    packed = json.loads(pack(tmp_path / "in", tmp_path / "out", "--json", *words).stdout)
    assert packed["sample_count"] == (rows or len(files))
    with hr.Dataset(tmp_path / "out") as data:
        assert ("data" in data.schema) == (rows is None)
        if rows:
            assert data[0]["a"] in ("1", 1)


def test_a_folder_of_rows_is_packed_as_files_when_asked(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_bytes(CSV)
    for number, words in enumerate([["--from", "files"], ["--labels", "folder"], ["--tokens", "3"]]):
        if words[0] == "--labels":
            (tmp_path / "in" / "1.csv").unlink()
            (tmp_path / "in" / "d").mkdir()
            (tmp_path / "in" / "d" / "1.csv").write_bytes(CSV)
        found = json.loads(pack(tmp_path / "in", tmp_path / f"out{number}", "--json", *words).stdout)
        assert found["sample_count"] == (1 if words[0] != "--tokens" else 4)


@pytest.mark.parametrize("name", ["metadata.jsonl", "labels.csv"])
def test_a_manifest_that_becomes_a_sample_is_told(tmp_path: Path, cli: Any, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(b"x")
    (tmp_path / "in" / name).write_text(
        '{"file_name": "a.jpg", "label": 3}\n' if name.endswith("jsonl") else "file_name,label\na.jpg,3\n"
    )
    words = "pack", str(tmp_path / "in"), str(tmp_path / "out"), "--json"
    done = cli(*words)
    assert done.json()["sample_count"] == 2
    assert f"--manifest {name}" in done.err
    for number, asked in enumerate((["--manifest", name], ["--from", "files"], ["--tokens", "9"])):
        assert cli("pack", str(tmp_path / "in"), str(tmp_path / f"out{number}"), *asked).err == ""
    (tmp_path / "in" / name).rename(tmp_path / "in" / "other.txt")
    assert cli("pack", str(tmp_path / "in"), str(tmp_path / "out-other")).err == ""


@pytest.mark.parametrize(
    ("words", "where", "said"),
    [
        (("pack", "in", "out"), (_native, "pack"), "the same command goes on"),
        (
            ("pack", "in", "out", "--hash", "sha1", "--from", "raw"),
            (conversion, "convert"),
            "the same command",
        ),
        (
            ("pack", "os:listdir", "out", "--from", "python"),
            (conversion, "write"),
            "the same command goes on",
        ),
        (("verify", "in"), (checks, "verify"), "nothing is kept of it: the same command begins anew"),
        (
            ("cache", "warm", "in", "--cache", "c"),
            (hr.Cache, "warm"),
            "what was fetched stays: the same command",
        ),
        (("index", "in"), (cli_index, "write_index"), "the same command goes on"),
    ],
)
def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path,
    cli: Any,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    where: tuple[Any, str],
    said: str,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*where, stop)
    done = cli(*words)
    assert (done.code, f"stopped; {said}" in done.err) == (130, True), done.err
    assert done.err.count("\n") == 1
