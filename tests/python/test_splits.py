"""Folders laid out as on Hugging Face: splits by their names, files beside the data, wildcards; against
`datasets` itself."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_numbers
from typer.testing import CliRunner

import headrace as hr
from headrace import prepare
from headrace.cli import app

ROWS = {
    "train": [{"id": i, "text": f"a{i}"} for i in range(20)],
    "validation": [{"id": i, "text": f"b{i}"} for i in range(5)],
    "test": [{"id": 9, "text": "c"}],
}


def write_tar(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text.encode()))


def keys_of(root: Path | str, split: str | None = None) -> list[str]:
    with hr.Dataset(root, index_cache="", split=split) as dataset:
        return [shard.key for shard in dataset.shards]


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("id,text\n" + "".join(f"{row['id']},{row['text']}\n" for row in rows))


LAYOUTS: dict[str, tuple[Callable[[Path, list[dict[str, Any]]], None], str]] = {
    "sharded parquet": (parquet, "data/{}-00000-of-00001.parquet"),
    "files of lines": (lines, "{}.jsonl"),
    "folders of lines": (lines, "{}/part.jsonl"),
    "csv": (csv, "my_{}_file.csv"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_repository_opens_as_datasets_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    root = tmp_path / "repo"
    writer, pattern = LAYOUTS[layout]
    for split, rows in ROWS.items():
        path = root / pattern.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        writer(path, rows)
    (root / "README.md").write_text("---\nlicense: mit\n---\n# About\n")
    (root / "LICENSE").write_text("free\n")
    (root / ".gitattributes").write_text("*.parquet filter=lfs\n")
    (root / "dataset_infos.json").write_text("{}\n")
    for split, rows in ROWS.items():
        theirs = list(datasets.load_dataset(str(root), split=split, cache_dir=str(tmp_path / "cache")))
        assert theirs == rows
        with hr.Dataset(root, split=split) as dataset:
            ours = [{**row, "id": int(row["id"])} for row in dataset]
        assert ours == theirs
    for use in (lambda: hr.Dataset(root), lambda: hr.Loader(root, batch_size=1)):
        with pytest.raises(
            hr.InvalidArgumentError, match=r"train \(1 file\), validation \(1 file\), test \(1 file\).*split="
        ):
            use()
    with hr.Dataset(root, split="all") as dataset:
        assert len(dataset) == 26
    with hr.Loader(root, split="validation", batch_size=5, memory="16MiB") as loader:
        assert sum(len(batch.ids) for batch in loader) == 5


WORDS = [
    "train",
    "training",
    "test",
    "testing",
    "val",
    "valid",
    "validation",
    "dev",
    "eval",
    "evaluation",
    "x",
    "data",
    "contest",
    "trainer",
    "7",
    "",
    "b c",
]


def random_name(rng: random.Random) -> str:
    # Not with "_" or "." in front: such names are no data here.
    def part() -> str:
        return rng.choice("-._ 2").join(rng.choice(WORDS) for _ in range(rng.randint(1, 3)))

    folders = [part() for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    if rng.random() < 0.2:
        folders, name = ["data"], f"{rng.choice(['train', 'test', 'other'])}-0000{rng.randint(0, 3)}-of-00004"
    else:
        name = part()
    return "/".join(
        [
            f"f{folder}".replace("/", "") if not folder.strip(". ") or folder.startswith(".") else folder
            for folder in folders
        ]
        + [f"{name.lstrip('._')}.tar"]
    )


@pytest.mark.parametrize("seed", range(400 if os.environ.get("HEADRACE_LONG_TESTS") else 25))
def test_splits_are_those_of_datasets(tmp_path: Path, seed: int) -> None:
    data_files = pytest.importorskip("datasets.data_files")
    rng = random.Random(seed)
    names = {random_name(rng) for _ in range(rng.randint(2, 7))}
    for name in names:
        write_tar(tmp_path / name)
    patterns = data_files.get_data_patterns(str(tmp_path))
    # A file that several of their patterns name comes more than once there.
    theirs = {
        str(split): sorted(set(found))
        for split, found in data_files.DataFilesDict.from_patterns(patterns, str(tmp_path)).items()
    }
    if list(patterns.values()) == [["**"]]:
        assert len(keys_of(tmp_path)) == len(names)
        return
    for split, paths in theirs.items():
        assert sorted(str(tmp_path / key) for key in keys_of(tmp_path, split)) == paths, split
    if len(theirs) > 1:
        with pytest.raises(hr.InvalidArgumentError, match="has the splits"):
            keys_of(tmp_path)


# --- other splits, under the same option ---


def test_a_folder_with_an_index_of_its_own_is_a_split(tmp_path: Path) -> None:
    write_numbers(tmp_path / "train", 30)
    write_numbers(tmp_path / "val", 20)
    with pytest.raises(hr.InvalidArgumentError, match=r"train.*validation.*split="):
        hr.Dataset(tmp_path)
    for split, count in (("train", 30), ("val", 20), ("validation", 20)):
        with hr.Dataset(tmp_path, split=split) as dataset:
            assert (dataset.format, len(dataset)) == ("mds", count)
            assert dataset.write_index() > 0
        with hr.Dataset(tmp_path, split=split) as dataset:
            assert len(dataset) == count
    with pytest.raises(hr.NotFoundError, match="no split 'test'"):
        hr.Dataset(tmp_path, split="test")
    with pytest.raises(hr.HeadraceError, match="index"):
        hr.Dataset(tmp_path, split="all")


def test_the_command_line_takes_the_split(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for split, rows in ROWS.items():
        root.mkdir(exist_ok=True)
        lines(root / f"{split}.jsonl", rows)
    for command in (
        ["inspect", str(root)],
        ["verify", str(root)],
        ["order", str(root)],
        ["pack", str(root), str(tmp_path / "none"), "--from", "text"],
    ):
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code != 0
    for command in (["inspect", str(root)], ["order", str(root), "--batch-size", "1"]):
        done = CliRunner().invoke(app, [*command, "--split", "train", "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["samples"] == 20
    done = CliRunner().invoke(app, ["verify", str(root), "--split", "test", "--json"])
    assert json.loads(done.stdout)["samples_ok"] == 1
    done = CliRunner().invoke(
        app, ["pack", str(root), str(tmp_path / "out"), "--from", "text", "--split", "validation", "--json"]
    )
    assert done.exit_code == 0, done.output
    with hr.Dataset(tmp_path / "out") as dataset:
        assert len(dataset) == 5


# --- wildcards ---


@pytest.fixture
def tree(buckets: Path) -> Path:
    for name in ("d/a.tar", "d/b.tar", "d/x/c.tar", "d/x/y/d.tar", "d/.hidden.tar", "d/notes.bin"):
        write_tar(buckets / "b" / name, name)
    return buckets / "b" / "d"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.tar", ["d/a.tar", "d/b.tar"]),
        ("**/*.tar", ["d/a.tar", "d/b.tar", "d/x/c.tar", "d/x/y/d.tar"]),
        ("x/**", ["d/x/c.tar", "d/x/y/d.tar"]),
        ("[b-z].tar", ["d/b.tar"]),
        ("?.tar::{}/x/*.tar", ["d/a.tar", "d/b.tar", "d/x/c.tar"]),
        ("{b,x/c}*", ["d/b.tar", "d/x/c.tar"]),
    ],
)
def test_wildcards_name_the_objects(
    tree: Path, s3: Any, monkeypatch: pytest.MonkeyPatch, pattern: str, names: list[str]
) -> None:
    monkeypatch.chdir(tree.parent)
    for root in (str(tree), "s3://b/d", "d", f"file://{tree}"):
        url = f"{root}/{pattern.replace('{}', root)}"
        with hr.Dataset(url, index_cache="") as dataset:
            assert [row["txt"].decode() for row in dataset] == names, url


def test_wildcards_that_match_nothing_are_an_error(tree: Path, s3: Any) -> None:
    for url in (f"{tree}/*.zip", "s3://b/d/*.zip", "s3://b/none/*.tar", str(tree.parent / "none" / "*.tar")):
        with pytest.raises(hr.NotFoundError, match=r"no object matches"):
            hr.Dataset(url)
    with pytest.raises(hr.InvalidArgumentError, match="bucket"):
        hr.Dataset("s3://*/d")


def test_a_path_with_such_characters_is_meant_as_it_is(tmp_path: Path) -> None:
    write_tar(tmp_path / "a[1]" / "0.tar")
    assert keys_of(tmp_path / "a[1]") == ["0.tar"]


def test_a_conversion_takes_its_split_from_either_place_and_refuses_two(tmp_path: Path) -> None:
    for split, rows in ROWS.items():
        (tmp_path / "source").mkdir(exist_ok=True)
        lines(tmp_path / "source" / f"{split}.jsonl", rows)
    source = tmp_path / "source"

    def count(**options: Any) -> int:
        return prepare.convert(source, tmp_path / "target", dry_run=True, **options)["sample_count"]

    assert count(split="test") == 1
    assert count(dataset_options={"split": "validation"}) == 5
    assert count(split="validation", dataset_options={"split": "validation"}) == 5
    with pytest.raises(hr.InvalidArgumentError, match=r"split='test' and .*'validation'"):
        count(split="test", dataset_options={"split": "validation"})
