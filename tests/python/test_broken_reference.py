"""Shards written by the reference packages, then damaged: what is whole is read as before, what is not is
named, and nothing wrong comes without an error (../shared/reference; skipped without it)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.verification.checks import equal_values

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"

pytestmark = pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference cases here")


def cut_off(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 5])


def zero_fill(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut off": cut_off,
    "zero-filled": zero_fill,
    "empty": empty,
    "missing": Path.unlink,
}

# With a manifest: whatever happens to a shard, its samples keep their positions.
WITH_MANIFEST = [
    *(f"mds/comp_{how}" for how in ("none", "br", "bz2", "snappy", "zstd")),
    *(
        f"mds/{name}"
        for name in ("all_encodings", "every_hash", "ndarray", "split_csv", "split_json_zstd", "split_tsv_gz")
    ),
    *(
        f"litdata/{age}/{name}"
        for age in ("classic", "current")
        for name in ("arrays", "ints", "mixed", "mixed_zstd", "text", "tokens")
    ),
    *(f"litdata/current/{name}" for name in ("mixed_zstd_chunk", "mixed_zstd_sample", "nested")),
]
# Of these nothing tells zeros from data: no digest, no checksum, no structure.
BLIND_TO_ZEROS = {"litdata/classic/tokens", "litdata/current/tokens"}
# Chunks that are compressed as a whole, of which index.json tells only the size when inflated.
FOUND_WHEN_READ = {"litdata/classic/mixed_zstd", "litdata/current/mixed_zstd_chunk"}


def options_of(case: str) -> dict[str, Any]:
    return {"tokens_per_sample": 16} if case.endswith("tokens") else {}


def whole_samples(root: Path, **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    with hr.Dataset(root, index_cache="", **options) as dataset:
        return dataset.read(range(len(dataset))), list(dataset.shards)


def said_by_opening(root: Path, **options: Any) -> str:
    """The error, or ""."""
    try:
        hr.Dataset(root, index_cache="", **options).close()
    except (hr.CorruptError, hr.NotFoundError) as error:
        return str(error)
    return ""


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(equal_values(a[name], b[name]) for name in a)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("case", WITH_MANIFEST)
def test_shards_of_a_manifest(case: str, damage: str, tmp_path: Path) -> None:
    root = tmp_path / "set"
    shutil.copytree(REFERENCE / case, root)
    options = options_of(case)
    samples, shards = whole_samples(root, **options)
    number = min(1, len(shards) - 1) if len(shards) > 2 else 0
    shard = shards[number]
    DAMAGES[damage](root / shard.key)
    bad = range(shard.first_sample, shard.first_sample + shard.sample_count)
    good = [i for i in range(len(samples)) if i not in bad]
    assert good
    assert len(bad)

    said = said_by_opening(root, **options)
    is_found_at_once = bool(said)
    if said:
        assert shard.key in said
        assert 'on_broken_shard="leave_out"' in said
    assert is_found_at_once or damage == "zero-filled" or (case in FOUND_WHEN_READ and damage == "cut off")

    with hr.Dataset(root, index_cache="", on_broken_shard="leave_out", **options) as dataset:
        assert len(dataset) == len(samples)
        assert [s.key for s in dataset.broken_shards] == ([shard.key] if is_found_at_once else [])
        assert all(same(a, samples[i]) for i, a in zip(good, dataset.read(good), strict=True))
        for i in [] if case in BLIND_TO_ZEROS and damage == "zero-filled" else bad:
            with pytest.raises(hr.CorruptError):
                dataset[i]

    report = hr.verify(root, dataset_options=options)
    if case in BLIND_TO_ZEROS and damage == "zero-filled":
        assert report.shards_unchecked
        return
    assert not report.ok
    assert {p.key for p in report.problems} == {shard.key}
    if is_found_at_once:
        assert [(p.position, p.samples) for p in report.problems] == [(bad.start, len(bad))]
    assert report.samples_ok == len(good)

    with hr.Loader(
        root,
        batch_size=2,
        on_bad_sample="replace",
        index_cache="",
        memory="64MiB",
        epoch_end="uneven",
        **options,
    ) as loader:
        ids = [i for batch in loader for i in batch.ids.tolist()]
    assert len(ids) == len(samples)
    assert not set(ids) & set(bad)
    assert set(good) <= set(ids)


def copies(name: str) -> Callable[[Path], list[Path]]:
    def make(root: Path) -> list[Path]:
        paths = [root / f"{i}{''.join(Path(name).suffixes)}" for i in range(4)]
        for path in paths:
            shutil.copy(REFERENCE / name, path)
        return paths

    return make


def tars(root: Path) -> list[Path]:
    return [Path(shutil.copy(path, root)) for path in sorted((REFERENCE / "wds").glob("written-0*.tar"))]


LISTED: dict[str, Callable[[Path], list[Path]]] = {
    "webdataset": tars,
    "tar.gz": copies("wds/groups.tar.gz"),
    "tfrecord": copies("tfrecord/plain.tfrecord"),
    "tfrecord.gz": copies("tfrecord/plain.tfrecord.gz"),
    "parquet": copies("parquet/none.parquet"),
    "parquet zstd": copies("parquet/zstd.parquet"),
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("format", LISTED)
def test_shards_that_are_listed(format: str, damage: str, number: int, tmp_path: Path) -> None:
    root = tmp_path / "set"
    root.mkdir()
    paths = LISTED[format](root)
    options: dict[str, Any] = {
        "batch_size": 2,
        "on_bad_sample": "replace",
        "index_cache": "",
        "memory": "64MiB",
    }
    samples, shards = whole_samples(root)
    shard = shards[[s.key for s in shards].index(paths[number].name)]
    with hr.Loader(root, **options) as loader:
        next(iter(loader))
        state = loader.state_dict()
    gone = [s for s in shards if s.key == shard.key]  # A Parquet file is a shard for each row group.
    bad = {i for s in gone for i in range(s.first_sample, s.first_sample + s.sample_count)}
    left = [sample for i, sample in enumerate(samples) if i not in bad]
    DAMAGES[damage](paths[number])

    if damage != "missing":  # A listing does not tell of it.
        with pytest.raises(hr.CorruptError, match=f"{shard.key}.*broken: 1 of {len(paths)}"):
            hr.Dataset(root, index_cache="")
    with hr.Dataset(root, index_cache="", on_broken_shard="leave_out") as dataset:
        assert [s.key for s in dataset.broken_shards] == ([] if damage == "missing" else [shard.key])
        assert len(dataset) == len(left)
        assert all(same(a, b) for a, b in zip(dataset, left, strict=True))
    with hr.Loader(root, **options) as loader:
        with pytest.raises(hr.InvalidArgumentError, match="fingerprint"):
            loader.load_state_dict(state)
        ids = [i for batch in loader for i in batch.ids[batch.mask].tolist()]
    assert sorted(ids) == list(range(len(left)))
    report = hr.verify(root)
    assert [p.key for p in report.problems] == ([] if damage == "missing" else [shard.key])
    assert report.samples_ok == len(left)
