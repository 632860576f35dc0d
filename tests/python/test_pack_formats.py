"""Conversions between all formats: contents, cuts, resume, secrets."""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import prepare
from headrace.cli import app
from headrace.errors import (
    ChangedError,
    CorruptError,
    ExhaustedError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    UserCodeError,
)
from headrace.prepare.job import PartMaker, plan_parts, source_digest
from headrace.prepare.target import PackTarget
from headrace.store.urls import public_url

SAMPLES = [
    {
        "__key__": f"d/{i:04d}",
        "txt": f"text {i}" * (i % 7),
        "cls": i,
        "json": {"i": i},
        "bin": bytes([i % 256]) * (i % 50),
    }
    for i in range(120)
]
COLUMNS = {"__key__": "str", "txt": "str", "cls": "int", "json": "json", "bin": "bytes"}
SUFFIXES = {"mds": "", "webdataset": "", "tfrecord": "", "litdata": "", "parquet": ""}


def outputs(path: Path) -> dict[str, bytes]:
    """Everything but our own records."""
    return {p.name: p.read_bytes() for p in path.iterdir() if not p.name.startswith(".")}


def make(path: Path, format: str) -> Path:
    prepare.write(
        SAMPLES, path, format=format, columns=COLUMNS, shard_bytes=4000 if format != "webdataset" else 40_000
    )
    return path


def rows(path: Path) -> list[tuple[str, int, Any, bytes]]:
    """(text, label, json, bytes) of each sample, whatever the format makes of them."""
    out = []
    with hr.Dataset(path, index_cache="") as dataset:
        for sample in dataset:
            # JSON that came by way of LitData is text.
            text, label, tree, blob = (
                sample["txt"],
                sample["cls"],
                sample.get("json", sample.get("json.txt")),
                sample["bin"],
            )
            text = text.decode() if isinstance(text, bytes) else text
            tree = json.loads(tree) if isinstance(tree, (bytes, str)) else tree
            out.append((text, int(label), tree, bytes(blob)))
    return out


EXPECTED = [(s["txt"], s["cls"], s["json"], s["bin"]) for s in SAMPLES]


@pytest.mark.parametrize("target", list(SUFFIXES))
@pytest.mark.parametrize("source", ["mds", "webdataset", "litdata", "tfrecord", "parquet"])
def test_every_format_becomes_every_other(tmp_path: Path, source: str, target: str) -> None:
    made = make(tmp_path / "source", source)
    result = prepare.convert(
        made, tmp_path / "target", format=target, shard_bytes=20_000, columns="__key__,txt,cls,json,bin"
    )
    assert result["sample_count"] == len(SAMPLES)
    assert rows(tmp_path / "target") == EXPECTED


def test_json_lines_become_mds(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    lines = [
        json.dumps({"text": f"line {i}", "n": i, "x": i / 2, "ok": i % 2 == 0, "tree": [i]})
        for i in range(50)
    ]
    (tmp_path / "source" / "a.jsonl").write_text("\n".join(lines) + "\n")
    prepare.convert(tmp_path / "source", tmp_path / "target", shard_bytes=1000)
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        sample = dataset[7]
    assert (sample["text"], int(sample["n"]), float(sample["x"]), bool(sample["ok"]), sample["tree"]) == (
        "line 7",
        7,
        3.5,
        False,
        [7],
    )


@pytest.mark.parametrize("target", list(SUFFIXES))
def test_bytes_do_not_depend_on_workers(tmp_path: Path, target: str) -> None:
    made = make(tmp_path / "source", "mds")
    prepare.convert(made, tmp_path / "one", format=target, shard_bytes=3000, workers=1)
    prepare.convert(made, tmp_path / "many", format=target, shard_bytes=3000, workers=5)
    assert outputs(tmp_path / "one") == outputs(tmp_path / "many")
    assert len(outputs(tmp_path / "one")) > 3


def test_litdata_of_the_same_samples_is_the_same(tmp_path: Path) -> None:
    made = make(tmp_path / "source", "mds")
    prepare.convert(made, tmp_path / "one", format="litdata", shard_bytes=3000)
    (made / "shard.00000.mds").touch()
    prepare.convert(f"{made}/../source", tmp_path / "two", format="litdata", shard_bytes=3000)
    assert outputs(tmp_path / "one") == outputs(tmp_path / "two")


def test_mds_to_mds_keeps_encodings_and_bytes(tmp_path: Path) -> None:
    columns = {"a": "ndarray:int16", "b": "jpeg", "c": "str_int", "d": "float32", "e": "ndarray:uint8:2"}
    samples = [
        {
            "a": np.arange(i + 1, dtype=np.int16),
            "b": b"\xff\xd8" + bytes(i),
            "c": i,
            "d": np.float32(i),
            "e": np.array([i, 1], np.uint8),
        }
        for i in range(30)
    ]
    prepare.write(samples, tmp_path / "source", columns=columns, hash="xxh64")
    prepare.convert(tmp_path / "source", tmp_path / "target", hash="xxh64")
    assert outputs(tmp_path / "source") == outputs(tmp_path / "target")


def test_files_become_every_format(tmp_path: Path) -> None:
    for i in range(30):
        path = tmp_path / "source" / f"d{i % 3}" / f"{i}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([i]) * i)
    for format in ("tfrecord", "litdata", "parquet"):
        result = CliRunner().invoke(
            app,
            [
                "pack",
                str(tmp_path / "source"),
                str(tmp_path / format),
                "--format",
                format,
                "--shard-bytes",
                "1000",
                "--json",
            ],
        )
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["sample_count"] == 30
        with hr.Dataset(tmp_path / format, index_cache="") as dataset:
            got = {
                bytes(s["key"]) if isinstance(s["key"], bytes) else s["key"].encode(): bytes(s["data"])
                for s in dataset
            }
        assert got[b"d1/7.bin"] == b"\7" * 7
        assert len(got) == 30


def labelled_files(root: Path) -> dict[str, int]:
    """Files as ImageFolder has them, and the label of each."""
    labels = {}
    for label, name in enumerate(["cat", "dog", "eel"]):
        (root / name).mkdir(parents=True)
        for i in range(5):
            (root / name / f"{i}.jpg").write_bytes(f"{name} {i}".encode() * 30)
            labels[f"{name} {i}"] = label
    return labels


@pytest.mark.parametrize("target", list(SUFFIXES))
def test_labels_of_folders_go_with_files_in_one_step(tmp_path: Path, target: str) -> None:
    labels = labelled_files(tmp_path / "source")
    options = ["--format", target, "--labels", "folder", "--shard-bytes", "700"]
    assert pack(tmp_path / "source", tmp_path / target, *options).exit_code == 0
    with hr.Dataset(tmp_path / target, index_cache="") as dataset:
        names = ("jpg", "cls") if target == "webdataset" else ("data", "label")
        found = {bytes(s[names[0]])[:5].decode(): int(s[names[1]]) for s in dataset}
        assert len(dataset) == 15
        assert len(dataset.shards) > 1
    assert found == labels


def test_a_pack_without_labels_is_another_pack(tmp_path: Path) -> None:
    labelled_files(tmp_path / "source")
    target, options = tmp_path / "target", ["--format", "parquet", "--from", "raw"]
    assert pack(tmp_path / "source", target, *options, "--labels", "folder").exit_code == 0
    again = pack(tmp_path / "source", target, *options, "--labels", "folder", "--json")
    assert json.loads(again.stdout)["resumed_shard_count"] == 1
    assert isinstance(pack(tmp_path / "source", target, *options), InvalidArgumentError)


def test_a_manifest_says_what_goes_with_files(tmp_path: Path) -> None:
    labelled_files(tmp_path / "source")
    (tmp_path / "source" / "list.jsonl").write_text(
        "".join(json.dumps({"file": f"eel/{i}.jpg", "caption": f"eel number {i}"}) + "\n" for i in range(3))
    )
    assert pack(tmp_path / "source", tmp_path / "target", "--manifest", "list.jsonl").exit_code == 0
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        assert [(s["key"], s["caption"]) for s in dataset] == [
            (f"eel/{i}.jpg", f"eel number {i}") for i in range(3)
        ]


def pack(*arguments: object) -> Any:
    """The command's result; its error when it fails."""
    result = CliRunner().invoke(app, ["pack", *map(str, arguments)])
    return result.exception if result.exit_code != 0 else result


def test_tokens_go_with_files_alone(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_bytes(b"12345678")
    for others, name in [
        (["--ray"], "--ray"),
        (["--columns", "x"], "--columns"),
        (["--map", "a:b"], "--map"),
        (["--labels", "folder"], "--labels"),
        (["--from", "parquet"], "--from parquet"),
    ]:
        error = pack(tmp_path / "source", tmp_path / "target", "--tokens", 4, *others)
        assert isinstance(error, InvalidArgumentError)
        assert f"{name} does not go with --tokens" in str(error)
    assert not (tmp_path / "target").exists()
    assert pack(tmp_path / "source", tmp_path / "target", "--tokens", 4, "--from", "files").exit_code == 0


@pytest.mark.parametrize(
    "names",
    [["a.txt", "d/b.seg.png", "d/c.txt"], ["a.1.txt", "a.2.txt", "b.txt"], ["Makefile", "b.txt", "c.txt"]],
)
def test_files_become_the_same_members_on_every_way(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(name.encode() * 3)
    (tmp_path / "source" / names[0]).write_bytes(b"")
    for name in (".DS_Store", "d/.hidden.txt", ".git/config", "index.hri", "MANIFEST.sha256"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(b"never a sample")
    found = []
    for target, others in [("plain", []), ("zipped", ["--compression", "gzip"])]:
        pack(tmp_path / "source", tmp_path / target, "--format", "webdataset", "--from", "files", *others)
        (path,) = (tmp_path / target).glob("*.tar*")
        with tarfile.open(path) as tar:
            found.append([(member.name, tar.extractfile(member).read()) for member in tar])  # type: ignore[union-attr]
    assert found[0] == found[1]
    assert ([name for name, _ in found[0]] == names) == (names[1] == "d/b.seg.png")
    pack(
        tmp_path / "source",
        tmp_path / "named",
        "--format",
        "webdataset",
        "--compression",
        "gzip",
        "--columns",
        "txt=data",
        "--from",
        "files",
    )
    with tarfile.open(tmp_path / "named" / "shard-000000.tar.gz") as tar:
        assert tar.getnames() == ["000000000.txt", "000000001.txt", "000000002.txt"]


def test_the_count_is_that_of_readers(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "a/1.json", "a/2.jpg", "b/1.jpg"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(b"{}")
    for others in ([], ["--compression", "gzip"], ["--labels", "folder"]):
        target = tmp_path / "-".join(["target", *others])
        arguments = [tmp_path / "source", target, "--format", "webdataset", "--json", *others]
        assert json.loads(pack(*arguments, "--dry-run").stdout)["sample_count"] == 3
        assert json.loads(pack(*arguments).stdout)["sample_count"] == 3
        with hr.Dataset(target, index_cache="") as dataset:
            assert len(dataset) == 3


FILE_NAMES = [f"d.{i % 2}/{i}.{suffix}" for i in range(40) for suffix in ("jpg", "json", "seg.png")]


@pytest.mark.parametrize(
    ("source", "columns", "planned"),
    [
        ("raw", "data,__file__=key", 40),
        ("raw", "data,copy=data,__file__=key", 40),
        ("mds", "data,__file__=name", 120),
        ("mds", "data,__file__=bytes:str", 120),
        ("mds", "data,copy=data,__file__=name", 120),
        ("named", None, 120),
    ],
)
def test_files_of_one_sample_come_into_one_shard(
    tmp_path: Path, source: str, columns: str | None, planned: int
) -> None:
    names = sorted(FILE_NAMES)
    if source == "raw":
        for name in names:
            (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "source" / name).write_bytes(name.encode() * 100)
    else:
        name_column = "name" if source == "mds" else "__file__"
        rows = [{"data": n.encode() * 100, name_column: n, "bytes": n.encode()} for n in names]
        if source == "named":
            rows = [{"data": row["data"], "__file__": row["__file__"]} for row in rows]
        prepare.write(rows, tmp_path / "source", format="mds", shard_bytes=9000)
    options: dict[str, Any] = {"format": "webdataset", "columns": columns, "shard_bytes": 7000}
    result = prepare.convert(tmp_path / "source", tmp_path / "target", **options)
    assert result["sample_count"] == 40
    assert result["shard_count"] > 10
    plan = prepare.convert(tmp_path / "source", tmp_path / "target", **options, dry_run=True)
    assert (plan["sample_count"], plan["shard_count"]) == (planned, result["shard_count"])
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        assert {sample["__key__"] for sample in dataset} == {f"d.{i % 2}/{i}" for i in range(40)}
        assert all(bytes(s["seg.png"]) == f"{s['__key__']}.seg.png".encode() * 100 for s in dataset)


def file_of(sample: dict[str, Any]) -> dict[str, Any]:
    return {"data": sample["data"], "__file__": sample["key"]}


def test_a_function_makes_files_of_samples_in_one_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    for name in FILE_NAMES:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(name.encode() * 100)
    options: dict[str, Any] = {"format": "webdataset", "map": "test_pack_formats:file_of"}
    with pytest.raises(
        InvalidArgumentError, match="cut before the function is called; return a sample as one"
    ):
        prepare.convert(tmp_path / "source", tmp_path / "target", shard_bytes=9000, **options)
    assert not (tmp_path / "target").exists()
    assert prepare.convert(tmp_path / "source", tmp_path / "target", **options)["sample_count"] == 40


@pytest.mark.parametrize(
    ("source", "expected"),
    [("lines/a.jsonl", "a"), ("lines/{a,b}.jsonl", "ab"), ("lines/b.jsonl::lines/a.jsonl", "ba")],
)
def test_one_object_and_patterns_are_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines").mkdir()
    for name in "abc":
        Path(f"lines/{name}.jsonl").write_text(json.dumps({"x": name}) + "\n")
    assert pack(source, "out").exit_code == 0
    with hr.Dataset("out", index_cache="") as dataset:
        assert "".join(sample["x"] for sample in dataset) == expected


def test_a_source_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing", "missing.jsonl"):
        assert isinstance(pack(tmp_path / name, tmp_path / "out"), NotFoundError)


def test_a_target_inside_the_source_is_refused_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("source"), "mds")
    Path("files").mkdir()
    Path("files/a.bin").write_bytes(b"a")
    Path("link").symlink_to("files")
    for source, target in [
        ("source", "./source/inside"),
        (tmp_path / "source", "source/inside"),
        (f"file://{tmp_path}/source", "source/inside"),
        ("files", "./files/inside"),
        ("link", "files"),
        (f"file://{tmp_path}/files", "link/inside"),
    ]:
        error = pack(source, target)
        assert isinstance(error, InvalidArgumentError), (source, target)
        assert "lies inside the source" in str(error)
    assert pack("source", "sourcerer").exit_code == 0


def test_a_conversion_goes_on_by_another_spelling_and_says_no_local_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("source"), "mds")
    for source in ("source", "./source", f"file://{tmp_path}/source"):
        result = prepare.convert(source, "target", shard_bytes=4000)
    assert result["resumed_shard_count"] == result["shard_count"]
    plan = (tmp_path / "target" / ".hrpack.json").read_text()
    assert str(tmp_path) not in plan
    assert json.loads(plan)["source"] == ""


def test_columns_choose_rename_and_say_what_bytes_are(tmp_path: Path) -> None:
    made = make(tmp_path / "source", "webdataset")
    prepare.convert(made, tmp_path / "target", columns="label=cls,image=bin:jpeg")
    index = json.loads((tmp_path / "target" / "index.json").read_text())
    assert index["shards"][0]["column_names"] == ["image", "label"]
    assert index["shards"][0]["column_encodings"] == ["jpeg", "int"]
    with pytest.raises(InvalidArgumentError, match="nothere"):
        prepare.convert(made, tmp_path / "other", columns="x=nothere")
    with pytest.raises(InvalidArgumentError, match="lies inside"):
        prepare.convert(made, made / "inside")


def test_commas_of_shapes_are_not_between_columns(tmp_path: Path) -> None:
    samples = [{"x": np.full((2, 3), i, np.float32), "id": i, "3": i} for i in range(4)]
    prepare.write(samples, tmp_path / "source", columns={"x": "ndarray:float32", "id": "int", "3": "int"})
    columns = "3,a=x:ndarray:float32:2,3,id,b=x:ndarray:float32:2,3"
    prepare.convert(tmp_path / "source", tmp_path / "target", columns=columns)
    with hr.Dataset(tmp_path / "target") as dataset:
        assert {name: column.shape for name, column in dataset.schema.items()} == {
            "3": (),
            "a": (2, 3),
            "b": (2, 3),
            "id": (),
        }
        assert [(s["3"], s["id"], s["b"].tolist()) for s in dataset] == [
            (i, i, np.full((2, 3), i).tolist()) for i in range(4)
        ]


@pytest.mark.parametrize("target", list(SUFFIXES))
def test_a_column_may_become_two(tmp_path: Path, target: str) -> None:
    made = make(tmp_path / "source", "mds")
    prepare.convert(made, tmp_path / "target", format=target, columns="a=cls,b=cls,c=bin")
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        samples = [{name.removesuffix(".cls"): value for name, value in sample.items()} for sample in dataset]
    assert [(int(s["a"]), int(s["b"]), bytes(s["c"])) for s in samples] == [
        (s["cls"], s["cls"], s["bin"]) for s in SAMPLES
    ]
    with pytest.raises(InvalidArgumentError, match="'a' is named twice"):
        prepare.convert(made, tmp_path / "other", format=target, columns="a=cls,a=txt")


def shout(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["cls"] % 10 == 9 else {"text": sample["txt"].upper(), "square": sample["cls"] ** 2}


@pytest.mark.parametrize("target", list(SUFFIXES))
def test_a_function_maps_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made = make(tmp_path / "source", "mds")
    result = prepare.convert(
        made, tmp_path / "target", format=target, map="test_pack_formats:shout", shard_bytes=2500
    )
    assert result["sample_count"] == 108
    again = prepare.convert(
        made, tmp_path / "again", format=target, map="test_pack_formats:shout", shard_bytes=2500, workers=3
    )
    assert again["shard_count"] == result["shard_count"] > 1
    assert outputs(tmp_path / "target") == outputs(tmp_path / "again")


@pytest.mark.parametrize("way", [[], ["--from", "python"]])
def test_modules_are_found_beside_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: list[str]
) -> None:
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    made, module = make(tmp_path / "source", "mds"), f"beside_the_caller{len(way)}"
    (tmp_path / f"{module}_too.py").write_text("SIGN = -1\n")
    (tmp_path / f"{module}.py").write_text(
        "def turn(sample):\n"
        f"    from {module}_too import SIGN\n"
        "    return {'x': SIGN * sample['cls']}\n"
        "def samples():\n"
        "    return [turn({'cls': i}) for i in range(120)]\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = [f"{module}:samples", "target", *way] if way else [made, "target", "--map", f"{module}:turn"]
    assert pack(*arguments).exit_code == 0
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        assert [int(s["x"]) for s in dataset] == [-i for i in range(120)]
    with pytest.raises(InvalidArgumentError, match="looked in"):
        prepare.load_callable("not_beside_the_caller:turn")


def grow(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["cls"], **({"late": 1} if sample["cls"] == 7 else {})}


@pytest.mark.parametrize("target", ["mds", "parquet"])
def test_what_only_a_later_sample_has_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made = make(tmp_path / "source", "mds")
    with pytest.raises(InvalidArgumentError, match="sample 7: column 'late' is not one of"):
        prepare.convert(made, tmp_path / "target", format=target, map="test_pack_formats:grow")
    result = prepare.convert(
        made, tmp_path / "chosen", format=target, map="test_pack_formats:grow", columns="x"
    )
    assert result["sample_count"] == len(SAMPLES)


def module_of(folder: Path, name: str, body: str) -> Path:
    """A module as the caller's editor leaves it: a process that imported it before sees the new one."""
    path = folder / f"{name}.py"
    path.write_text(body)
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return path


@pytest.mark.parametrize("defined", ["named", "elsewhere"])
def test_a_changed_function_is_another_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defined: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = make(tmp_path / "source", "mds")
    inner = "changed_map" if defined == "named" else "changed_map_inner"
    if defined == "elsewhere":
        module_of(tmp_path, "changed_map", "from changed_map_inner import f\n")
    wrong = "def f(sample):\n    return {'x': 1 // (6 - sample['cls'])}\n"
    options: dict[str, Any] = {"map": "changed_map:f", "shard_bytes": 300, "workers": 1}
    module_of(tmp_path, inner, wrong)
    with pytest.raises(UserCodeError, match="sample 6: changed_map:f: ZeroDivisionError: "):
        prepare.convert(made, tmp_path / "target", **options)
    before = outputs(tmp_path / "target")
    assert before, "parts before the sample are there"
    for name in ("changed_map", inner):
        sys.modules.pop(name, None)
    with pytest.raises(UserCodeError):  # The same function goes on where it was.
        prepare.convert(made, tmp_path / "target", **options)
    module_of(tmp_path, inner, "def f(sample):\n    return {'x': 7}\n")
    sys.modules.pop("changed_map", None)
    with pytest.raises(InvalidArgumentError, match=r"changed_map:f has changed .* empty it \(\.hrpack\.json"):
        prepare.convert(made, tmp_path / "target", **options)
    assert outputs(tmp_path / "target") == before
    with pytest.raises(InvalidArgumentError, match=r"another source or other options, as \.hrpack\.json"):
        prepare.convert(made, tmp_path / "target", **{**options, "shard_bytes": 301})
    assert prepare.convert(made, tmp_path / "new", **options)["sample_count"] == len(SAMPLES)


def test_functions_without_a_file_are_told_by_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_by_a_program")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    digests = set()
    for body in ("return sample", "return None", "return sample"):
        exec(f"def f(sample):\n    {body}\n", module.__dict__)
        digests.add(source_digest("made_by_a_program:f", module.f))
    assert len(digests) == 2
    assert len(source_digest("time:sleep", time.sleep)) == 64


def raises(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["cls"] == 5:
        raise ValueError("no such class")
    return {"x": sample["cls"]}


def not_a_dict(sample: dict[str, Any]) -> Any:
    return {"x": 1} if sample["cls"] < 5 else [1]


def generated_wrong() -> Iterator[dict[str, Any]]:
    yield {"x": 0}
    raise ValueError("no more")


def generated_lists() -> Iterator[Any]:
    yield from [{"x": 0}, [1]]


@pytest.mark.parametrize("format", ["mds", "parquet"])
def test_errors_of_the_callers_code_name_sample_and_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made = make(tmp_path / "source", "mds")

    def message(*arguments: object) -> str:
        error = pack(*arguments, "--format", format)
        assert isinstance(error, UserCodeError | InvalidArgumentError), error
        return str(error)

    assert (
        message(made, tmp_path / "a", "--map", "test_pack_formats:raises")
        == "sample 5: test_pack_formats:raises: ValueError: no such class"
    )
    assert (
        message(made, tmp_path / "b", "--map", "test_pack_formats:not_a_dict")
        == "sample 5: test_pack_formats:not_a_dict: expected a dict, not a list"
    )
    assert (
        message("test_pack_formats:generated_wrong", tmp_path / "c", "--from", "python")
        == "sample 1: test_pack_formats:generated_wrong: ValueError: no more"
    )
    assert (
        message("test_pack_formats:generated_lists", tmp_path / "d", "--from", "python")
        == "sample 1: test_pack_formats:generated_lists: expected a dict, not a list"
    )


@pytest.mark.parametrize("compression", ["foo", "zstd:abc", "zstd:", "zstd:\N{SUPERSCRIPT TWO}", "snappy:3"])
def test_a_wrong_compression_does_not_block_the_right_one(tmp_path: Path, compression: str) -> None:
    made = make(tmp_path / "source", "mds")
    arguments = [made, tmp_path / "target", "--format", "parquet", "--compression"]
    assert isinstance(pack(*arguments, compression), InvalidArgumentError | UnsupportedError)
    assert not (tmp_path / "target").exists()
    assert pack(*arguments, "zstd:3").exit_code == 0


def test_a_pack_that_made_nothing_does_not_block_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path / "source", "mds")

    def failing(self: PartMaker, number: int) -> dict[str, Any]:
        raise StoppedError

    with monkeypatch.context() as patched:
        patched.setattr(PartMaker, "make", failing)
        with pytest.raises(StoppedError):
            prepare.convert(made, tmp_path / "target", shard_bytes=2000)
    assert (tmp_path / "target" / ".hrpack.json").exists()
    prepare.convert(made, tmp_path / "target", shard_bytes=3000)
    prepare.convert(made, tmp_path / "whole", shard_bytes=3000)
    assert outputs(tmp_path / "target") == outputs(tmp_path / "whole")


def test_of_two_conversions_at_once_the_first_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path / "source", "mds")
    real, is_first = PackTarget.put_part, [True]

    def put_part(self: PackTarget, number: int, facts: dict[str, Any], data: Any) -> None:
        if is_first[0]:
            is_first[0] = False
            prepare.convert(made, tmp_path / "target", shard_bytes=3000)
        real(self, number, facts, data)

    monkeypatch.setattr(PackTarget, "put_part", put_part)
    with pytest.raises(ChangedError, match="another pack began there"):
        prepare.convert(made, tmp_path / "target", shard_bytes=2000, workers=1)
    prepare.convert(made, tmp_path / "whole", shard_bytes=3000)
    assert outputs(tmp_path / "target") == outputs(tmp_path / "whole")


def middle_left_out(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if 20 <= sample["cls"] < 90 else {"x": sample["cls"]}


@pytest.mark.parametrize(("format", "compression"), [*((f, "") for f in SUFFIXES), ("tfrecord", "gzip")])
def test_parts_without_samples_are_no_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, compression: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made = make(tmp_path / "source", "mds")
    with hr.Dataset(made, index_cache="") as dataset:
        part_count = len(plan_parts(dataset, format, 400))
    options: dict[str, Any] = {
        "format": format,
        "map": "test_pack_formats:middle_left_out",
        "shard_bytes": 400,
        "compression": compression,
    }
    result = prepare.convert(made, tmp_path / "target", **options)
    assert result["sample_count"] == 50
    column = "x.cls" if format == "webdataset" else "x"
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        assert [int(np.asarray(s[column]).reshape(-1)[0]) for s in dataset] == [*range(20), *range(90, 120)]
    shards = [
        p for p in (tmp_path / "target").iterdir() if not p.name.startswith(".") and p.suffix != ".json"
    ]
    assert result["shard_count"] == len(shards)
    if format in ("mds", "litdata"):
        index = json.loads((tmp_path / "target" / "index.json").read_text())
        counts = [e.get("samples", e.get("chunk_size")) for e in index.get("shards", index.get("chunks"))]
        assert len(counts) == len(shards)
        assert min(counts) > 0
    if format != "webdataset" and format != "parquet":
        assert result["shard_count"] < part_count
    again = prepare.convert(made, tmp_path / "target", **options)
    assert again == {**result, "resumed_shard_count": again["resumed_shard_count"]}
    assert again["resumed_shard_count"] > 0


def generated() -> list[dict[str, Any]]:
    return [{"x": i} for i in range(10)]


def test_samples_of_a_program_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    result = CliRunner().invoke(
        app,
        [
            "pack",
            "test_pack_formats:generated",
            str(tmp_path / "out"),
            "--from",
            "python",
            "--columns",
            "x:int32",
        ],
    )
    assert result.exit_code == 0, result.output
    with hr.Dataset(tmp_path / "out", index_cache="") as dataset:
        assert [int(s["x"]) for s in dataset] == list(range(10))
    # Without --from python no code is loaded: it is a path that is not there.
    assert (
        CliRunner().invoke(app, ["pack", "test_pack_formats:generated", str(tmp_path / "other")]).exit_code
        != 0
    )


@pytest.mark.parametrize("source", ["files", "mds"])
def test_a_dry_run_writes_nothing(tmp_path: Path, source: str) -> None:
    made = make(tmp_path / "source", "mds") if source == "mds" else tmp_path / "files"
    if source == "files":
        made.mkdir()
        (made / "a.bin").write_bytes(b"12345")
    result = CliRunner().invoke(
        app, ["pack", str(made), str(tmp_path / "target"), "--dry-run", "--json", "--shard-bytes", "4000"]
    )
    assert result.exit_code == 0, result.output
    plan = json.loads(result.stdout)
    assert plan["sample_count"] == (120 if source == "mds" else 1)
    assert not (tmp_path / "target").exists()
    if source == "mds":
        assert (
            prepare.convert(made, tmp_path / "target", shard_bytes=4000)["shard_count"]
            == plan["shard_count"]
            > 2
        )


class StoppedError(Exception):
    """Of the test."""


def test_a_stopped_conversion_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path / "source", "mds")
    prepare.convert(made, tmp_path / "whole", format="litdata", shard_bytes=2000)
    real: Callable[..., dict[str, Any]] = PartMaker.make
    lock, left = threading.Lock(), [3]

    def failing(self: PartMaker, number: int) -> dict[str, Any]:
        with lock:
            left[0] -= 1
            if left[0] < 0:
                raise StoppedError
        return real(self, number)

    monkeypatch.setattr(PartMaker, "make", failing)
    with pytest.raises(StoppedError):
        prepare.convert(made, tmp_path / "target", format="litdata", shard_bytes=2000, workers=2)
    assert not (tmp_path / "target" / "index.json").exists()
    monkeypatch.setattr(PartMaker, "make", real)
    result = prepare.convert(made, tmp_path / "target", format="litdata", shard_bytes=2000)
    assert result["resumed_shard_count"] >= 1
    assert outputs(tmp_path / "target") == outputs(tmp_path / "whole")
    again = prepare.convert(made, tmp_path / "target", format="litdata", shard_bytes=2000)
    assert again["resumed_shard_count"] == again["shard_count"]
    os.remove(tmp_path / "target" / "chunk-0-1.bin")
    prepare.convert(made, tmp_path / "target", format="litdata", shard_bytes=2000)
    assert outputs(tmp_path / "target") == outputs(tmp_path / "whole")
    assert sorted(p.name for p in (tmp_path / "target").iterdir() if p.name.startswith(".")) == [
        ".hrpack.done.json",
        ".hrpack.json",
    ]


def break_hashes(path: Path) -> None:
    """As if every shard were another one of the same size."""
    index = json.loads((path / "index.json").read_text())
    for shard in index["shards"]:
        for part in (shard["raw_data"], shard["zip_data"]):
            if part is not None:
                part["hashes"] = dict.fromkeys(part["hashes"], "0" * 40)
    (path / "index.json").write_text(json.dumps(index))


def test_stored_hashes_of_compressed_shards_are_checked(tmp_path: Path) -> None:
    prepare.write(
        SAMPLES, tmp_path / "source", columns=COLUMNS, shard_bytes=4000, compression="zstd", hash="sha1"
    )
    assert prepare.convert(tmp_path / "source", tmp_path / "good", shard_bytes=9000)["sample_count"] == len(
        SAMPLES
    )
    break_hashes(tmp_path / "source")
    with pytest.raises(CorruptError, match="verifying"):
        prepare.convert(tmp_path / "source", tmp_path / "target", shard_bytes=9000)
    with (
        hr.Dataset(tmp_path / "source", index_cache="") as dataset,
        pytest.raises(CorruptError, match="verifying"),
    ):
        dataset[3]


def test_keys_that_follow_each_other_differ(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="the sample before has the same"):
        prepare.write(
            [{"__key__": "a", "x": 1}, {"__key__": "a", "x": 2}], tmp_path / "out", format="webdataset"
        )


def test_too_little_memory_says_how_much(tmp_path: Path) -> None:
    made = make(tmp_path / "source", "mds")
    with pytest.raises(ExhaustedError, match="a worker needs"):
        prepare.convert(made, tmp_path / "target", memory="16MiB")


def test_a_missing_value_is_an_error_for_mds(tmp_path: Path) -> None:
    prepare.write([{"a": 1, "b": "x"}, {"a": 2}], tmp_path / "source", format="webdataset")
    with pytest.raises(HeadraceError, match="leave a value out"):
        prepare.convert(tmp_path / "source", tmp_path / "target")
    prepare.convert(tmp_path / "source", tmp_path / "parquet", format="parquet")


def write_table(path: Path, columns: dict[str, Any]) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path.mkdir()
    pq.write_table(pa.table(columns), path / "a.parquet")
    return path


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def test_columns_are_those_of_the_source_whatever_its_first_row_holds(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    columns = {
        "number": pa.array([None, 2, 3], pa.int32()),
        "real": pa.array([None, 2.5, 3]),
        "flag": pa.array([None, True, False]),
        "text": pa.array([None, "x", "y"]),
        "blob": pa.array([None, b"x", b""]),
        "price": pa.array([None, Decimal("1.50"), Decimal("2")], pa.decimal128(9, 2)),
        "list": pa.array([[1, None], [], [4, 5]], pa.list_(pa.int32())),
        "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
        "tree": pa.array([None, ["a"], ["b", "c"]]),
    }
    source = write_table(tmp_path / "source", columns)
    prepare.convert(source, tmp_path / "target", format="parquet")
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        found = [{name: plain(value) for name, value in sample.items()} for sample in dataset]
        assert (dataset.schema["number"].dtype, dataset.schema["pair"].shape) == ("int32", (2,))
    for name, values in columns.items():
        expected = values.to_pylist()
        if name == "tree":  # JSON, as text.
            expected = [None if value is None else json.dumps(value) for value in expected]
        if name == "price":
            expected = [None if value is None else str(value) for value in expected]
        assert [row[name] for row in found] == expected


@pytest.mark.parametrize("target", ["webdataset", "tfrecord", "litdata", "parquet"])
def test_empty_lists_are_written_where_the_format_has_them(tmp_path: Path, target: str) -> None:
    pa = pytest.importorskip("pyarrow")
    source = write_table(tmp_path / "source", {"a": pa.array([[1, 2], [], [4]], pa.list_(pa.int32()))})
    prepare.convert(source, tmp_path / "target", format=target)
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        found = [sample["a.npy" if target == "webdataset" else "a"] for sample in dataset]
    if target == "webdataset":
        found = [np.load(io.BytesIO(value)) for value in found]
    assert [np.asarray(value).tolist() for value in found] == [[1, 2], [], [4]]


@pytest.mark.parametrize(
    ("target", "column", "message"),
    [
        ("mds", [[1], [2], []], "sample 2: column 'a': MDS has no arrays without elements"),
        ("mds", [[1], None, [2]], "sample 1: column 'a': MDS cannot leave a value out"),
        ("litdata", [[1], [None, 2], [2]], "sample 1: column 'a': an element is null.* as json"),
        ("mds", [["x"], ["y"], None], "sample 2: column 'a': MDS cannot"),
    ],
)
def test_errors_on_the_way_through_python_name_sample_and_column(
    tmp_path: Path, target: str, column: list[Any], message: str
) -> None:
    source = write_table(tmp_path / "source", {"a": column, "l": [[1], [2], [3]]})
    with pytest.raises(HeadraceError, match=message):
        prepare.convert(source, tmp_path / "target", format=target)
    with pytest.raises(HeadraceError, match="sample 1: column 'x'"):
        prepare.write([{"x": 1}, {"x": "y"}], tmp_path / "written")


def test_what_has_no_first_value_is_named_in_columns(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"column 'x': the first sample has no value.*columns="):
        prepare.write([{"x": None}, {"x": 1}], tmp_path / "out", format="parquet")


def test_lists_with_nulls_become_json(tmp_path: Path) -> None:
    source = write_table(tmp_path / "source", {"a": [[1, None], [2, 3], []]})
    prepare.convert(source, tmp_path / "target", columns="a:json")
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        assert [sample["a"] for sample in dataset] == [[1, None], [2, 3], []]


@pytest.mark.parametrize("target", ["mds", "litdata"])
@pytest.mark.parametrize("member", [b"\xc2(", b"{broken", b""])
def test_members_that_are_no_json_are_not_packed_as_json(tmp_path: Path, target: str, member: bytes) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with tarfile.open(source / "a.tar", "w") as tar:
        for number, value in enumerate((b'{"a": 1}', member)):
            info = tarfile.TarInfo(f"{number}.json")
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))
    if target == "litdata" and member != b"\xc2(":  # Text there: every reader can hand it out.
        prepare.convert(source, tmp_path / "target", format=target)
        return
    with pytest.raises(InvalidArgumentError, match=r"sample 1: column 'json': text that is no.*as bytes"):
        prepare.convert(source, tmp_path / "target", format=target)
    prepare.convert(source, tmp_path / "bytes", format=target, columns="json:bytes")
    with hr.Dataset(tmp_path / "bytes", index_cache="") as dataset:
        assert bytes(dataset[1]["json"]) == member


def test_a_target_that_nobody_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"memory://x.*directory"):
        prepare.write([{"x": 1}], "memory://x")
    made = make(tmp_path / "source", "mds")
    with pytest.raises(InvalidArgumentError, match=r"memory://x.*directory"):
        prepare.convert(made, "memory://x")
    for source in (made, tmp_path):
        run = CliRunner().invoke(app, ["pack", str(source), "memory://x"])
        assert run.exit_code != 0


SECRETS = ("AKIAEXAMPLEKEY", "verysecretvalue", "X-Amz-Signature", "hunter2")


def test_secrets_never_enter_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRETS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[1])
    made = make(tmp_path / "source", "mds")

    def stop(*_: object) -> None:
        raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.prepare.conversion.PackTarget.finish", stop)
        with pytest.raises(StoppedError):
            prepare.convert(
                made, tmp_path / "target", access_key=SECRETS[0], secret_key=SECRETS[1], shard_bytes=4000
            )
    prepare.convert(made, tmp_path / "done", access_key=SECRETS[0], secret_key=SECRETS[1], shard_bytes=4000)
    written = [p for name in ("target", "done") for p in (tmp_path / name).rglob("*") if p.is_file()]
    assert any(".hrpack" in str(p) for p in written)
    for path in written:
        content = path.read_bytes()
        assert not any(secret.encode() in content for secret in SECRETS), path


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://user:hunter2@host:1/a/b?X-Amz-Signature=1#f", "https://host:1/a/b"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("az://account/container?sig=hunter2", "az://account/container"),
        ("/home/user/path?x", ""),
        ("file:///home/user/b", ""),
    ],
)
def test_urls_are_written_down_without_secrets(url: str, public: str) -> None:
    assert public_url(url) == public
