"""Random damage to datasets of every format: what opens has all samples, right ones where the format has
checksums; all else is an error."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.prepare import write

COUNT = 120
LONG = bool(os.environ.get("HEADRACE_LONG_TESTS"))
ROUNDS = 250 if LONG else 12


def rows() -> list[dict[str, Any]]:
    return [{"id": i, "text": f"row {i} " * (1 + i % 9)} for i in range(COUNT)]


def _mosaic(root: Path, **options: Any) -> None:
    streaming = pytest.importorskip("streaming")
    with streaming.MDSWriter(
        out=str(root), columns={"id": "int", "text": "str"}, size_limit=1 << 11, **options
    ) as writer:
        for row in rows():
            writer.write(row)


def _litdata(root: Path, **options: Any) -> None:
    write(rows(), root, format="litdata", shard_bytes="2KiB", **options)


def _lines(root: Path) -> None:
    root.mkdir()
    for part in range(3):
        text = "".join(f'{{"id": {i}, "text": "t{i}"}}\n' for i in range(part * 40, part * 40 + 40))
        (root / f"part-{part}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _arrays(root: Path) -> None:
    root.mkdir()
    for part in range(3):
        np.save(root / f"part-{part}.npy", np.arange(part * 40, part * 40 + 40))


def _packed(format: str, **options: Any) -> Callable[[Path], None]:
    return lambda root: (
        (
            write(rows(), root, format=format, shard_bytes="2KiB", **options),
            [p.unlink() for p in root.glob(".hrpack*")],
        )[1]
        and None
    )


WRITERS: dict[str, Callable[[Path], None]] = {
    "mds": _mosaic,
    "mds hashed": lambda root: _mosaic(root, hashes=["xxh64"]),
    "mds zstd": lambda root: _mosaic(root, compression="zstd", hashes=["sha1"]),
    "litdata": _litdata,
    "litdata zstd": lambda root: _litdata(root, compression="zstd"),
    "webdataset": _packed("webdataset"),
    "webdataset gzip": _packed("webdataset", compression="gzip"),
    "tfrecord": _packed("tfrecord"),
    "parquet": _packed("parquet"),
    "jsonl.gz": _lines,
    "npy": _arrays,
}
# Every flipped bit of a shard is seen when it is read: by checksums that the format itself has.
CHECKED = {"tfrecord", "jsonl.gz", "webdataset gzip", "mds zstd"}


@pytest.fixture(scope="module", params=WRITERS)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, list[Any]]:
    root = tmp_path_factory.mktemp("mutations") / "set"
    WRITERS[request.param](root)
    with hr.Dataset(root, index_cache="") as dataset:
        good = [repr(row) for row in dataset]
    assert len(good) == COUNT
    return request.param, root, good


def damage(rng: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    kind = rng.choice(("flip", "cut", "empty", "gone", "zeros"))
    at = rng.randrange(len(data))
    if kind == "gone":
        path.unlink()
        return kind
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "zeros":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    path.write_bytes(b"" if kind == "empty" else data[:at] if kind == "cut" else data)
    return kind


@pytest.mark.parametrize("with_index", [True, False], ids=["sound index", "any file"])
def test_damage_is_an_error_or_does_no_harm(
    case: tuple[str, Path, list[Any]], tmp_path: Path, with_index: bool
) -> None:
    name, good_root, good = case
    has_index = (good_root / "index.json").exists()
    if not with_index and not has_index:
        pytest.skip("there is no index of its own")
    for number in range(ROUNDS):
        rng = random.Random(f"{name} {with_index} {number}")
        root = tmp_path / str(number)
        shutil.copytree(good_root, root)
        files = sorted(path for path in root.iterdir() if path.name.startswith("index") == (not with_index))
        if not files:
            continue
        target = rng.choice(files)
        kind = damage(rng, target)
        what = f"{name} round {number}: {kind} of {target.name}"
        try:
            with hr.Dataset(root, index_cache="") as dataset:
                assert dataset.format != "raw", what
                found = [repr(row) for row in dataset]
        except hr.HeadraceError:
            found = None
        if kind == "gone" and not has_index:
            # Without a list of its shards nobody can miss one.
            assert found is None or len(found) < COUNT, what
        elif found is not None:
            assert len(found) == COUNT, what
            # A tar without its end mark is accepted (docs/formats.md), so one that is cut off between two
            # members is a whole one.
            is_tar_end = kind == "cut" and name == "webdataset"
            is_unseen = is_tar_end or (
                kind in ("flip", "zeros") and (name not in CHECKED or target.name == "index.json")
            )
            assert is_unseen or found == good, what
        shutil.rmtree(root)
