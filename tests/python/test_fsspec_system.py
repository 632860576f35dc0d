"""The fsspec file system as a whole: names, options, listings, threads, processes, event loops, other
stores."""

from __future__ import annotations

import asyncio
import http.server
import inspect
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec_world import MIB, data, fs, requests

import headrace as hr
import headrace.fsspec
from headrace import sim as simulator

__all__ = ["data", "fs"]


def test_paths_may_be_urls_of_any_of_its_protocols(fs: Any) -> None:
    fs.pipe_file("s3://b/d/x", b"1")
    for name in ("b/d/x", "s3://b/d/x", "s3a://b/d/x", "hr+s3://b/d/x"):
        assert fs.cat_file(name) == b"1"
    assert fs.ls("s3://b/d", detail=False) == ["b/d/x"]
    assert fs.unstrip_protocol("b/d/x") == "hr+s3://b/d/x"


def test_a_path_without_a_bucket_is_an_error(fs: Any) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="names no bucket"):
        fs.ls("")
    with pytest.raises(hr.InvalidArgumentError, match="names no object"):
        fs.cat_file("b")
    with pytest.raises(hr.InvalidArgumentError, match="names no container"):
        hr.fs("az://account", endpoint="http://127.0.0.1:1").info("account")
    with pytest.raises(hr.InvalidArgumentError, match="no file system for ftp"):
        hr.fs("ftp://host/path")


def test_wrong_options_are_said_at_once() -> None:
    with pytest.raises(hr.InvalidArgumentError, match="endpiont"):
        hr.fs("s3://b", endpiont="http://127.0.0.1:1")
    with pytest.raises(hr.InvalidArgumentError, match="say the same"):
        hr.fs("s3://b", endpoint="http://127.0.0.1:1", endpoint_url="http://127.0.0.1:1")
    with pytest.raises(hr.InvalidArgumentError, match="use_ssl"):
        hr.fs("s3://b", client_kwargs={"use_ssl": False})


def test_options_of_s3fs_are_understood(sim: simulator.Server) -> None:
    fs = hr.fs(
        "s3://b",
        key=sim.access_key,
        secret=sim.secret_key,
        client_kwargs={"endpoint_url": sim.endpoint, "region_name": "us-east-1"},
        use_listings_cache=False,
    )
    fs.pipe_file("b/x", b"1")
    assert fs.exists("b/x")
    fs.close()


def test_the_same_options_give_the_same_file_system(s3: simulator.Server, tmp_path: Path) -> None:
    assert hr.fs("s3://b", memory="32MiB") is hr.fs("s3://other/key", memory="32MiB")
    assert hr.fs("s3://b", memory="32MiB") is not hr.fs("s3://b", memory="33MiB")
    assert hr.fs("s3://b", cache=tmp_path) is hr.fs("s3://b", cache=str(tmp_path))


def test_importing_takes_nothing_over_and_register_does() -> None:
    code = """
import fsspec, headrace as hr, headrace.fsspec
from fsspec.registry import known_implementations, registry
hr.fs("s3://b", endpoint="http://127.0.0.1:1")
assert "s3" not in registry and known_implementations["s3"]["class"].startswith("s3fs")
try:
    headrace.fsspec.register("nonsense")
    raise SystemExit("registered nonsense")
except hr.InvalidArgumentError:
    pass
headrace.fsspec.register("s3")
fs = fsspec.filesystem("s3", endpoint_url="http://127.0.0.1:1")
assert isinstance(fs, headrace.fsspec.S3FileSystem)
assert fs.unstrip_protocol("b/k") == "s3://b/k"
assert "gs" not in registry
class Other(fsspec.AbstractFileSystem):
    protocol = "gs"
fsspec.register_implementation("gs", Other)
try:
    headrace.fsspec.register("gs", clobber=False)
    raise SystemExit("clobbered")
except ValueError:
    pass
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_entry_points_are_there() -> None:
    from importlib.metadata import entry_points

    found = {e.name: e for e in entry_points(group="fsspec.specs") if e.name.startswith("hr+")}
    if not found:
        pytest.skip("the package is not installed")
    for name, point in found.items():
        assert name in point.load().protocol
    assert {"hr+s3", "hr+gs", "hr+az", "hr+https"} <= set(found)


def test_info_says_what_the_store_says(fs: Any) -> None:
    before = datetime.now(timezone.utc).replace(microsecond=0)
    fs.pipe_file("b/d/x", b"12345")
    found = fs.info("b/d/x")
    with hr.Store("s3://b") as store:
        assert found["ETag"] == store.head("d/x").etag
    assert (found["name"], found["size"], found["type"]) == ("b/d/x", 5, "file")
    assert found == fs.ls("b/d")[0] == fs.ls("b/d/x")[0] == fs.find("b", detail=True)["b/d/x"]
    assert fs.modified("b/d/x") == fs.created("b/d/x") == found["LastModified"] >= before
    assert fs.info("b/d") == {"name": "b/d", "size": 0, "type": "directory"}
    assert fs.info("b")["type"] == "directory"
    assert (fs.isdir("b/d"), fs.isfile("b/d"), fs.isfile("b/d/x"), fs.isdir("b/d/x")) == (
        True,
        False,
        True,
        False,
    )
    assert (fs.exists("b/d"), fs.exists("b/d/y"), fs.exists("b/dd")) == (True, False, False)
    assert fs.size("b/d/x") == fs.du("b/d") == 5
    for call in (fs.info, fs.ls, fs.cat_file, fs.open, fs.modified):
        with pytest.raises(FileNotFoundError):
            call("b/nothing")


def test_checksum_and_ukey_follow_the_version(fs: Any) -> None:
    fs.pipe_file("b/x", b"1")
    first = fs.checksum("b/x"), fs.ukey("b/x")
    assert first == (fs.checksum("b/x"), fs.ukey("b/x"))
    fs.pipe_file("b/x", b"2")
    assert fs.checksum("b/x") != first[0]
    assert fs.ukey("b/x") != first[1]


def test_a_store_that_does_not_answer_is_no_empty_directory(s3: simulator.Server) -> None:
    fs = hr.fs("s3://b", endpoint="http://127.0.0.1:1", max_attempts=1, timeout=5, control_directory="")
    for call in (fs.exists, fs.isdir, fs.isfile, fs.find, fs.ls, fs.glob, lambda p: list(fs.walk(p))):
        with pytest.raises(ConnectionError):
            call("b/*" if call == fs.glob else "b/d")
    wrong = hr.fs("s3://b", endpoint=s3.endpoint, access_key="nobody", secret_key="nothing")
    for call in (wrong.exists, wrong.isdir, wrong.find):
        with pytest.raises(PermissionError):
            call("b/d")
    with pytest.raises(FileNotFoundError):
        hr.fs("s3://b", endpoint=s3.endpoint).find("no-such-bucket")


TREE = ["a", "d/x", "d/y.txt", "d/e/x.txt", "d/e/f/z", "dd/x", "e-1/x", "d0"]


def test_listing_is_as_in_fsspecs_own_memory(fs: Any) -> None:
    other = fsspec.filesystem("memory", skip_instance_cache=True)
    other.store, other.pseudo_dirs = {}, [""]
    for key in TREE:
        fs.pipe_file(f"b/{key}", key.encode())
        other.pipe_file(f"/b/{key}", key.encode())

    def of_other(found: Any) -> Any:
        return sorted(name.lstrip("/") for name in found)

    for path in ("b", "b/d", "b/d/", "b/d/e", "b/d/x", "b/nothing"):
        for depth in (None, 1, 2, 3):
            for withdirs in (False, True):
                mine = fs.find(path, maxdepth=depth, withdirs=withdirs)
                assert mine == of_other(other.find("/" + path, maxdepth=depth, withdirs=withdirs)), (
                    path,
                    depth,
                )
    for pattern in (
        "b/*",
        "b/d*",
        "b/**",
        "b/*/x",
        "b/d/**",
        "b/**/x*",
        "b/d/?",
        "b/[de]*/x",
        "b/d/e/",
        "b/*/*/*",
    ):
        assert fs.glob(pattern) == of_other(other.glob("/" + pattern)), pattern
    mine = {(top, *sorted(folders), "|", *sorted(files)) for top, folders, files in fs.walk("b")}
    theirs = {(t.lstrip("/"), *sorted(d), "|", *sorted(f)) for t, d, f in other.walk("/b")}
    assert mine == theirs
    assert fs.ls("b/d", detail=False) == of_other(other.ls("/b/d", detail=False))
    assert fs.cat("b/d/*.txt") == {"b/d/y.txt": b"d/y.txt"}
    assert fs.find("b", prefix="d0") == ["b/d0"]


def test_objects_that_stand_for_directories_are_directories(fs: Any) -> None:
    with hr.Store("s3://b") as store:
        store.put("made/", b"")
        store.put("made/inner/", b"")
        store.put("made/x", b"1")
        store.put("both", b"file")
        store.put("both/x", b"2")
    assert [(e["name"], e["type"]) for e in fs.ls("b/made")] == [
        ("b/made/inner", "directory"),
        ("b/made/x", "file"),
    ]
    assert fs.find("b/made") == ["b/made/x"]
    assert fs.find("b/made", withdirs=True) == ["b/made", "b/made/inner", "b/made/x"]
    assert fs.info("b/both")["type"] == "file"
    assert [e["type"] for e in fs.ls("b") if e["name"] == "b/both"] == ["file"]
    fs.rmdir("b/made/inner")
    fs.rm("b/made", recursive=True)
    with hr.Store("s3://b") as store:
        assert [o.key for o in store.list()] == ["both", "both/x"]


def test_a_tree_is_listed_in_one_request(fs: Any, s3: simulator.Server) -> None:
    for key in TREE:
        fs.pipe_file(f"b/{key}", b"")
    before = requests(s3)
    assert len(fs.find("b")) == len(TREE)
    assert requests(s3) == before | {"list_objects": 1}


def test_coroutines_and_calls_within_a_running_loop(fs: Any, s3: simulator.Server) -> None:
    awaited = hr.fs("s3://b", asynchronous=True, memory="32MiB", endpoint=s3.endpoint)

    async def both() -> None:
        await asyncio.gather(*[awaited._pipe_file(f"b/a/{i}", str(i).encode()) for i in range(200)])
        found = await asyncio.gather(*[awaited._cat_file(f"b/a/{i}") for i in range(200)])
        assert found == [str(i).encode() for i in range(200)]
        assert len(await awaited._find("b/a")) == 200
        assert await awaited._cat_ranges(["b/a/7", "b/a/42"], 0, None) == [b"7", b"42"]
        assert [top async for top, _, _ in awaited._walk("b")] == ["b", "b/a"]
        with pytest.raises(FileNotFoundError):
            await awaited._info("b/missing")
        # What blocks does not need the loop that it is called on.
        assert fs.cat_file("b/a/7") == b"7"
        assert len(fs.glob("b/a/*9")) == 20
        assert fs.cat("b/a/4?") == {f"b/a/4{i}": f"4{i}".encode() for i in range(10)}
        async with await awaited.open_async("b/w", "wb") as file:
            await file.write(b"written")
        async with await awaited.open_async("b/w") as file:
            file.seek(2)
            assert await file.read(3) == b"itt"
            assert file.tell() == 5

    asyncio.run(both())
    awaited.close()


def test_coroutines_take_what_those_of_fsspec_take() -> None:
    def parameters(call: Any) -> tuple[list[str], list[str], bool]:
        """(those that may be given by position, those that must be, whether any may be given by name)."""
        found = list(inspect.signature(call).parameters.values())
        named = [one for one in found if one.kind == one.POSITIONAL_OR_KEYWORD]
        needed = [one.name for one in named if one.default is one.empty]
        return [one.name for one in named], needed, any(one.kind == one.VAR_KEYWORD for one in found)

    base = fsspec.asyn.AsyncFileSystem
    for cls in headrace.fsspec.vendors.CLASSES:
        for name, theirs in inspect.getmembers(base):
            is_stream = inspect.isasyncgenfunction(theirs)
            if not (is_stream or inspect.iscoroutinefunction(theirs)):
                continue
            ours: Any = getattr(cls, name)
            kind = inspect.isasyncgenfunction if is_stream else inspect.iscoroutinefunction
            assert kind(ours), (cls, name)
            is_of_blocking = "arguments" in inspect.signature(ours).parameters
            mine, needed, takes_more = parameters(getattr(cls, name[1:]) if is_of_blocking else ours)
            expected, needed_of_theirs, _ = parameters(theirs)
            assert needed == needed_of_theirs, (cls, name)
            if is_of_blocking:  # as the blocking ones have them
                assert takes_more or set(mine) >= set(expected), (cls, name)
            else:
                assert mine[: len(expected)] == expected, (cls, name)


def test_directories_go_up_as_coroutines(fs: Any, s3: simulator.Server, tmp_path: Path) -> None:
    for name in ("x", "e/y"):
        (tmp_path / "up" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / name).write_text(name)
    awaited = hr.fs("s3://b", asynchronous=True, memory="32MiB", endpoint=s3.endpoint)
    asyncio.run(awaited._put(f"{tmp_path}/up", "b/1", recursive=True))
    fs.put(f"{tmp_path}/up", "b/2", recursive=True)
    assert fs.cat("b", recursive=True) == {
        "b/1/x": b"x",
        "b/1/e/y": b"e/y",
        "b/2/x": b"x",
        "b/2/e/y": b"e/y",
    }
    # On the threads of coroutines, and so beside each other.
    assert fs.put.__wrapped__.__func__ is fsspec.asyn.AsyncFileSystem._put
    awaited.close()


def test_many_threads(fs: Any, data: bytes) -> None:
    fs.pipe_file("b/x", data)
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            with fs.open("b/x", block_size=MIB) as file:
                for i in range(20):
                    at = (seed * 7919 + i * 104729) % len(data)
                    file.seek(at)
                    assert file.read(10_000) == data[at : at + 10_000]
            assert fs.cat_file("b/x") == data
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_pickle_and_json(fs: Any, s3: simulator.Server) -> None:
    fs.pipe_file("b/x", b"0123456789")
    assert pickle.loads(pickle.dumps(fs)) is fs
    assert fsspec.AbstractFileSystem.from_json(fs.to_json()) is fs
    with fs.open("b/x") as file:
        file.seek(4)
        again = pickle.loads(pickle.dumps(file))
        assert (again.tell(), again.read()) == (4, b"456789")
        again.close()
    with fs.open("b/y", "wb") as file, pytest.raises(hr.UnsupportedError, match="pickled"):
        pickle.dumps(file)
    secret = hr.fs("s3://b", access_key="a", secret_key="not to be seen", endpoint=s3.endpoint)
    assert "not to be seen" in secret.to_json()
    assert "not to be seen" not in secret.to_json(include_password=False)
    hot = {"url": "s3://hot/cache", "access_key": "a", "secret_key": "unseen"}
    more = {"proxy": "http://user:unseen@proxy:3128", "cache": [hot]}
    secret = hr.fs("s3://b", **more, client_kwargs={"endpoint_url": "http://u:unseen@host:1"})
    assert secret.to_json().count("unseen") == 3
    found = secret.to_json(include_password=False)
    assert "unseen" not in found
    assert "http://***@proxy:3128" in found
    assert "s3://hot/cache" in found


@pytest.mark.parametrize("kind", ["s3", "file"])
def test_a_pickled_file_is_the_version_that_was_open(fs: Any, tmp_path: Path, kind: str) -> None:
    opened, path = (fs, "b/x") if kind == "s3" else (hr.fs(tmp_path, memory="32MiB"), str(tmp_path / "x"))
    opened.pipe_file(path, b"0123456789")
    with opened.open(path, block_size=MIB, cache_type="readahead") as file:
        file.seek(4)
        pickled = pickle.dumps(file)
    with pickle.loads(pickled) as again:
        assert (again.read(3), again.blocksize, again.cache.name) == (b"456", MIB, "readahead")
    opened.pipe_file(path, b"9876543210")
    with pytest.raises(hr.ChangedError, match="x: was written again"):
        pickle.loads(pickled)
    opened.rm_file(path)
    with pytest.raises(hr.NotFoundError):
        pickle.loads(pickled)


def _in_child(fs: Any, file: Any, queue: Any) -> None:
    queue.put((fs.cat_file("b/x"), fs.glob("b/*"), file.read(5), fs.cat_ranges(["b/x"], 1, 3)))


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_children(fs: Any, how: str) -> None:
    fs.pipe_file("b/x", b"0123456789")
    assert fs.glob("b/*") == ["b/x"]  # with fsspec's loop, and our threads
    context: Any = multiprocessing.get_context(how)
    queue = context.Queue()
    with fs.open("b/x", cache_options={"ranges": [(0, 10)]} if how == "fork" else None) as file:
        child = context.Process(target=_in_child, args=(fs, file, queue))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        assert queue.get(timeout=60) == (b"0123456789", ["b/x"], b"01234", [b"12"])
        child.join()
        assert child.exitcode == 0
        assert file.read(5) == b"01234"
    assert fs.cat_file("b/x") == b"0123456789"


CTRL_C = """
import os, signal, sys, threading
import headrace as hr
from headrace import sim
with sim.Server(sys.argv[1], behaviour={"first_byte_p50_ms": 50000.0, "first_byte_p99_ms": 50000.0}) as server:
    fs = hr.fs("s3://b", endpoint=server.endpoint, access_key=server.access_key, secret_key=server.secret_key)
    def calls():
        yield "cat_file", lambda: fs.cat_file("b/x")
        yield "cat_ranges", lambda: fs.cat_ranges(["b/x"] * 9, 0, 9)
        yield "cat", lambda: fs.cat(["b/x", "b/x"])
        yield "get", lambda: fs.get("b/x", sys.argv[1] + "/down")
        yield "glob", lambda: fs.glob("b/*")
        yield "open", lambda: fs.open("b/x").read()
    for name, call in calls():
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            call()
            sys.exit(name + " returned")
        except KeyboardInterrupt:
            pass
        timer.join()
print("interrupted")
"""  # noqa: E501


def test_ctrl_c_ends_what_blocks_and_the_program_ends_too(buckets: Path) -> None:
    (buckets / "b" / "x").write_bytes(b"0123456789")
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C, str(buckets)], capture_output=True, text=True, timeout=40, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "interrupted"), done.stderr


def test_a_closed_file_system_opens_again(fs: Any) -> None:
    fs.pipe_file("b/x", b"1")
    fs.close()
    assert fs.stores() == {}
    assert fs.cat_file("b/x") == b"1"


def test_web_servers(s3: simulator.Server, fs: Any) -> None:
    fs.pipe_file("b/d/a file+%.txt", b"0123456789")
    url = fs.sign("b/d/a file+%.txt", 60)
    web = hr.fs(url, memory="32MiB")
    assert web.cat_file(url) == b"0123456789"
    assert web.cat_file("hr+" + url, 2, 5) == b"234"
    with web.open(url) as file:
        assert file.read(3) == b"012"
    assert web.unstrip_protocol(url) == "hr+" + url
    for call in (web.ls, web.find, lambda u: web.pipe_file(u, b"")):
        with pytest.raises(hr.UnsupportedError):
            call(url)
    web.close()


def test_web_urls_with_a_query_are_no_patterns(s3: simulator.Server, fs: Any, tmp_path: Path) -> None:
    fs.pipe({"b/d/p.txt": b"signed", "b/d/q.txt": b"too"})
    urls = [fs.sign(f"b/d/{name}.txt", 60) for name in "pq"]
    missing = fs.sign("b/d/missing", 60)
    web = hr.fs(urls[0], memory="32MiB")
    assert web.cat(urls[0]) == b"signed"
    assert web.cat(urls) == {urls[0]: b"signed", urls[1]: b"too"}
    assert (web.glob(urls[0]), web.glob(missing)) == ([urls[0]], [])
    web.get(urls[0], str(tmp_path / "one"))
    web.get(urls, f"{tmp_path}/all/")
    assert (tmp_path / "one").read_bytes() == b"signed"
    assert {one.name for one in (tmp_path / "all").iterdir()} == {"p.txt", "q.txt"}
    for opened in (fsspec.open_files([f"hr+{url}" for url in urls]), fsspec.open_files(f"hr+{urls[0]}")):
        with opened[0] as file:
            assert file.read() == b"signed"
    for call in (lambda: web.cat(f"{s3.endpoint}/b/*.txt"), lambda: web.get(urls[0], "x", recursive=True)):
        with pytest.raises(hr.UnsupportedError, match="cannot be listed"):
            call()
    web.close()


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what was asked for."""

    def do_GET(self) -> None:
        body = self.requestline.split()[1].encode()  # path has lost slashes
        self.send_response(206)
        self.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_web_urls_are_asked_for_as_they_are_written(echo: str) -> None:
    web = hr.fs(echo, memory="32MiB")
    for path, sent in (
        ("/d/x", ""),
        ("/d/a%20b", ""),
        ("/d%2Fe/x", ""),
        ("/d%2fe//x?q=1", ""),
        ("/d+e/%2B,x", "/d+e/%2B%2Cx"),
        ("/wiki(x)/%C3%BC", ""),
        ("/%E9/x", ""),
        ("//d//x", ""),
        ("/d e/ü", "/d%20e/%C3%BC"),
        ("/100%/x", "/100%25/x"),
    ):
        assert web.cat_file(echo + path).decode() == (sent or path)
    for path in ("/d/a%2Fb", "/d/%E9"):
        with pytest.raises(hr.InvalidArgumentError, match="cannot be asked for"):
            web.cat_file(echo + path)
    web.close()


def test_local_files_are_real_files(tmp_path: Path) -> None:
    fs = hr.fs(tmp_path, memory="32MiB")
    fs.makedirs(tmp_path / "made", exist_ok=True)
    assert fs.isdir(tmp_path / "made")
    with fs.open(tmp_path / "new" / "a b%20c", "wb") as file:
        file.write(b"x")
    assert (tmp_path / "new" / "a b%20c").read_bytes() == b"x"
    with fs.open(tmp_path / "new" / "large", "wb") as file:
        file.write(bytes(9 * MIB))
        hidden = [one.name[:17] for one in (tmp_path / "new").iterdir() if one.name[0] == "."]
        assert hidden == [".headrace-upload-"], "beside it: / is not everybody's"
        assert [one["name"] for one in fs.ls(tmp_path / "new")] == [str(tmp_path / "new" / "a b%20c")]
    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == ["a b%20c", "large"]
    assert fs.ls(tmp_path, detail=False) == [str(tmp_path / "made"), str(tmp_path / "new")]
    assert fs.cat_file(f"file://{tmp_path}/new/a b%20c") == b"x"
    fs.rm(str(tmp_path / "new"), recursive=True)
    assert not (tmp_path / "new").exists()
    assert json.loads(fs.to_json())["protocol"] == "hr+file"
    fs.close()


@pytest.mark.parametrize("name", ["data#old", "data?old", "data%41", "data%2f..", "hr+data"])
def test_a_file_url_is_the_path_that_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = hr.fs(tmp_path, memory="32MiB")
    for folder in ("data", "dataA", name):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f").write_text(folder)
    monkeypatch.chdir(tmp_path)
    path = f"{tmp_path}/{name}"
    for url in (path, f"file://{path}", f"hr+file://{path}", f"file://localhost{path}", name):
        assert fs._strip_protocol(url) == path
        assert fs.cat_file(f"{url}/f") == name.encode()
    with hr.Store(f"file://{path}") as store:
        assert store.get("f") == name.encode()
    url = fs.unstrip_protocol(f"{path}/f")
    opened, found = fsspec.core.url_to_fs(url)
    assert (opened.protocol, found) == (fs.protocol, f"{path}/f")
    if "?" not in name:  # a wildcard
        fs.rm(f"file://{path}", recursive=True)
        assert {one.name for one in tmp_path.iterdir()} == {"data", "dataA"}
    with pytest.raises(hr.InvalidArgumentError, match="three slashes"):
        fs.rm("file://data/f")
    fs.close()


def test_local_files_are_never_moved_onto_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = hr.fs(tmp_path, memory="32MiB")
    file = tmp_path / "d" / "model.bin"
    file.parent.mkdir()
    file.write_bytes(b"weights")
    (tmp_path / "link").symlink_to("d")
    os.link(file, tmp_path / "hard")
    monkeypatch.chdir(file.parent)
    path = str(file)
    pairs = [
        (path, f"{tmp_path}/d/"),
        ("model.bin", path),
        (path, file.as_uri()),
        (path, f"hr+file://{path}"),
    ]
    pairs += [(path, f"{tmp_path}/link/model.bin"), (f"{tmp_path}/link/model.bin", path)]
    pairs += [(path, f"{tmp_path}/hard"), (path, f"{tmp_path}/d/../d/model.bin")]
    for call in (fs.mv, fs.copy):
        for source, target in pairs:
            with pytest.raises(hr.InvalidArgumentError, match="are the same"):
                call(source, target)
            assert file.read_bytes() == b"weights"
    for target in (f"{tmp_path}/link/new", f"{tmp_path}/d/new", f"{tmp_path}/d/"):
        with pytest.raises(hr.InvalidArgumentError, match="lies inside"):
            fs.mv(str(file.parent), target, recursive=True)
    fs.mv(str(file.parent), str(tmp_path / "moved"), recursive=True)
    assert (tmp_path / "moved" / "model.bin").read_bytes() == b"weights"
    assert fs.find(str(tmp_path / "d")) == []
    fs.close()
