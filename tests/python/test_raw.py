"""Trees of files: labels from folders as torchvision gives them, manifests as Hugging Face writes them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr


def open_dataset(path: Path, **options: Any) -> hr.Dataset:
    return hr.Dataset(path, index_cache="", **options)


def write_tree(root: Path, keys: list[str]) -> None:
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(key.encode())


KEYS = [
    "a b/1.png",
    "a-b/x.png",
    "a/2.png",
    "a/deep/3.png",
    "a/deep/er/4.png",
    "B/5.png",
    "\u00e9/6.png",
    "z/7.png",
]


def folder_labels(root: Path) -> dict[str, int]:
    """The rule of torchvision's ImageFolder, in its own words: folders right below the root, sorted by
    name."""
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    return {
        str(file.relative_to(root)): i
        for i, name in enumerate(classes)
        for file in (root / name).rglob("*")
        if file.is_file()
    }


def test_labels_are_those_of_folders(tmp_path: Path) -> None:
    write_tree(tmp_path, KEYS)
    (tmp_path / "README.md").write_text("no class")
    with open_dataset(tmp_path, labels="folder") as dataset:
        assert {s["key"]: s["label"] for s in dataset} == folder_labels(tmp_path)
        assert all(s["data"] == s["key"].encode() for s in dataset)
        assert dataset.schema["label"].classes == ("B", "a", "a b", "a-b", "z", "\u00e9")
        assert (dataset.schema["label"].dtype, dataset.schema["label"].shape) == ("int64", ())
        labelled = dataset.fingerprint
    with open_dataset(tmp_path, format="raw") as dataset:
        assert "label" not in dataset.schema
        assert len(dataset) == len(KEYS) + 1
        assert dataset.fingerprint != labelled


def test_labels_are_those_of_torchvision(tmp_path: Path) -> None:
    folder = pytest.importorskip("torchvision.datasets.folder")
    write_tree(tmp_path, KEYS)
    classes, index_of = folder.find_classes(tmp_path)
    expected = {
        str(Path(path).relative_to(tmp_path)): label
        for path, label in folder.make_dataset(tmp_path, index_of, extensions=(".png",))
    }
    with open_dataset(tmp_path, labels="folder") as dataset:
        assert list(dataset.schema["label"].classes) == classes
        assert {s["key"]: s["label"] for s in dataset} == expected


def test_labels_through_a_loader_and_a_stored_index(tmp_path: Path) -> None:
    write_tree(tmp_path, [f"{i % 3}/{i:02d}" for i in range(30)])
    with open_dataset(tmp_path, labels="folder") as dataset:
        dataset.write_index()
        fingerprint = dataset.fingerprint
    with hr.Loader(tmp_path, batch_size=5, labels="folder", index_cache="", seed=3) as loader:
        seen = {}
        for batch in loader:
            assert batch["label"].dtype.name == "int64"
            seen.update(zip(batch["key"], batch["label"].tolist(), strict=True))
    assert seen == {f"{i % 3}/{i:02d}": i % 3 for i in range(30)}
    with open_dataset(tmp_path, labels="folder") as dataset:
        assert dataset.fingerprint == fingerprint


def test_trees_of_the_same_classes_are_one_dataset(tmp_path: Path) -> None:
    for name, keys in {"one": ["a/1", "b/1"], "two": ["a/2", "b/2"], "other": ["a/3", "c/3"]}.items():
        write_tree(tmp_path / name, keys)
    with hr.Dataset([tmp_path / "one", tmp_path / "two"], labels="folder", index_cache="") as dataset:
        assert [(s["key"], s["label"]) for s in dataset] == [("a/1", 0), ("b/1", 1), ("a/2", 0), ("b/2", 1)]
    with pytest.raises(hr.InvalidArgumentError, match="stand for other classes"):
        hr.Dataset([tmp_path / "one", tmp_path / "other"], labels="folder", index_cache="")


ROWS = [
    {"file_name": "img/2.png", "text": 'a "quoted"\nline', "stars": 3},
    {"file_name": "img/0.png", "text": "\u00e9, comma", "stars": 5},
    {"file_name": "img/1.png", "text": "", "stars": -1},
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_tree(tmp_path, [f"img/{i}.png" for i in range(4)])
    return tmp_path


def test_a_manifest_of_json_lines(files: Path) -> None:
    (files / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with open_dataset(files, manifest="metadata.jsonl") as dataset:
        assert list(dataset.schema) == ["data", "key", "stars", "text"]
        assert dataset.schema["stars"].dtype == "int64"
        for sample, row in zip(dataset, ROWS, strict=True):
            assert sample == {
                "data": row["file_name"].encode(),
                "key": row["file_name"],
                "text": row["text"],
                "stars": row["stars"],
            }
        assert dataset[2]["stars"] == -1
        # Random access costs the file alone; the record is in the index.
        assert dataset.read([1, 0], columns=["text"]) == [
            {"text": ROWS[1]["text"]},
            {"text": ROWS[0]["text"]},
        ]
    with hr.Loader(files, batch_size=3, manifest="metadata.jsonl", shuffle=False, index_cache="") as loader:
        batch = next(iter(loader))
        assert batch["stars"].tolist() == [3, 5, -1]
        assert batch["text"] == [row["text"] for row in ROWS]


def test_a_manifest_of_csv_below_its_own_folder(files: Path) -> None:
    with (files / "img" / "metadata.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "file_name", "stars"])
        writer.writeheader()
        writer.writerows({**row, "file_name": row["file_name"].removeprefix("img/")} for row in ROWS)
    with open_dataset(files, manifest="img/metadata.csv") as dataset:
        assert [(s["key"], s["text"], s["stars"]) for s in dataset] == [
            (row["file_name"], row["text"], str(row["stars"])) for row in ROWS
        ]


def test_datasets_of_hugging_face_agree(files: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (files / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    table = datasets.load_dataset(
        "imagefolder", data_dir=str(files), split="train", cache_dir=str(files / ".cache")
    ).cast_column("image", datasets.Image(decode=False))
    expected = {Path(row["image"]["path"]).name: (row["text"], row["stars"]) for row in table}
    with open_dataset(files, manifest="metadata.jsonl") as dataset:
        assert {Path(s["key"]).name: (s["text"], s["stars"]) for s in dataset} == expected


def test_a_manifest_that_changes_is_another_dataset(files: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    manifest = files / "metadata.jsonl"
    manifest.write_text(json.dumps(ROWS[0]))
    with hr.Dataset(files / "img" / "..", index_cache=cache, manifest="metadata.jsonl") as dataset:
        first = dataset.fingerprint
    manifest.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with hr.Dataset(files / "img" / "..", index_cache=cache, manifest="metadata.jsonl") as dataset:
        assert len(dataset) == 3
        assert dataset.fingerprint != first


def test_wrong_trees_say_why(files: Path) -> None:
    with pytest.raises(hr.NotFoundError, match=r"metadata\.csv"):
        open_dataset(files, manifest="metadata.csv")
    (files / "metadata.csv").write_text("file_name\nimg/9.png\n")
    with pytest.raises(hr.NotFoundError, match=r"img/9\.png: not there; record 0 of metadata\.csv"):
        open_dataset(files, manifest="metadata.csv")
    with pytest.raises(hr.InvalidArgumentError, match="leave out labels"):
        open_dataset(files, manifest="metadata.csv", labels="folder")
    with pytest.raises(hr.InvalidArgumentError, match="must be 'folder'"):
        open_dataset(files, labels="name")
    with pytest.raises(hr.InvalidArgumentError, match="wants a folder for each class"):
        open_dataset(files / "img", labels="folder")
    with pytest.raises(hr.InvalidArgumentError, match="manifest= when it is about the other files"):
        open_dataset(files)


def test_a_shuffled_folder_is_read_in_the_order_of_need(buckets: Path, s3: Any, tmp_path: Path) -> None:
    write_tree(buckets / "b" / "tree", [f"{i:04}.bin" for i in range(300)])
    log = tmp_path / "log"
    with hr.Dataset("s3://b/tree", format="raw") as dataset:
        keys = [block.shard for block in dataset.blocks]
    assert len(keys) < 10, "blocks hold many files"
    ids: list[int] = []
    with hr.Loader(
        "s3://b/tree", format="raw", batch_size=10, seed=1, max_in_flight=1, access_log=str(log)
    ) as loader:
        for batch in loader:
            assert [bytes(value) for value in batch["data"]] == [f"{i:04}.bin".encode() for i in batch.ids]
            ids += batch.ids.tolist()
    assert ids != sorted(ids)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    read = [
        line["object"] for line in lines if line["operation"] == "get" and line["object"].endswith(".bin")
    ]
    wanted = [f"s3://b/tree/{i:04}.bin" for i in ids]
    # Within a batch as they lie.
    for begin in range(0, 300, 10):
        assert sorted(read[begin : begin + 10]) == sorted(wanted[begin : begin + 10])
