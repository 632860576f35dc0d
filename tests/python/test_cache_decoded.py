"""Decoded values in the cache: bit for bit the same batches, decoded once, whatever happens to the files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import Done, where
from image_jpeg import photograph, saved
from test_cache import extents, on_ranks
from tfrecord.writer import TFRecordWriter

import headrace as hr
from headrace import prepare
from headrace import sim as simulator

COUNT = 230
CROP: dict[str, Any] = {"resize": 40, "crop": 32}

Rows = list[tuple[list[int], bytes]]
"""Labels and pixels of each batch."""


def photographs(seed: int = 0) -> Iterator[dict[str, Any]]:
    for i in range(COUNT):
        yield {"image": saved(photograph(48 + i % 5, 56, seed + i), "JPEG", quality=90), "label": i}


def pack(path: Path, seed: int = 0, **options: Any) -> None:
    prepare.write(photographs(seed), str(path), format="mds", shard_bytes="64KiB", **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoded") / "root"
    pack(path / "b")
    return path


@pytest.fixture
def server(root: Path) -> Iterator[simulator.Server]:
    with simulator.Server(str(root)) as server:
        yield server


def open_loader(server: simulator.Server, cache: Path | None = None, **options: Any) -> hr.Loader:
    given: dict[str, Any] = {"batch_size": 16, "seed": 3, "memory": "64MiB", "cache_decoded": "always"}
    given["decode"] = {"image": hr.decode.image(**CROP)}
    if cache is None:
        del given["cache_decoded"]
    else:
        given["cache"] = cache
    url = options.pop("url", "s3://b")
    return hr.Loader(url, **{**given, **where(server), **options})


def rows(batches: Iterable[hr.Batch]) -> Rows:
    return [(batch["label"].tolist(), batch["image"].tobytes()) for batch in batches]


def epochs(loader: hr.Loader, count: int = 1) -> Rows:
    out = []
    for _ in range(count):
        out += rows(loader)
        flush(loader)
    return out


def flush(loader: hr.Loader) -> None:
    options = loader._engine.source.store_options
    if "cache" in options:
        hr.Cache(options["cache"], key=options.get("cache_key"))._native.flush()


def decoded(loader: hr.Loader) -> float:
    return loader.stats()["loader.decoded_values"]


def kept_files(cache: Path) -> list[Path]:
    """Files that hold decoded values."""
    return [cache / extent.path for extent in hr.Cache(cache).extents() if "#image" in extent.url]


@pytest.mark.parametrize("order", ["headrace", "sequential", "mosaic:py1e"])
@pytest.mark.parametrize("setting", ["auto", "always", "never"])
def test_batches_are_the_same_with_every_setting(
    server: simulator.Server, tmp_path: Path, setting: str, order: str
) -> None:
    with open_loader(server, order=order) as plain:
        expected = epochs(plain, 3)
    with open_loader(server, tmp_path / "cache", order=order, cache_decoded=setting) as loader:
        assert epochs(loader, 3) == expected
    assert bool(kept_files(tmp_path / "cache")) or setting != "always"


@pytest.mark.parametrize("checks_first", [True, False])
def test_who_checks_takes_nothing_from_who_does_not(
    server: simulator.Server, tmp_path: Path, checks_first: bool
) -> None:
    """Neither stored bytes nor what was made of them; nor the other way round."""
    for checks in (checks_first, not checks_first):
        with open_loader(server, tmp_path / "cache", verify_checksums=checks) as loader:
            epochs(loader)
            assert decoded(loader) >= COUNT
            assert loader.stats()["cache.hit_bytes"] == 0
            before = decoded(loader)
            epochs(loader)
            assert decoded(loader) == before


def test_the_second_epoch_decodes_nothing(server: simulator.Server, tmp_path: Path) -> None:
    with open_loader(server, tmp_path / "cache") as loader:
        epochs(loader)
        assert decoded(loader) >= COUNT
        before = decoded(loader)
        epochs(loader, 2)
        assert decoded(loader) == before
        assert loader.stats()["loader.cached_values"] >= 2 * COUNT
        assert loader.stats()["loader.cached_columns"] == 1
    # Nor does the next job, in another order.
    with open_loader(server, tmp_path / "cache", seed=8, batch_size=5) as loader:
        assert sorted(label for labels, _ in epochs(loader) for label in set(labels)) == list(range(COUNT))
        assert decoded(loader) == 0


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_ranks_share_what_they_have_decoded(tmp_path: Path, compression: str) -> None:
    pack(tmp_path / "root" / "b", compression=compression)
    with simulator.Server(str(tmp_path / "root")) as server:
        options = {"cache": str(tmp_path / "cache"), **where(server)}
        first = on_ranks(_read_share, 2, options)
        assert sum(found for found, _ in first) >= COUNT
        second = on_ranks(_read_share, 2, options)
        assert [found for found, _ in second] == [0, 0]
        assert sorted(kept for _, kept in first) == sorted(kept for _, kept in second)


def _read_share(url: str, rank: int, ranks: int, options: dict[str, Any], out: Any) -> None:
    decode = {"image": hr.decode.image(**CROP)}
    with hr.Loader(
        url, batch_size=8, rank=rank, world_size=ranks, decode=decode, cache_decoded="always", **options
    ) as loader:
        got = epochs(loader)
        out.put((decoded(loader), got))


def test_other_options_of_the_decoding_are_other_values(server: simulator.Server, tmp_path: Path) -> None:
    for changed in (
        CROP,
        {"resize": 40, "crop": 30},
        {**CROP, "interpolation": "bicubic"},
        {**CROP, "mode": "L"},
    ):
        decode = {"image": hr.decode.image(**changed)}
        with open_loader(server, decode=decode) as plain:
            expected = epochs(plain, 2)
        with open_loader(server, tmp_path / "cache", decode=decode) as loader:
            assert epochs(loader, 2) == expected
            assert COUNT <= decoded(loader) < 2 * COUNT


def test_columns_are_told_apart_whatever_they_are_called_in_batches(tmp_path: Path) -> None:
    """Both give a column `image`, from two stored ones."""
    root = tmp_path / "root"
    rows_of = [
        {
            name: bytes(TFRecordWriter.serialize_tf_example({"image": (pixels, "byte")}))
            for name, pixels in row
        }
        for row in (
            [(name, saved(photograph(48, 56, 2 * i + k), "JPEG")) for k, name in enumerate(("front", "rear"))]
            for i in range(40)
        )
    ]
    prepare.write(rows_of, str(root / "b"), format="mds")
    with simulator.Server(str(root)) as server:
        for name in ("front", "rear"):
            options = {
                "decode": {name: hr.decode.tf_example({"image": hr.decode.image(**CROP)})},
                "columns": [name],
            }
            with open_loader(server, **options) as plain:
                expected = [batch["image"].tobytes() for batch in plain]
            with open_loader(server, tmp_path / "cache", **options) as loader:
                assert [batch["image"].tobytes() for batch in loader] == expected


def test_an_object_that_is_written_anew_is_decoded_anew(tmp_path: Path) -> None:
    for seed in (0, 1000):
        shutil.rmtree(tmp_path / "root", ignore_errors=True)
        pack(tmp_path / "root" / "b", seed=seed)
        with simulator.Server(str(tmp_path / "root")) as server:
            with open_loader(server) as plain:
                expected = epochs(plain)
            with open_loader(server, tmp_path / "cache") as loader:
                assert epochs(loader) == expected
                assert decoded(loader) >= COUNT


def test_what_is_random_is_not_kept(server: simulator.Server, tmp_path: Path) -> None:
    for random in ({"random_resized_crop": 32}, {**CROP, "flip": True}, {"resize": 40, "random_crop": 32}):
        decode = {"image": hr.decode.image(**random)}
        with open_loader(server, decode=decode) as plain:
            expected = epochs(plain, 2)
        with open_loader(server, tmp_path / "cache", decode=decode) as loader:
            assert epochs(loader, 2) == expected
    assert not kept_files(tmp_path / "cache")


def test_what_is_damaged_is_decoded_anew(server: simulator.Server, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with open_loader(server) as plain:
        expected = epochs(plain, 3)
    with open_loader(server, cache) as loader:
        got = epochs(loader)
        before = decoded(loader)
        for i, path in enumerate(kept_files(cache)):
            data = bytearray(path.read_bytes())
            data[4096 + 4096 * (i % 3) + i % 3000] ^= 1
            path.write_bytes(data[: len(data) // 2] if i % 4 == 3 else data)
        got += epochs(loader)
        assert decoded(loader) > before
        assert loader.stats()["cache.corrupt"] > 0
        got += epochs(loader)
        assert got == expected
        # All that is damaged was met, and is kept anew.
        epochs(loader)
        before = decoded(loader)
        epochs(loader)
        assert decoded(loader) == before


@pytest.mark.parametrize("limit", ["150kB", "600kB", "1MB"])
def test_a_limit_holds(server: simulator.Server, tmp_path: Path, limit: str) -> None:
    cache = tmp_path / "cache"
    with open_loader(server) as plain:
        expected = epochs(plain, 3)
    for setting in ("always", "auto"):
        with open_loader(server, cache, cache_limit=limit, cache_decoded=setting) as loader:
            assert epochs(loader, 3) == expected
        used = sum(path.stat().st_size for path in extents(cache))
        assert used <= {"150kB": 150e3, "600kB": 600e3, "1MB": 1e6}[limit]


def test_a_killed_run_leaves_what_is_right_or_nothing(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with simulator.Server(str(root)) as server:
        with open_loader(server) as plain:
            expected = epochs(plain)
        for batches in (3, 9, 13):
            done = subprocess.run(
                [sys.executable, __file__, str(cache), str(batches), server.endpoint],
                env={**os.environ, "ACCESS": server.access_key, "SECRET": server.secret_key},
                check=False,
            )
            assert done.returncode == -signal.SIGKILL
            assert hr.Cache(cache).verify().broken == 0
        with open_loader(server, cache) as loader:
            assert epochs(loader) == expected
        with open_loader(server, cache) as loader:
            assert epochs(loader) == expected
            assert decoded(loader) == 0
        usage = hr.Cache(cache).usage()
        assert usage.file_bytes == sum(path.stat().st_size for path in extents(cache))


def _die_after(cache: str, batches: int, endpoint: str) -> None:
    loader = hr.Loader(
        "s3://b",
        batch_size=16,
        seed=3,
        endpoint=endpoint,
        access_key=os.environ["ACCESS"],
        secret_key=os.environ["SECRET"],
        cache=cache,
        cache_decoded="always",
        decode={"image": hr.decode.image(**CROP)},
    )
    for i, _ in enumerate(loader):
        if i == batches:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_resumed_run_goes_on_with_the_same_pixels(server: simulator.Server, tmp_path: Path) -> None:
    with open_loader(server) as plain:
        expected = epochs(plain, 2)
    cache = tmp_path / "cache"
    with open_loader(server, cache) as loader:
        got = []
        for batch in loader:
            got += rows([batch])
            if len(got) == 6:
                break
        state = loader.state_dict()
    with open_loader(server, cache) as loader:
        loader.load_state_dict(state)
        got += epochs(loader, 2)
        assert got == expected


def test_sources_of_a_mixture_are_kept_by_what_they_are(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 500)):
        pack(tmp_path / "root" / name, seed=seed)
    decode = {"image": hr.decode.image(**CROP)}

    def read(server: simulator.Server, names: list[str], **options: Any) -> tuple[Rows, float]:
        store = where(server)
        mixture = hr.Mixture({name: (f"s3://{name}", 1.0) for name in names}, **store, **options)
        setting = "always" if "cache" in options else "auto"
        with hr.Loader(mixture, batch_size=16, decode=decode, cache_decoded=setting) as loader:
            got = []
            for _ in range(2):
                got += rows(loader)
                hr.Cache(tmp_path / "cache", create=True)._native.flush()
            return got, decoded(loader)

    with simulator.Server(str(tmp_path / "root")) as server:
        expected, _ = read(server, ["one", "two"])
        got, first = read(server, ["one", "two"], cache=tmp_path / "cache")
        assert got == expected
        assert 2 * COUNT <= first < 3 * COUNT
        # Each is found when it stands elsewhere, and alone.
        assert read(server, ["two", "one"], cache=tmp_path / "cache")[1] == 0
        with open_loader(server, tmp_path / "cache", url="s3://two") as loader:
            epochs(loader)
            assert decoded(loader) == 0


def test_files_of_their_own_are_kept_together(tmp_path: Path) -> None:
    for row in photographs():
        path = tmp_path / "root" / "b" / f"{row['label']:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["image"])
    decode = {"data": hr.decode.image(**CROP)}
    with simulator.Server(str(tmp_path / "root")) as server:

        def read(cache: Path | None) -> tuple[list[bytes], float]:
            with open_loader(server, cache, decode=decode) as loader:
                got = []
                for _ in range(2):
                    got += [batch["data"].tobytes() for batch in loader]
                    flush(loader)
                return got, decoded(loader)

        expected, _ = read(None)
        got, first = read(tmp_path / "cache")
        assert got == expected
        assert COUNT <= first < 2 * COUNT
        assert read(tmp_path / "cache") == (expected, 0)


def test_pixels_are_encrypted_and_listed(
    server: simulator.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    monkeypatch.setenv("KEY", "07" * 32)
    cache = tmp_path / "cache"
    with open_loader(server, cache, cache_key="env:KEY") as loader:
        pixels = epochs(loader)[0][1]
        before = decoded(loader)
        epochs(loader)
        assert decoded(loader) == before
    files = kept_files(cache)
    assert files
    value = 32 * 32 * 3
    for path in files:
        data = path.read_bytes()
        assert not any(pixels[at : at + 64] in data for at in range(0, len(pixels), value))
    assert hr.Cache(cache, key="env:KEY").verify().broken == 0
    listed: Done = cli("cache", "ls", str(cache))
    assert "#image" in listed.out
    assert hr.Cache(cache).remove("s3://b/") > 0
    assert not kept_files(cache)


def test_settings_that_make_no_sense_are_refused(server: simulator.Server, tmp_path: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="cache_decoded"):
        open_loader(server, tmp_path / "cache", cache_decoded="sometimes")
    with pytest.raises(hr.InvalidArgumentError, match="name one with cache="):
        open_loader(server, cache_decoded="always")


if __name__ == "__main__":
    _die_after(sys.argv[1], int(sys.argv[2]), sys.argv[3])


def shades(count: int) -> list[bytes]:
    return [saved(np.full((40, 40, 3), 8 * i, np.uint8), "PNG") for i in range(count)]


def means(loader: hr.Loader, name: str, image: str) -> dict[Any, float]:
    with loader:
        found = {
            key: float(each.mean())
            for batch in loader
            for key, each in zip(batch[name], batch[image], strict=True)
        }
        flush(loader)
    return found


def test_row_groups_that_are_left_out_take_no_others_values(tmp_path: Path) -> None:
    """What lies between two groups is read as well: with and without one, a block has the same bytes."""
    pq = pytest.importorskip("pyarrow.parquet")
    groups, each = 6, 4
    (tmp_path / "root" / "b").mkdir(parents=True)
    table = pa.table(
        {
            "image": pa.array(shades(groups * each), pa.binary()),
            "group": [i // each for i in range(groups * each)],
            "i": list(range(groups * each)),
        }
    )
    pq.write_table(table, tmp_path / "root" / "b" / "a.parquet", row_group_size=each)
    with simulator.Server(str(tmp_path / "root")) as server:
        for chosen in ([0, 1, 3], [0, 2, 3], [0, 1, 2, 3], [1, 2, 4], [1, 3, 4]):
            given: dict[str, Any] = {
                "where": [("group", "in", chosen)],
                "batch_size": each,
                "index_cache": "",
            }
            loader = open_loader(server, tmp_path / "cache", **given)
            found = means(loader, "i", "image")
            assert found == {i: 8 * i for i in range(groups * each) if i // each in chosen}


def test_files_beside_an_empty_one_take_no_others_values(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "b"
    folder.mkdir(parents=True)
    for name, data in zip(("a.png", "b.png"), shades(3)[1:], strict=True):
        (folder / name).write_bytes(data)
    (folder / "empty.png").write_bytes(b"")
    given: dict[str, Any] = {"format": "raw", "order": "sequential", "on_bad_sample": "replace"}
    given |= {"batch_size": 3, "decode": {"data": hr.decode.image(**CROP)}}
    with simulator.Server(str(tmp_path / "root")) as server:
        for keys in (["empty.png", "a.png", "b.png"], ["a.png", "b.png", "empty.png"]):
            found = means(open_loader(server, tmp_path / "cache", keys=keys, **given), "key", "data")
            assert found == {"a.png": 8, "b.png": 16}
