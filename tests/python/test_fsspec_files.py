"""What the fsspec file system reads and writes, how that fails, and which requests it costs."""

from __future__ import annotations

import asyncio
import gc
import os
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec_world import MIB, count, data, fs, reads, requests, uploads

import headrace as hr
import headrace.fsspec
from headrace import sim as simulator
from headrace.fsspec.reading import Block, ReadAhead, Room
from headrace.fsspec.versions import Versions

__all__ = ["data", "fs"]


def test_cat_file_takes_what_slices_take(fs: Any) -> None:
    text = b"0123456789"
    fs.pipe_file("b/x", text)
    for start in (None, 0, 3, 10, 99, -4, -99):
        for end in (None, 0, 5, 10, 99, -2, -99):
            assert fs.cat_file("b/x", start, end) == text[start:end], (start, end)


def test_cat_ranges_of_many_objects_in_order(fs: Any, data: bytes) -> None:
    fs.pipe_file("b/large", data)
    fs.pipe_file("b/small", b"0123456789")
    paths, starts, ends, expected = [], [], [], []
    for i in range(300):
        name, content = ("b/small", b"0123456789") if i % 3 == 0 else ("s3://b/large", data)
        start = (i * 7919) % len(content)
        paths.append(name)
        starts.append(start)
        ends.append(start + 1 + i * 13)  # some past the end
        expected.append(content[start : ends[-1]])
    assert fs.cat_ranges(paths, starts, ends) == expected
    assert fs.cat_ranges(["b/small"] * 2, 2, [4, None]) == [b"23", b"23456789"]
    assert fs.cat_ranges(["b/small"], [-3], [None]) == [b"789"]
    assert fs.cat_ranges([], [], []) == []
    with pytest.raises(hr.InvalidArgumentError, match="2 starts"):
        fs.cat_ranges(["b/small"], [1, 2], [3])


@pytest.mark.parametrize("is_cached", [False, True])
def test_ranges_that_are_large_beside_the_memory_are_read_all_the_same(
    s3: simulator.Server, tmp_path: Path, is_cached: bool
) -> None:
    cache = {"cache": tmp_path / "cache"} if is_cached else {}
    fs = hr.fs("s3://b", memory="24MiB", endpoint=s3.endpoint, **cache)
    data = os.urandom(MIB) * 40
    fs.pipe_file("b/x", data)
    for size in (3 * MIB, 6 * MIB, 8 * MIB, 13 * MIB, 30 * MIB):
        starts = [i * MIB for i in range(10)]
        expected = [data[start : start + size] for start in starts]
        assert fs.cat_ranges(["b/x"] * 10, starts, [start + size for start in starts]) == expected
        assert fs.cat_file("b/x", 1, size) == data[1:size]
    assert fs.cat_file("b/x", 100, 1 << 40) == data[100:]
    found = fs.cat_ranges(["b/x", "b/none", "b/x"], [0, 0, 5], [39 * MIB, 39 * MIB, 10])
    assert (found[0], found[2]) == (data[: 39 * MIB], data[5:10])
    assert isinstance(found[1], hr.NotFoundError)
    with pytest.raises(hr.NotFoundError):
        fs.cat_file("b/none", 0, 39 * MIB)
    fs.close()


def test_cat_ranges_puts_errors_where_they_belong(fs: Any) -> None:
    fs.pipe_file("b/x", b"0123456789")
    paths = ["b/x", "b/missing", "b/x", "b/gone"]
    found = fs.cat_ranges(paths, 0, 3)
    assert found[0] == found[2] == b"012"
    assert isinstance(found[1], FileNotFoundError)
    assert "missing" in str(found[1])
    assert "gone" in str(found[3])
    assert isinstance(fs.cat_ranges(paths, 0, None)[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 3, on_error="raise")


def test_cat_ranges_is_one_request_a_range(fs: Any, s3: simulator.Server) -> None:
    fs.pipe_file("b/x", bytes(MIB))
    before = reads(s3)
    fs.cat_ranges(["b/x"] * 50, [i * 1000 for i in range(50)], [i * 1000 + 10 for i in range(50)])
    assert reads(s3) - before == 50
    assert count(s3, "head_object") == 0


@pytest.mark.parametrize("cache_type", ["headrace", "none", "bytes", "readahead", "blockcache", "background"])
def test_files_read_what_python_reads(fs: Any, data: bytes, tmp_path: Path, cache_type: str) -> None:
    fs.pipe_file("b/x", data)
    (tmp_path / "x").write_bytes(data)
    with (
        fs.open("b/x", "rb", cache_type=cache_type, block_size=MIB) as mine,
        open(tmp_path / "x", "rb") as theirs,
    ):
        for place, size in [
            (0, 4),
            (4, 100),
            (104, 3 * MIB),
            (-8, 8),
            (5 * MIB, 10),
            (0, 2 * MIB),
            (MIB, 17),
        ]:
            whence = 2 if place < 0 else 0
            assert mine.seek(place, whence) == theirs.seek(place, whence)
            assert mine.read(size) == theirs.read(size)
            assert mine.tell() == theirs.tell()
        theirs.seek(mine.seek(9 * MIB))
        assert mine.read() == theirs.read()
        assert mine.read(10) == b""
        mine.seek(0)
        theirs.seek(0)
        while piece := theirs.read(700_001):
            assert mine.read(700_001) == piece
        buffer = bytearray(1000)
        mine.seek(123)
        assert mine.readinto(buffer) == 1000
        assert buffer == data[123:1123]


def test_text_and_compression(fs: Any) -> None:
    lines = [f"line {i} äöü\n" for i in range(10_000)]
    for compression in (None, "gzip", "bz2", "xz", "zip"):
        with fs.open("b/t", "w", encoding="utf-8", compression=compression) as file:
            file.writelines(lines)
        with fs.open("b/t", "r", encoding="utf-8", compression=compression) as file:
            assert list(file) == lines, compression
    with fs.open("b/t.gz", "wb", compression="infer") as file:
        file.write(b"packed")
    assert fs.cat_file("b/t.gz")[:2] == b"\x1f\x8b"
    with fs.open("b/t2.gz", "wt", compression="infer") as file:
        file.write("text")
    with fs.open("b/t2.gz", "rt", compression="infer") as file:
        assert file.read() == "text"


def test_an_open_file_is_one_version(fs: Any, data: bytes) -> None:
    fs.pipe_file("b/x", data)
    with fs.open("b/x", cache_type="none") as file:
        assert file.read(10) == data[:10]
        fs.pipe_file("b/x", data[::-1])
        with pytest.raises(hr.ChangedError, match="x"):
            file.read(10)
    with fs.open("b/x") as file:
        assert file.read(10) == data[::-1][:10]


def test_reading_in_order_is_ahead_and_reading_anywhere_is_not(
    fs: Any, data: bytes, s3: simulator.Server
) -> None:
    fs.pipe_file("b/x", data)
    before = reads(s3)
    with fs.open("b/x", block_size=MIB) as file:
        for place in (5 * MIB, 2 * MIB, 8 * MIB, MIB):
            file.seek(place)
            assert file.read(100) == data[place : place + 100]
        assert reads(s3) - before == 4
        assert file.cache.total_requested_bytes == 4 * (64 << 10)
        file.seek(0)
        for place in range(0, len(data), 100_000):
            assert file.read(100_000) == data[place : place + 100_000]
    # Once each, on a grid of a MiB, but for the beginning.
    assert reads(s3) - before <= 4 + 15
    assert file.closed


def test_known_ranges_are_read_once_each_and_before_they_are_asked_for(
    fs: Any, data: bytes, s3: simulator.Server
) -> None:
    fs.pipe_file("b/x", data)
    ranges = [(8 * MIB, 9 * MIB), (100, 200), (150, 300), (3 * MIB, 5 * MIB), (20 * MIB, 21 * MIB)]
    before = reads(s3)
    with fs.open("b/x", block_size=MIB, cache_options={"ranges": ranges}) as file:
        for begin, end in ranges:
            file.seek(begin)
            assert file.read(end - begin) == data[begin:end]
        assert file.cache.miss_count == 1  # [100, 150) belongs to two, and was dropped with the first
        file.seek(6 * MIB)
        assert file.read(10) == data[6 * MIB : 6 * MIB + 10]
    assert reads(s3) - before <= 7
    with pytest.raises(hr.InvalidArgumentError, match="no range"):
        fs.open("b/x", cache_options={"ranges": [(5, 4)]})


def test_files_share_the_room_for_reading_ahead() -> None:
    room = Room(3 * MIB)
    content = os.urandom(8 * MIB)

    def fetch(begin: int, end: int) -> bytes:
        return content[begin:end]

    first = ReadAhead(MIB, fetch, len(content), ranges=[(0, 8 * MIB)], room=room)
    assert not room.take(1)
    second = ReadAhead(MIB, fetch, len(content), room=room)
    assert b"".join(second._fetch(i, i + 1000) for i in range(0, 100_000, 1000)) == content[:100_000]
    assert b"".join(first._fetch(i, i + MIB // 2) for i in range(0, 8 * MIB, MIB // 2)) == content
    first.close()
    second.close()
    assert room.take(3 * MIB)


def test_a_block_that_failed_is_asked_for_again() -> None:
    calls: list[tuple[int, int]] = []

    def fetch(begin: int, end: int) -> bytes:
        calls.append((begin, end))
        if len(calls) == 1:
            raise hr.UnavailableError("once")
        return bytes(end - begin)

    ahead = ReadAhead(MIB, fetch, MIB, ranges=[(0, MIB)])
    with pytest.raises(hr.UnavailableError):
        ahead._fetch(0, MIB)
    assert ahead._fetch(0, MIB) == bytes(MIB)


def test_a_block_gives_its_room_back_once() -> None:
    room = Room(10)
    assert room.take(10)
    block = Block(0, 10, lambda begin, end: bytes(end - begin), room)
    assert block.data() == bytes(10)
    block.drop()
    block.drop()
    del block
    assert room.take(10)
    assert not room.take(1)


def test_more_calls_than_threads_wait_for_each_other_without_a_deadlock(fs: Any, data: bytes) -> None:
    fs.pipe_file("b/x", data)

    async def read_all() -> list[bytes]:
        async def one() -> bytes:
            async with await fs.open_async("b/x", block_size=MIB) as file:
                parts = []
                while part := await file.read(MIB // 2):
                    parts.append(part)
                return b"".join(parts)

        return await asyncio.gather(*[one() for _ in range(100)])

    assert set(asyncio.run(read_all())) == {data}


def test_what_was_read_comes_from_the_cache(s3: simulator.Server, tmp_path: Path, data: bytes) -> None:
    # Memory: what a slow disk has not taken when more comes is left out.
    fs = hr.fs("s3://b", memory="512MiB", endpoint=s3.endpoint, cache=tmp_path / "cache", cache_limit="1GB")
    fs.pipe_file("b/x", data)
    starts = [i * 100_000 for i in range(100)]
    ends = [start + 5_000 for start in starts]
    expected = [data[a:b] for a, b in zip(starts, ends, strict=True)]
    (store,) = fs.stores().values()

    def read() -> None:
        assert fs.cat_ranges(["b/x"] * 100, starts, ends) == expected
        with fs.open("b/x", block_size=MIB) as file:
            assert file.read(100) == data[:100]
            assert file.read() == data[100:]
        assert fs.cat_file("b/x", 1000, 2000) == data[1000:2000]

    read()
    hr.Cache(tmp_path / "cache")._native.flush()
    before = store.stats()
    assert {name: before[f"cache.{name}"] for name in ("skipped_bytes", "failures", "corrupt")} == {
        "skipped_bytes": 0,
        "failures": 0,
        "corrupt": 0,
    }
    read()
    # The version is asked for again where a second has passed.
    assert store.stats()["store.received_bytes"] - before["store.received_bytes"] < 2000
    assert store.stats()["cache.hits"] >= before["cache.hits"] + 102
    fs.close()


@pytest.mark.parametrize("how", ["mapping", "list", "limit"])
def test_the_cache_is_named_as_a_store_names_it(s3: simulator.Server, tmp_path: Path, how: str) -> None:
    disk = tmp_path / "cache"
    cache: Any = {"directory": disk, "limit": "1GB"}
    cache = {"mapping": cache, "list": [cache], "limit": f"{disk}:1GB"}[how]
    fs = hr.fs("s3://b", memory="64MiB", endpoint=s3.endpoint, cache=cache)
    assert hr.fs("s3://b", memory="64MiB", endpoint=s3.endpoint, cache=cache) is fs
    assert fsspec.AbstractFileSystem.from_json(fs.to_json()) is fs
    fs.pipe_file("b/x", b"0123456789")
    assert fs.cat_file("b/x", 2, 5) == b"234"
    hr.Cache(disk)._native.flush()
    assert fs.cat_file("b/x", 2, 5) == b"234"
    (store,) = fs.stores().values()
    assert store.stats()["cache.hits"] >= 1
    fs.close()
    with pytest.raises(hr.InvalidArgumentError, match="cache="):
        hr.fs("s3://b", memory="64MiB", endpoint=s3.endpoint, cache=7).exists("b/x")


def test_the_cache_does_not_hide_another_version(s3: simulator.Server, tmp_path: Path) -> None:
    fs = hr.fs("s3://b", memory="64MiB", endpoint=s3.endpoint, cache=tmp_path / "cache")
    fs.pipe_file("b/x", b"first")
    assert fs.cat_ranges(["b/x"], 0, 5) == [b"first"]
    fs.pipe_file("b/x", b"again and longer")
    assert fs.cat_ranges(["b/x"], 0, 5) == [b"again"]
    with hr.Store("s3://b") as other:  # behind its back: what it remembers of a second ago is wrong
        other.put("x", b"third")
    assert fs.cat_ranges(["b/x"], 0, 100) == [b"third"]
    assert fs.cat_file("b/x", 0, 3) == b"thi"
    fs.close()


def test_the_cache_does_not_hide_a_directory_that_took_the_place(tmp_path: Path) -> None:
    fs = hr.fs(tmp_path, memory="64MiB", cache=tmp_path / "cache")
    where = str(tmp_path / "d" / "x")

    def fill(name: str) -> None:
        fs.pipe_file(f"{tmp_path}/{name}/x", name.encode())
        os.utime(tmp_path / name / "x", (1, 1))

    def read() -> bytes:
        return bytes(fs.cat_ranges([where], 0, 9)[0])

    fill("d")
    assert read() == b"d"
    fs.mv(f"{tmp_path}/d", f"{tmp_path}/e", recursive=True)
    assert isinstance(fs.cat_ranges([where], 0, 9)[0], hr.NotFoundError)
    fill("new")
    assert fs.cat_file(f"{tmp_path}/new/x", 0, 9) == b"new"
    fs.mv(f"{tmp_path}/new", f"{tmp_path}/d", recursive=True)
    assert read() == b"new"
    fs.rm(f"{tmp_path}/d", recursive=True)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"third")
    assert read() == b"third"
    (tmp_path / "d" / "x").unlink()
    for path in (None, f"{tmp_path}/d"):
        (tmp_path / "d" / "x").write_bytes(b"again")
        fs.invalidate_cache()
        assert read() == b"again"
        (tmp_path / "d" / "x").unlink()
        fs.invalidate_cache(path)
        assert isinstance(fs.cat_ranges([where], 0, 9)[0], hr.NotFoundError)
    fs.close()


def test_versions_are_remembered_for_a_second() -> None:
    now, calls = [0.0], []

    def head(key: str) -> hr.ObjectInfo:
        calls.append(key)
        return hr.ObjectInfo(key=key, size=len(calls))

    versions = Versions(head, now=lambda: now[0])
    assert versions.get("k").size == versions.get("k").size == 1
    now[0] = 1.5
    assert versions.get("k").size == 2
    versions.forget("k")
    assert versions.get("k").size == 3
    for key in ("d/x", "d/e/y", "d", "dd"):
        versions.get(key)
    versions.forget_below("d")
    assert set(versions._known) == {"k", "dd"}
    versions.forget_below("")
    assert not versions._known
    for i in range(5000):
        versions.get(str(i))
    assert len(versions._known) == 4096


@pytest.mark.parametrize("forget", ["forget", "forget_below"])
def test_a_version_that_was_written_over_while_it_was_asked_for_is_not_remembered(forget: str) -> None:
    sizes = [1]

    def head(key: str) -> hr.ObjectInfo:
        info = hr.ObjectInfo(key=key, size=sizes[-1])
        if len(sizes) == 1:  # Another thread writes it meanwhile.
            sizes.append(2)
            getattr(versions, forget)("k")
        return info

    versions = Versions(head)
    versions.get("k")
    assert versions.get("k").size == 2


def test_small_files_are_one_request_and_large_ones_go_in_parts(fs: Any, s3: simulator.Server) -> None:
    data = os.urandom(MIB) * 40
    with fs.open("b/small", "wb") as file:
        file.write(b"1")
    assert uploads(s3)["put_object"] == 1
    with fs.open("b/large", "wb") as file:
        for at in range(0, len(data), 1_000_003):
            assert file.tell() == at
            file.write(memoryview(data)[at : at + 1_000_003])
        assert not fs.exists("b/large")
    assert fs.cat_file("b/large") == data
    seen = uploads(s3)
    assert (seen["create_upload"], seen["upload_part"], seen["put_object"]) == (1, 5, 1)
    with fs.open("b/at-once", "wb", block_size=16 * MIB) as file:
        file.write(data)
    assert fs.cat_file("b/at-once") == data
    assert uploads(s3)["upload_part"] == 5 + 3
    with fs.open("b/nothing", "wb"):
        pass
    assert fs.info("b/nothing")["size"] == 0


@pytest.mark.parametrize("size", [10, 20 * MIB])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"text": True}])
def test_an_exception_discards_what_was_written(
    fs: Any, s3: simulator.Server, size: int, options: Any
) -> None:
    options = dict(options)
    is_text = options.pop("text", False)

    def write() -> None:
        with fs.open("b/x", "w" if is_text else "wb", **options) as file:
            data = os.urandom(size)
            file.write(data.hex() if is_text else data)
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert not fs.exists("b/x")
    seen = uploads(s3)
    assert seen["put_object"] == 0
    assert seen["create_upload"] == seen["abort_upload"] == (1 if size > 10 else 0)


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"text": True}])
def test_a_file_that_nobody_closed_is_discarded_with_a_warning(fs: Any, options: Any) -> None:
    options = dict(options)
    is_text = options.pop("text", False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        file = fs.open("b/x", "w" if is_text else "wb", **options)
        file.write("x" if is_text else b"x")
        del file
        gc.collect()
    assert any(w.category is ResourceWarning and "never closed" in str(w.message) for w in seen)
    assert not fs.exists("b/x")


def test_a_part_that_fails_fails_the_file(fs: Any) -> None:
    file = fs.open("b/x", "wb")
    file.write(os.urandom(8 * MIB))
    fs.stores()["s3://b"].close()
    with pytest.raises(hr.HeadraceError):
        file.write(os.urandom(80 * MIB))
    with pytest.raises(ValueError, match="failed before"):
        file.close()
    assert file.closed


def test_exclusive_creation(fs: Any) -> None:
    fs.pipe_file("b/x", b"1", mode="create")
    for call in (
        lambda: fs.pipe_file("b/x", b"2", mode="create"),
        lambda: fs.open("b/x", "xb"),
        lambda: fs.put_file(__file__, "b/x", mode="create"),
    ):
        with pytest.raises(FileExistsError):
            call()
    late = fs.open("b/late", "xb")
    late.write(b"mine")
    fs.pipe_file("b/late", b"somebody else's")
    with pytest.raises(FileExistsError):
        late.close()
    assert fs.cat_file("b/late") == b"somebody else's"
    with fs.open("b/new", "xb") as file:
        file.write(bytes(9 * MIB))
    assert fs.size("b/new") == 9 * MIB
    with pytest.raises(hr.UnsupportedError, match="'ab'"):
        fs.open("b/x", "ab")


def test_transactions_show_all_or_nothing(fs: Any, s3: simulator.Server) -> None:
    large = os.urandom(9 * MIB)
    with fs.transaction:
        fs.pipe_file("b/t/1", b"one")
        with fs.open("b/t/2", "wb") as file:
            file.write(large)
        with fs.open("b/t/3", "w", compression="gzip") as file:
            file.write("three")
        assert fs.find("b/t") == []
    assert fs.find("b/t") == ["b/t/1", "b/t/2", "b/t/3"]
    assert fs.cat_file("b/t/2") == large

    def fail() -> None:
        with fs.transaction:
            fs.pipe_file("b/u/1", b"one")
            with fs.open("b/u/2", "wb") as file:
                file.write(large)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert fs.find("b/u") == []
    assert uploads(s3)["abort_upload"] == 1
    fs.pipe_file("b/after", b"not in a transaction")
    assert fs.exists("b/after")


def test_a_transaction_closes_what_is_open_at_its_end(fs: Any) -> None:
    text = "a line of text\n" * 1000
    with fs.transaction:
        files = [
            fs.open("b/t/text", "w"),
            fs.open("b/t/packed", "w", compression="gzip"),
            fs.open("b/t/binary", "wb", compression="gzip"),
            fs.open("b/t/plain", "wb"),
        ]
        for file, content in zip(files, (text, text, text.encode(), text.encode()), strict=True):
            file.write(content)
    assert all(file.closed for file in files)
    for name, options in (("text", {}), ("packed", {"compression": "gzip"}), ("plain", {})):
        with fs.open(f"b/t/{name}", "r", **options) as file:
            assert file.read() == text, name
    with fs.open("b/t/binary", "rb", compression="gzip") as file:
        assert file.read() == text.encode()


def test_a_transaction_in_a_transaction_is_refused(fs: Any) -> None:
    def nested(begin: Any) -> None:
        with fs.transaction:
            fs.pipe_file("b/t/1", b"one")
            begin()

    for begin in (fs.transaction.__enter__, fs.start_transaction):
        with pytest.raises(hr.InvalidArgumentError, match="a transaction of this file system is open"):
            nested(begin)
        assert fs.find("b/t") == []
    fs.start_transaction()
    fs.pipe_file("b/t/1", b"one")
    with pytest.raises(hr.InvalidArgumentError, match="is open"):
        fs.start_transaction()
    fs.end_transaction()
    with fs.transaction:
        fs.pipe_file("b/t/2", b"two")
    assert fs.find("b/t") == ["b/t/1", "b/t/2"]


def test_a_transaction_that_cannot_be_completed_leaves_nothing_open(fs: Any, s3: simulator.Server) -> None:

    def write() -> None:
        with fs.transaction:
            with fs.open("b/t/1", "xb") as file:
                file.write(b"one")
            with fs.open("b/t/2", "wb") as file:
                file.write(bytes(9 * MIB))
            with hr.Store("s3://b") as other:
                other.put("t/1", b"somebody else's")

    with pytest.raises(FileExistsError):
        write()
    assert fs.find("b/t") == ["b/t/1"]
    assert uploads(s3)["abort_upload"] == 1
    fs.pipe_file("b/after", b"not in a transaction")
    assert fs.exists("b/after")


def test_copy_move_and_delete(fs: Any, buckets: Path) -> None:
    (buckets / "other").mkdir()
    data = os.urandom(9 * MIB)
    fs.pipe({"b/d/x": data, "b/d/e/y": b"y"})
    fs.cp_file("b/d/x", "b/copy")
    fs.copy("b/d", "other/d", recursive=True)  # through here
    assert fs.cat("other/d", recursive=True) == {"other/d/x": data, "other/d/e/y": b"y"}
    fs.mv("b/copy", "b/moved")
    assert (fs.exists("b/copy"), fs.cat_file("b/moved")) == (False, data)
    with pytest.raises(FileNotFoundError):
        fs.cp_file("b/nothing", "b/copy")
    with pytest.raises(FileNotFoundError):
        fs.cp_file("b/nothing", "other/copy")
    fs.rm("b/d/x")
    fs.rm_file("b/nothing")
    with pytest.raises(FileNotFoundError):
        fs.rm("b/nothing", recursive=True)
    fs.rm(["b/d", "other"], recursive=True)
    assert fs.find("b") == ["b/moved"]
    fs.pipe({f"b/many/{i}": b"" for i in range(1100)})
    fs.rm("b/many/*[05]")
    assert len(fs.find("b/many")) == 880


def test_nothing_is_moved_or_copied_onto_itself(fs: Any) -> None:
    fs.pipe({"b/d/x": b"x", "b/d/e/y": b"y", "b/z": b"z"})
    for call in (fs.mv, fs.copy):
        for target in ("s3://b/d/x", "hr+s3://b/d/x", "b/d/", "s3://b/d/"):
            with pytest.raises(hr.InvalidArgumentError, match="are the same"):
                call("b/d/x", target)
    for target in ("b/d/", "b/d/new", "s3://b/d", "b"):  # "b": to b/d, where it is
        with pytest.raises(hr.InvalidArgumentError):
            fs.mv("b/d", target, recursive=True)
    with pytest.raises(hr.InvalidArgumentError):
        fs.mv(["b/z", "b/d"], "b/d/e/", recursive=True)
    assert fs.cat("b", recursive=True) == {"b/d/x": b"x", "b/d/e/y": b"y", "b/z": b"z"}


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("gs://b/d/x", "gcs://b/d/x"),
        ("az://account/c/x", "azure://account/c/x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfs://c@account.dfs.core.windows.net/x"),
    ],
)
def test_of_other_stores_as_well(path: str, other: str) -> None:
    opened = hr.fs(path, endpoint="http://127.0.0.1:1")  # nobody is asked
    for one in (other, f"hr+{path}", path):
        with pytest.raises(hr.InvalidArgumentError, match="are the same"):
            opened.cp_file(path, one)


def test_directories_move(fs: Any, s3: simulator.Server, buckets: Path) -> None:
    (buckets / "other").mkdir()
    fs.pipe({"b/d/x": b"x", "b/d/e/y": b"y", "b/d/e/z": b"z"})
    fs.mv("b/d", "b/new", recursive=True)
    assert fs.find("b") == ["b/new/e/y", "b/new/e/z", "b/new/x"]
    fs.mv("b/new", "other/n", recursive=True)  # through here
    assert (fs.find("b"), fs.cat_file("other/n/e/y")) == ([], b"y")
    fs.pipe_file("other/n/w", b"w")
    fs.mv("other/n", "b/n", recursive=True, maxdepth=1)  # what is deeper stays
    assert (fs.find("b"), fs.find("other")) == (["b/n/w", "b/n/x"], ["other/n/e/y", "other/n/e/z"])
    fs.pipe_file("b/p/1", b"1")
    fs.mv("b/p/**", "b/p/new/")  # matches what came as well
    assert fs.find("b/p") == ["b/p/new/1"]
    fs.rm("b/p", recursive=True)
    fs.mv("other", "b/all", recursive=True)
    assert fs.find("b") == ["b/all/n/e/y", "b/all/n/e/z", "b/n/w", "b/n/x"]
    pyarrow_fs = pytest.importorskip("pyarrow.fs")
    pyarrow_fs.PyFileSystem(pyarrow_fs.FSSpecHandler(fs)).move("b/all", "b/again")
    assert fs.find("b/again") == ["b/again/n/e/y", "b/again/n/e/z"]
    with pytest.raises(FileNotFoundError):
        fs.cp_file("b/nothing", "b/copy")
    before = sum(requests(s3).values())
    fs.cp_file("b/n/x", "b/copy")
    assert sum(requests(s3).values()) - before == 2  # those of Store.copy()


def test_touch_and_directories(fs: Any) -> None:
    fs.touch("b/t")
    assert fs.size("b/t") == 0
    with pytest.raises(hr.UnsupportedError, match="cannot be set"):
        fs.touch("b/t", truncate=False)
    fs.touch("b/new", truncate=False)
    fs.makedirs("b/made", exist_ok=True)
    fs.mkdir("b/made")
    assert not fs.exists("b/made")
    fs.pipe_file("b/full/x", b"")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("b/full")


def test_get_and_put_report_and_leave_no_halves(fs: Any, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "up").write_bytes(data)
    seen = fsspec.callbacks.Callback()
    fs.put_file(tmp_path / "up", "b/x", callback=seen)
    assert (seen.size, seen.value) == (len(data), len(data))
    seen = fsspec.callbacks.Callback()
    fs.get_file("b/x", tmp_path / "down", callback=seen)
    assert (seen.size, seen.value) == (len(data), len(data))
    assert (tmp_path / "down").read_bytes() == data
    with pytest.raises(FileNotFoundError):
        fs.get_file("b/missing", tmp_path / "missing")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(hr.UnsupportedError, match="fifo is no file"):
        fs.get_file("b/x", tmp_path / "fifo")
    assert (tmp_path / "fifo").is_fifo()
    assert {p.name for p in tmp_path.iterdir()} >= {"up", "down"}
    assert not [p for p in tmp_path.iterdir() if "part" in p.name or p.name == "missing"]


def test_signed_urls(fs: Any, tmp_path: Path) -> None:
    fs.pipe_file("b/x", b"signed")
    with urllib.request.urlopen(fs.sign("b/x", expiration=60)) as answer:
        assert answer.read() == b"signed"
    request = urllib.request.Request(fs.sign("b/y", 60, method="PUT"), data=b"put", method="PUT")
    urllib.request.urlopen(request).close()
    assert fs.cat_file("b/y") == b"put"
    with pytest.raises(hr.UnsupportedError, match="presigned"):
        hr.fs("/").sign(str(tmp_path / "x"))


def test_fetching_makes_the_directory(fs: Any, tmp_path: Path) -> None:
    fs.pipe_file("b/x", b"1")
    fs.get_file("b/x", tmp_path / "new" / "deep" / "x")
    assert (tmp_path / "new" / "deep" / "x").read_bytes() == b"1"
    with pytest.raises(FileNotFoundError):
        fs.get_file("b/none", tmp_path / "other" / "x")
    assert not (tmp_path / "other").exists()


def test_modes_that_do_not_exist_are_refused(fs: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    for call in (
        lambda mode: fs.pipe_file("b/x", b"1", mode=mode),
        lambda mode: fs.put_file(tmp_path / "x", "b/x", mode=mode),
    ):
        with pytest.raises(hr.InvalidArgumentError, match="expected"):
            call("creat")
    assert not fs.exists("b/x")
    for mode in ("wbt", "rtb"):
        with pytest.raises(hr.InvalidArgumentError, match="bytes and of text"):
            fs.open("b/x", mode)
    for mode in ("r+b", "ba", "w+"):
        with pytest.raises(hr.UnsupportedError, match="mode"):
            fs.open("b/x", mode)


def test_the_letters_of_a_mode_come_in_any_order(fs: Any) -> None:
    for write, read in (("bw", "br"), ("tw", "tr"), ("w", "r")):
        content: Any = b"1\n" if "b" in write else "1\n"
        with fs.open("b/x", write) as file:
            file.write(content)
        with fs.open("b/x", read) as file:
            assert file.read() == content
