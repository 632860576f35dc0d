"""hr.Store over files, and over S3 by the simulator."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from conftest import where

import headrace as hr
from headrace import sim as simulator
from headrace.store import putting
from headrace.store.store import list_pages


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[hr.Store]:
    if request.param == "s3":
        request.getfixturevalue("s3")
    url = "s3://b" if request.param == "s3" else str(tmp_path / "buckets" / "b")
    (tmp_path / "buckets" / "b").mkdir(parents=True, exist_ok=True)
    with hr.Store(url, memory="16MiB") as opened:
        yield opened


def test_what_is_put_is_got(store: hr.Store) -> None:
    info = store.put("a/b c+d.bin", b"hello")
    assert (info.key, info.size) == ("a/b c+d.bin", 5)
    assert store.get("a/b c+d.bin") == b"hello"
    assert store.head("a/b c+d.bin").size == 5
    assert store.head("a/b c+d.bin").etag == info.etag
    assert store.get_range("a/b c+d.bin", 1, 3) == b"ell"


def test_more_bytes_than_there_can_be_are_an_error(store: hr.Store) -> None:
    store.put("x", b"1")
    for length in (1 << 62, (1 << 64) - 1):
        with pytest.raises(MemoryError):
            store.get_range("x", 0, length)


def test_empty_objects_work(store: hr.Store) -> None:
    store.put("empty", b"")
    assert store.get("empty") == b""
    assert store.head("empty").size == 0


def test_large_objects_travel_in_parts_within_the_memory_limit(store: hr.Store) -> None:
    data = os.urandom(1 << 20) * 40  # larger than the limit of 16 MiB
    store.put("large", data)
    assert store.get("large") == data
    assert store.get_range("large", 12345, 30 << 20) == data[12345 : 12345 + (30 << 20)]
    out = bytearray(30 << 20)
    store.get_range_into("large", 12345, out)
    assert out == data[12345 : 12345 + (30 << 20)]
    assert store.stats()["pool.peak_bytes"] <= 16 << 20


def test_a_range_goes_into_any_buffer_that_can_be_written(store: hr.Store) -> None:
    etag = store.put("k", b"0123456789").etag
    out = np.zeros(4, np.uint16)
    store.get_range_into("k", 1, out[1:3], etag=etag)
    assert out.tobytes() == b"\0\0" + b"1234" + b"\0\0"
    store.get_range_into("k", 5, bytearray())
    with pytest.raises(BufferError):
        store.get_range_into("k", 0, b"abc")
    with pytest.raises(ValueError, match="contiguous"):
        store.get_range_into("k", 0, out[::2])
    with pytest.raises(hr.InvalidArgumentError, match="negative"):
        store.get_range_into("k", -1, out)
    with pytest.raises(hr.HeadraceError, match="k"):
        store.get_range_into("k", 5, out)
    store.put("k", b"987654321")
    with pytest.raises(hr.ChangedError):
        store.get_range_into("k", 0, out, etag=etag)


def test_put_takes_files_and_buffers(store: hr.Store, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"from a file")
    (tmp_path / "nothing").write_bytes(b"")
    store.put("file", path)
    store.put("nothing", tmp_path / "nothing")
    store.put("view", memoryview(bytearray(b"0123456789"))[2:5])
    assert (store.get("file"), store.get("nothing"), store.get("view")) == (b"from a file", b"", b"234")


def test_put_reads_files_that_do_not_say_how_much_they_have(store: hr.Store, tmp_path: Path) -> None:
    assert os.path.getsize("/proc/self/status") == 0
    store.put("status", Path("/proc/self/status"))
    assert store.get("status").startswith(b"Name:")
    store.put("new status", Path("/proc/self/status"), if_absent=True)
    assert store.get("new status").startswith(b"Name:")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for size in (0, 5, 8 << 20, (20 << 20) + 3):
        data = os.urandom(size)
        writer = threading.Thread(target=fifo.write_bytes, args=(data,))
        writer.start()
        assert store.put("piped", fifo).size == size
        writer.join()
        assert store.get("piped") == data


def test_put_of_files_needs_little_memory(store: hr.Store, tmp_path: Path) -> None:
    path = tmp_path / "large"
    data = os.urandom(1 << 20) * 50
    path.write_bytes(data)
    settings: Any = {"metadata": {"run": "17"}} if store.url.startswith("s3") else {}
    tracemalloc.start()
    info = store.put("large", path, **settings)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (info.size, store.get("large") == data) == (50 << 20, True)
    assert settings.items() <= (store.head("large").settings or {}).items()
    assert peak < 9 << 20
    with pytest.raises(hr.InvalidArgumentError, match="one request"):
        store.put("new", path, if_absent=True)
    os.truncate(path, 9 << 20)
    assert store.put("new", path, if_absent=True).size == 9 << 20


@pytest.mark.parametrize("size", [10 << 20, 30 << 20])
@pytest.mark.parametrize("how", ["shortened", "grown", "written"])
def test_put_of_a_file_that_changes_stores_nothing(
    store: hr.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, how: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(size))
    os.utime(path, (1, 1))
    read = putting._Source.read

    def change_and_read(source: Any, most: int) -> memoryview:
        if how == "written":
            with open(path, "r+b") as file:
                file.write(b"1")
        else:
            os.truncate(path, 9 << 20 if how == "shortened" else size + 1)
        return read(source, most)

    monkeypatch.setattr(putting._Source, "read", change_and_read)
    with pytest.raises(hr.ChangedError, match="file: was written while it was read"):
        store.put("x", path)
    assert list(store.list()) == []


def test_put_if_absent_refuses_what_exists(store: hr.Store) -> None:
    store.put("once", b"1", if_absent=True)
    with pytest.raises(hr.ChangedError):
        store.put("once", b"2", if_absent=True)
    assert store.get("once") == b"1"


def test_list_is_in_byte_order_and_rolls_up(store: hr.Store) -> None:
    for key in ("a", "d/x", "d/y/z", "B", "e-1"):
        store.put(key, key.encode())
    assert [(o.key, o.size) for o in store.list()] == [
        ("B", 1),
        ("a", 1),
        ("d/x", 3),
        ("d/y/z", 5),
        ("e-1", 3),
    ]
    assert [o.key for o in store.list(recursive=False)] == ["B", "a", "d/", "e-1"]
    assert [o.key for o in store.list("d/", recursive=False)] == ["d/x", "d/y/"]
    assert list(store.list("nothing")) == []


def test_list_goes_through_all_pages(store: hr.Store) -> None:
    keys = [f"k{i:05d}" for i in range(2100)]
    for key in keys:
        store.put(key, b"")
    assert [o.key for o in store.list()] == keys


def test_delete_and_copy(store: hr.Store) -> None:
    store.put("from", b"x")
    assert store.copy("from", "to/here").size == 1
    assert store.get("to/here") == b"x"
    store.delete("from")
    store.delete("from")
    assert not store.exists("from")
    assert store.exists("to/here")


def test_missing_objects_raise_not_found_with_the_key(store: hr.Store) -> None:
    for call in (store.get, store.head, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(hr.NotFoundError, match="no/such") as caught:
            call("no/such")
        assert isinstance(caught.value, FileNotFoundError)
        assert (caught.value.code, caught.value.key, caught.value.retryable) == (
            "not_found",
            "no/such",
            False,
        )


def test_a_range_past_the_end_is_an_error(store: hr.Store) -> None:
    store.put("short", b"12345")
    with pytest.raises(hr.HeadraceError, match="short"):
        store.get_range("short", 3, 10)
    with pytest.raises(hr.InvalidArgumentError):
        store.get_range("short", -1, 1)


def test_get_ranges_yields_every_range_once(store: hr.Store) -> None:
    data = os.urandom(1 << 20)
    store.put("data", data)
    wanted = [("data", (i * 997) % (1 << 19), 1 + i % 5000) for i in range(500)]
    seen = []
    for result in store.get_ranges(iter(wanted)):
        assert bytes(result.data) == data[result.offset : result.offset + len(result.data)]
        seen.append((result.key, result.offset, len(result.data)))
    assert sorted(seen) == sorted(wanted)


def test_get_ranges_pulls_an_endless_iterable_as_it_goes(store: hr.Store) -> None:
    store.put("data", bytes(1000))
    pulled = 0

    def endless() -> Iterator[tuple[str, int, int]]:
        nonlocal pulled
        while True:
            pulled += 1
            yield "data", 0, 1000

    results = store.get_ranges(endless(), in_flight=4)
    for _ in range(20):
        next(results)
    assert pulled <= 20 + 4 + 16


def test_get_ranges_goes_on_after_a_range_that_failed(store: hr.Store) -> None:
    store.put("good", b"yes")
    results = store.get_ranges([("bad", 0, 3), ("good", 0, 3)], in_flight=1)
    with pytest.raises(hr.NotFoundError, match="bad"):
        next(results)
    assert bytes(next(results).data) == b"yes"
    with pytest.raises(StopIteration):
        next(results)


def test_many_threads_get_within_little_memory(store: hr.Store) -> None:
    data = os.urandom(3 << 20)
    for i in range(8):
        store.put(str(i), data)
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for i in range(8):
                assert store.get(str(i)) == data
        except BaseException as error:
            failures.append(error)

    # More of them than the limit has parts: they wait for each other.
    threads = [threading.Thread(target=read) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_ranges_may_name_the_version_that_they_read(store: hr.Store) -> None:
    etag = store.put("data", b"0123456789").etag
    assert store.get_range("data", 2, 3, etag=etag) == b"234"
    assert [bytes(r.data) for r in store.get_ranges([("data", 2, 3, etag)])] == [b"234"]
    store.put("data", b"another one")
    with pytest.raises(hr.ChangedError, match="data"):
        store.get_range("data", 2, 3, etag=etag)
    with pytest.raises(hr.ChangedError, match="data"):
        next(store.get_ranges([("data", 2, 3, etag)]))
    assert store.get_range("data", 2, 3) == b"oth"


def test_results_and_errors_of_ranges_have_the_key_object_that_was_given(store: hr.Store) -> None:
    class Key(str):
        __slots__ = ()

    store.put("data", b"0123456789")
    good, bad = Key("data"), Key("missing")
    results = store.get_ranges([(bad, 0, 1), (good, 0, 1)], in_flight=1)
    with pytest.raises(hr.NotFoundError) as caught:
        next(results)
    assert caught.value.key is bad
    assert next(results).key is good


def test_get_ranges_passes_on_errors_of_the_iterable(store: hr.Store) -> None:
    def broken() -> Iterator[tuple[str, int, int]]:
        raise KeyError("mine")
        yield

    with pytest.raises(KeyError, match="mine"):
        next(store.get_ranges(broken()))
    with pytest.raises(hr.InvalidArgumentError, match=r"\(key, offset, length\)"):
        next(store.get_ranges([("a", 0)]))  # type: ignore[list-item]
    with pytest.raises(TypeError):
        store.get_ranges(3)  # type: ignore[arg-type]


def test_holding_all_results_raises_instead_of_hanging(store: hr.Store) -> None:
    store.put("data", bytes(4 << 20))
    held = []
    with pytest.raises(hr.ExhaustedError, match="memory="):
        held.extend(store.get_ranges([("data", 0, 4 << 20)] * 10))
    held.clear()
    gc.collect()
    assert sum(1 for _ in store.get_ranges([("data", 0, 4 << 20)] * 10)) == 10


def test_a_range_larger_than_the_memory_limit_is_refused(store: hr.Store) -> None:
    with pytest.raises(hr.InvalidArgumentError):
        next(store.get_ranges([("data", 0, 1 << 30)]))


def test_memory_returns_when_views_are_dropped(store: hr.Store) -> None:
    store.put("data", bytes(1 << 20))
    result = next(store.get_ranges([("data", 0, 1 << 20)]))
    view = result.data[10:20]
    del result
    gc.collect()
    assert store.stats()["pool.used_bytes"] >= 1 << 20
    view.release()
    del view
    gc.collect()
    assert store.stats()["pool.used_bytes"] == 0


def test_views_outlive_the_store(store: hr.Store) -> None:
    store.put("data", b"still here")
    result = next(store.get_ranges([("data", 0, 10)]))
    store.close()
    assert bytes(result.data) == b"still here"


def test_a_closed_store_says_so(store: hr.Store) -> None:
    store.close()
    store.close()
    assert store.closed
    for call in (
        lambda: store.get("a"),
        lambda: list(store.list()),
        lambda: store.put("a", b""),
        store.stats,
        lambda: store.url,
    ):
        with pytest.raises(hr.InvalidArgumentError, match="closed"):
            call()
    assert repr(store) == "Store(closed)"


def test_threads_share_a_store(store: hr.Store) -> None:
    data = {f"k{i}": os.urandom(100_000 + i) for i in range(16)}
    failures: list[object] = []

    def work(key: str, value: bytes) -> None:
        try:
            for _ in range(5):
                store.put(key, value)
                assert store.get(key) == value
                assert [bytes(r.data) for r in store.get_ranges([(key, 7, 50)])] == [value[7:57]]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=item) for item in data.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_closing_ends_a_read_under_way(buckets: Path) -> None:
    (buckets / "b" / "x").write_bytes(bytes(100))
    slow = {"first_byte_p50_ms": 60_000.0, "first_byte_p99_ms": 60_000.0}
    with simulator.Server(buckets, behaviour=slow) as server:
        store = hr.Store("s3://b", first_byte_timeout=120, timeout=120, **where(server))
        started, outcome = threading.Event(), []

        def read() -> None:
            started.set()
            try:
                store.get("x")
            except hr.HeadraceError as error:
                outcome.append(error.code)

        thread = threading.Thread(target=read)
        thread.start()
        started.wait()
        store.close()
        thread.join(20)
        assert not thread.is_alive()
        assert outcome in (
            ["cancelled"],
            ["invalid_argument"],
        )  # the latter when close() came before the read began


def test_store_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="memory="):
        hr.Store(tmp_path, memory="lots")
    with pytest.raises(hr.InvalidArgumentError, match="secret_key"):
        hr.Store("s3://b", access_key="only")
    with pytest.raises(hr.InvalidArgumentError, match="poller"):
        hr.Store(tmp_path, poller="select")
    with pytest.raises(hr.HeadraceError, match="ftp"):
        hr.Store("ftp://host/x")
    with pytest.raises(hr.InvalidArgumentError):
        hr.Store("s3://")


@pytest.mark.parametrize("poller", ["auto", "epoll", "uring"])
def test_pollers_are_equals(s3: simulator.Server, poller: str) -> None:
    try:
        store = hr.Store("s3://b", poller=poller)
    except hr.UnsupportedError:
        pytest.skip(f"{poller} is not allowed here")
    with store:
        store.put("k", b"v" * 100_000)
        assert store.get("k") == b"v" * 100_000


def test_a_list_that_comes_back_ends_in_an_error() -> None:
    """A token that comes back at once is found by the driver; longer circles are found from page to page."""

    class Circling:
        url = "s3://b"
        pages = 0

        def list_page(
            self, prefix: str, delimiter: str, continuation: str
        ) -> tuple[list[Any], list[str], str]:
            self.pages += 1
            return [], [], f"t{self.pages % 3}"

    store = Circling()
    with pytest.raises(hr.CorruptError, match="twice at the same place"):
        list(list_pages(cast(Any, store), "", ""))
    assert store.pages == 4


def test_redirects_take_credentials_to_trusted_hosts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"hello")
    with simulator.Server(tmp_path, addresses=2, redirect_reads=True) as server:
        options = {
            "endpoint": server.endpoint,
            "access_key": "headrace",
            "secret_key": "headrace-secret",
            "region": "us-east-1",
        }
        with hr.Store("s3://b", **options) as store, pytest.raises(hr.DeniedError, match="trusted_hosts"):
            store.get("x")
        with hr.Store("s3://b", trusted_hosts="127.0.0.0/8", **options) as store:
            assert store.get("x") == b"hello"
        monkeypatch.setenv("HEADRACE_TRUSTED_HOSTS", "127.0.0.2")
        with hr.Store("s3://b", **options) as store:
            assert store.get("x") == b"hello"


def test_a_relative_path_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        hr.Store(tmp_path / name / "d").put("name.txt", name.encode())
    monkeypatch.chdir(tmp_path / "here")
    with hr.Store("d") as store, hr.Dataset("d") as dataset, hr.Loader("d", batch_size=1) as loader:
        monkeypatch.chdir(tmp_path / "there")
        assert bytes(store.get("name.txt")) == b"here"
        assert [sample["data"] for sample in dataset.read([0])] == [b"here"]
        assert [list(batch["data"]) for batch in loader] == [[b"here"]]


def test_text_is_no_data(store: hr.Store) -> None:
    with pytest.raises(TypeError, match=r"x: data is a str; a file is named by a pathlib\.Path"):
        store.put("x", "/tmp/x")  # type: ignore[arg-type]
    assert not store.exists("x")
