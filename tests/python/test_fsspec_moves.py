"""The fsspec file system where files move, are copied and fetched: nothing is lost, and nothing lands
elsewhere."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec_world import fs

import headrace as hr
from headrace import sim as simulator

__all__ = ["fs"]


def keys(prefix: str = "", bucket: str = "b") -> list[str]:
    with hr.Store(f"s3://{bucket}") as store:
        return [one.key for one in store.list(prefix)]


def then(fs: Any, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], object]) -> None:
    """``call`` of a store when the next copy is done."""
    copy = fs.copy

    def copy_and_call(*arguments: Any, **options: Any) -> None:
        copy(*arguments, **options)
        with hr.Store("s3://b") as store:
            call(store)

    monkeypatch.setattr(fs, "copy", copy_and_call)


def test_a_move_deletes_what_it_copied_and_nothing_else(fs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Store("s3://b") as store:
        for key in ("d/", "d/x", "d/full/", "d/empty/", "d/empty/deep/"):
            store.put(key, b"" if "empty" in key or key == "d/" else b"content")
    then(fs, monkeypatch, lambda store: store.put("d/late", b"late"))
    fs.mv("b/d", "b/new", recursive=True)
    assert keys() == ["d/full/", "d/late", "new/x"]
    fs.pipe({"b/p/1": b"1", "b/p/2": b"2"})
    then(fs, monkeypatch, lambda store: store.put("p/3", b"late"))
    fs.mv("b/p/*", "b/q/")
    assert (keys("p"), keys("q")) == (["p/3"], ["q/1", "q/2"])


def test_what_is_written_again_while_it_moves_stays(fs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.pipe({"b/d/x": b"1", "b/d/y": b"2"})
    then(fs, monkeypatch, lambda store: store.put("d/x", b"again"))
    with pytest.raises(hr.ChangedError, match="b/d/x: was written"):
        fs.mv("b/d", "b/new", recursive=True)
    assert fs.cat("b", recursive=True) == {"b/d/x": b"again", "b/new/x": b"1", "b/new/y": b"2"}
    then(fs, monkeypatch, lambda store: store.put("d/x", b"and again"))
    with pytest.raises(hr.ChangedError, match="b/d/x: was written"):
        fs.mv("b/d/x", "b/z")
    assert (fs.cat_file("b/d/x"), fs.cat_file("b/z")) == (b"and again", b"again")
    then(fs, monkeypatch, lambda store: store.delete("d/x"))
    fs.mv("b/d/x", "b/z")
    assert fs.cat_file("b/z") == b"and again"


def test_no_two_files_move_to_one_place(fs: Any) -> None:
    fs.pipe({"b/d/1": b"d", "b/e/1": b"e", "b/x": b"x", "b/y": b"y"})
    with pytest.raises(hr.InvalidArgumentError, match="both become b/t/1"):
        fs.mv(["b/d/1", "b/e/1"], "b/t/")
    assert (fs.cat_file("b/d/1"), fs.cat_file("b/e/1")) == (b"d", b"e")
    with pytest.raises(hr.InvalidArgumentError, match="moved itself"):
        fs.mv(["b/x", "b/y"], ["b/y", "b/z"])
    assert fs.exists("b/x")
    assert fs.exists("b/y")


def test_directories_move_when_that_is_said(fs: Any, tmp_path: Path) -> None:
    fs.pipe_file("b/d/x", b"1")
    with pytest.raises(hr.InvalidArgumentError, match="recursive=True"):
        fs.mv("b/d", "b/e")
    assert keys() == ["d/x"]
    local = hr.fs(tmp_path, memory="32MiB")
    (tmp_path / "d").mkdir()
    with pytest.raises(hr.InvalidArgumentError, match="recursive=True"):
        local.mv(str(tmp_path / "d"), str(tmp_path / "e"))
    assert (tmp_path / "d").is_dir()
    with pytest.raises(FileNotFoundError):
        local.mv(str(tmp_path / "none"), str(tmp_path / "e"))
    with pytest.raises(FileNotFoundError):
        fs.mv("b/none", "b/e")
    local.close()


def shapes(root: Path) -> dict[str, str]:
    """What lies below, links and special files as what they are."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        what = (
            os.readlink(path)
            if stat.S_ISLNK(mode)
            else "fifo"
            if stat.S_ISFIFO(mode)
            else "directory"
            if stat.S_ISDIR(mode)
            else f"{stat.S_IMODE(mode):o} {path.read_text()}"
        )
        found[str(path.relative_to(root))] = what
    return found


def make_tree(root: Path) -> dict[str, str]:
    (root / "empty" / "deep").mkdir(parents=True)
    (root / "run.sh").write_text("run")
    (root / "run.sh").chmod(0o750)
    (root / "dangling").symlink_to("nowhere")
    (root / "up").symlink_to("..")
    return shapes(root)


def test_a_local_move_takes_everything_along(tmp_path: Path) -> None:
    local = hr.fs(tmp_path, memory="32MiB")
    expected = make_tree(tmp_path / "d")
    os.mkfifo(tmp_path / "d" / "fifo")
    expected = dict(sorted({**expected, "fifo": "fifo"}.items()))
    local.mv(str(tmp_path / "d"), str(tmp_path / "far" / "new"), recursive=True)
    assert shapes(tmp_path / "far" / "new") == expected
    assert not (tmp_path / "d").exists()
    (tmp_path / "into").mkdir()
    local.mv(str(tmp_path / "far" / "new"), str(tmp_path / "into"), recursive=True)
    assert shapes(tmp_path / "into" / "new") == expected
    # One after the other into a directory that is there; what has another name stays in it.
    there = tmp_path / "there"
    (there / "empty").mkdir(parents=True)
    (there / "empty" / "theirs").write_text("theirs")
    (there / "run.sh").write_text("old")
    local.mv(f"{tmp_path}/into/new/", f"{there}/", recursive=True)
    assert (there / "empty" / "theirs").read_text() == "theirs"
    (there / "empty" / "theirs").unlink()
    assert shapes(there) == expected
    assert list((tmp_path / "into").iterdir()) == []
    local.mv(str(there / "run.sh"), f"{tmp_path}/into/")
    assert shapes(tmp_path / "into") == {"run.sh": "750 run"}
    local.mv(str(there / "dangling"), str(tmp_path / "into"))
    assert (tmp_path / "into" / "dangling").is_symlink()
    with pytest.raises(hr.UnsupportedError, match="no file"):
        local.mv(str(tmp_path / "into" / "run.sh"), str(there / "fifo"))
    local.close()


def test_a_local_move_to_another_file_system_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = hr.fs(tmp_path, memory="32MiB")
    expected = make_tree(tmp_path / "d")
    rename = os.rename

    def refuse(source: Any, target: Any, **options: Any) -> None:
        if "elsewhere" in str(target):
            raise OSError(errno.EXDEV, "another file system")
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", refuse)
    local.mv(str(tmp_path / "d"), str(tmp_path / "elsewhere"), recursive=True)
    assert shapes(tmp_path / "elsewhere") == expected
    assert not (tmp_path / "d").exists()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="named pipe"):
        local.mv(str(tmp_path / "fifo"), str(tmp_path / "elsewhere"))
    assert (tmp_path / "fifo").is_fifo()
    local.close()


def test_local_lists_and_patterns_move_as_in_a_store(tmp_path: Path) -> None:
    local = hr.fs(tmp_path, memory="32MiB")
    make_tree(tmp_path / "d")
    (tmp_path / "d" / "x").write_text("x")
    (tmp_path / "d" / "x").chmod(0o600)
    local.mv([str(tmp_path / "d" / "x")], f"{tmp_path}/e/")
    local.mv(f"{tmp_path}/d/run*", f"{tmp_path}/e/")
    assert shapes(tmp_path / "e") == {"run.sh": "750 run", "x": "600 x"}
    assert sorted(shapes(tmp_path / "d")) == ["dangling", "empty", "empty/deep", "up"]
    local.close()


def test_names_that_lead_out_of_the_directory_are_not_fetched(fs: Any, tmp_path: Path) -> None:
    with hr.Store("s3://b") as store:
        for key in ("d/f", "d/../../evil", "e/a/..", "fine/..x/y..", "fine/a...b"):
            store.put(key, key.encode())
    target = tmp_path / "in" / "deep"
    target.mkdir(parents=True)
    for call in (
        lambda: fs.get("b/d/", f"{target}/", recursive=True),
        lambda: fs.get("b/d", str(target), recursive=True),
        lambda: fs.get("b/d/**", str(target)),
        lambda: fs.get(["b/e/a/.."], str(target)),
        lambda: asyncio.run(fs._get("b/d", str(target / "new"), recursive=True)),
    ):
        with pytest.raises(hr.InvalidArgumentError, match=r'"\.\." in its name leads out'):
            call()
    assert sorted(shapes(tmp_path / "in")) == ["deep"]
    fs.get("b/fine", str(target), recursive=True)
    assert sorted(shapes(target)) == ["fine", "fine/..x", "fine/..x/y..", "fine/a...b"]
    fs.get_file("b/d/../../evil", tmp_path / "evil")  # whoever names it means it
    assert (tmp_path / "evil").read_bytes() == b"d/../../evil"


def test_a_missing_bucket_is_not_found_by_copies_too(fs: Any) -> None:
    fs.pipe({"b/w": b"1", "b/d/x": b"2"})
    for call in (
        lambda: fs.pipe_file("none/w", b"1"),
        lambda: fs.cp_file("b/w", "none/w"),
        lambda: fs.cp("b/w", "none/w"),
        lambda: fs.cp("b/d", "none/d", recursive=True),
        lambda: fs.mv("b/d", "none/d", recursive=True),
    ):
        with pytest.raises(hr.NotFoundError, match="none"):
            call()
    fs.cp(["b/w", "b/missing"], "b/new/", on_error="ignore")
    assert keys() == ["d/x", "new/w", "w"]


def test_files_keep_their_permissions_and_links(tmp_path: Path) -> None:
    local = hr.fs(tmp_path, memory="32MiB")
    secret, link, source = tmp_path / "secret", tmp_path / "link", tmp_path / "source"
    source.write_bytes(b"new")

    def write(path: Path) -> None:
        with local.open(path, "wb") as file:
            file.write(b"new")

    def write_parts(path: Path) -> None:
        with local.open(path, "wb") as file:
            file.write(bytes(9 << 20))
        local.pipe_file(path, b"new")

    def in_transaction(path: Path) -> None:
        with local.transaction:
            local.pipe_file(path, b"new")

    for call in (
        write,
        write_parts,
        in_transaction,
        lambda path: local.pipe_file(path, b"new"),
        lambda path: local.put_file(source, path),
        lambda path: local.cp_file(str(source), str(path)),
        lambda path: local.get_file(str(source), path),
    ):
        for path in (secret, link):
            for one in (secret, link):
                one.unlink(missing_ok=True)
            secret.write_bytes(b"old")
            secret.chmod(0o600)
            link.symlink_to("secret")
            call(path)
            assert (stat.S_IMODE(secret.stat().st_mode), secret.read_bytes()) == (0o600, b"new")
            assert link.is_symlink()
    local.cp(str(secret), str(tmp_path / "copy"))
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    secret.unlink()
    write(link)
    assert secret.read_bytes() == b"new"
    local.rm(str(link))
    assert secret.exists()
    assert not link.is_symlink()
    local.close()


def test_empty_local_directories_are_found_as_fsspec_finds_them(tmp_path: Path) -> None:
    local, other = hr.fs(tmp_path, memory="32MiB"), fsspec.filesystem("file")
    root = tmp_path / "d"
    for folder in ("empty/deep/er", "full", ".hidden", "e2"):
        (root / folder).mkdir(parents=True)
    (root / "full" / "x").write_text("x")
    for depth in (None, 1, 2, 3):
        for withdirs in (False, True):
            for path in (root, root / "empty", root / "full"):
                found = local.find(path, maxdepth=depth, withdirs=withdirs)
                assert found == other.find(path, maxdepth=depth, withdirs=withdirs), (path, depth, withdirs)
    for pattern in ("*", "**", "e*", "e*/*", "*/", "*/*/*", "full/*", "e2"):
        assert local.glob(f"{root}/{pattern}") == other.glob(f"{root}/{pattern}"), pattern
    mine = {(top, *sorted(folders), "|", *files) for top, folders, files in local.walk(root)}
    assert mine == {(top, *sorted(folders), "|", *files) for top, folders, files in other.walk(root)}
    local.cp(str(root), str(tmp_path / "copy"), recursive=True)
    assert shapes(tmp_path / "copy") == shapes(root)
    local.close()


def test_links_do_not_lead_round_in_circles(tmp_path: Path) -> None:
    local = hr.fs(tmp_path, memory="32MiB")
    root = tmp_path / "d"
    (root / "in").mkdir(parents=True)
    (root / "in" / "x").write_text("x")
    (root / "in" / "up").symlink_to("..")
    (root / "other").symlink_to("in")
    files = [f"{root}/{name}" for name in ("in/x", "other/x")]
    folders = [f"{root}{name}" for name in ("", "/in", "/in/up", "/other", "/other/up")]
    for depth in (None, 9):
        assert local.find(root, maxdepth=depth) == files
        assert local.find(root, maxdepth=depth, withdirs=True) == sorted(files + folders)
        for topdown in (True, False):
            found = {top: (dirs, inside) for top, dirs, inside in local.walk(root, depth, topdown)}
            assert found == {
                str(root): (["in", "other"], []),
                f"{root}/in": (["up"], ["x"]),
                f"{root}/other": (["up"], ["x"]),
            }
    local.close()


def test_directories_without_a_name_are_listed(fs: Any, s3: simulator.Server) -> None:
    names = ["/first", "a//b/c", "a//d", "a/x", "e//", "z///y"]
    with hr.Store("s3://b") as store:
        for key in names:
            store.put(key, b"12345")
    files = [f"b/{key}" for key in names if key != "e//"]
    assert fs.find("b") == fs.find("b", maxdepth=9) == files
    assert sorted(f"{top}/{one}" for top, _, inside in fs.walk("b") for one in inside) == files
    assert fs.du("b") == fs.du("b", maxdepth=9) == 25
    assert fs.find("b", withdirs=True) == fs.find("b", maxdepth=9, withdirs=True)
    assert fs.find("b/a", maxdepth=2) == ["b/a//d", "b/a/x"]
    assert [one["name"] for one in fs.ls("b/a")] == ["b/a/", "b/a/x"]
    fs.mv("b/a", "b/n", recursive=True)
    assert keys("n") == ["n//b/c", "n//d", "n/x"]
    assert keys("a") == []


def test_directories_that_a_caller_takes_out_are_not_entered(fs: Any) -> None:
    fs.pipe({f"b/{key}": b"" for key in ("a/x", "c/d/y", "z")})
    seen = []
    for top, folders, files in fs.walk("b", detail=True):
        folders.pop("a", None)
        seen.append((top, list(folders), list(files)))
    assert seen == [("b", ["c"], ["z"]), ("b/c", ["d"], []), ("b/c/d", [], ["y"])]
    assert [top for top, _, _ in fs.walk("b", maxdepth=2)] == ["b", "b/a", "b/c"]


def test_a_walk_goes_from_the_bottom_up_as_well(fs: Any, s3: simulator.Server) -> None:
    fs.pipe({f"b/{key}": b"" for key in ("a/x", "c/d/y", "z")})
    expected = [("b/a", [], ["x"]), ("b/c/d", [], ["y"]), ("b/c", ["d"], []), ("b", ["a", "c"], ["z"])]
    assert list(fs.walk("b", topdown=False)) == expected
    assert list(fs.walk("b", 2, False)) == [expected[0], *expected[2:]]
    awaited = hr.fs("s3://b", asynchronous=True, memory="32MiB", endpoint=s3.endpoint)

    async def walk() -> list[Any]:
        return [one async for one in awaited._walk("b", topdown=False)]

    assert asyncio.run(walk()) == expected
    awaited.close()


def test_errors_of_a_walk_are_raised_unless_somebody_takes_them(fs: Any) -> None:
    bad = hr.fs("s3://b", endpoint="http://127.0.0.1:1", max_attempts=1, timeout=5, control_directory="")
    for options in ({}, {"on_error": "raise"}, {"on_error": "omit"}, {"topdown": False}):
        with pytest.raises(ConnectionError):
            list(bad.walk("b/d", **options))
    errors: list[OSError] = []
    assert list(bad.walk("b/d", on_error=errors.append)) == [("b/d", [], [])]
    assert isinstance(errors[0], hr.UnavailableError)
    assert list(fs.walk("none")) == [("none", [], [])]
    with pytest.raises(hr.NotFoundError):
        list(fs.walk("none", on_error="raise"))
    with pytest.raises(hr.InvalidArgumentError, match="maxdepth"):
        list(fs.walk("b", 0))
    # Of our own: those of old fsspecs swallow errors.
    assert type(fs).walk is not fsspec.AbstractFileSystem.walk


@pytest.fixture(params=["s3", "file"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """A file system and a directory in it."""
    if request.param == "s3":
        yield request.getfixturevalue("fs"), "b"
        return
    opened = hr.fs(tmp_path, memory="32MiB")
    yield opened, str(tmp_path / "in")
    opened.close()


def test_a_name_that_looks_like_a_pattern_is_meant_when_it_is_there(either: tuple[Any, str]) -> None:
    fs, root = either
    names = ["q[1]", "q1", "s*", "sx", "w?", "wx", "d[1]/x", "d1/x"]

    def left() -> list[str]:
        return [one.removeprefix(f"{root}/") for one in fs.find(root)]

    def without(*gone: str) -> list[str]:
        return sorted(set(names) - set(gone))

    fs.pipe({f"{root}/{name}": name.encode() for name in names})
    fs.rm(f"{root}/q[1]")
    assert left() == without("q[1]")
    fs.rm([f"{root}/s*", f"{root}/w?"])
    assert left() == without("q[1]", "s*", "w?")
    fs.rm(f"{root}/d[1]", recursive=True)
    assert left() == without("q[1]", "s*", "w?", "d[1]/x")
    fs.rm(f"{root}/[qsw]*")  # nothing has that name
    fs.rm(f"{root}/d[1]", recursive=True)
    assert left() == []
    fs.pipe({f"{root}/{name}": name.encode() for name in names})
    fs.rm(f"{root}/q[1]", recursive=True)
    fs.rm(f"{root}/d[1]", recursive=True, maxdepth=1)
    assert left() == without("q[1]", "d[1]/x")


def test_a_name_that_looks_like_a_pattern_moves_and_is_fetched_as_one_file(
    either: tuple[Any, str], tmp_path: Path
) -> None:
    fs, root = either
    fs.pipe({f"{root}/{name}": name.encode() for name in ("q[1]", "q1", "d[1]/x", "d1/x")})
    assert fs.cat(f"{root}/q[1]") == b"q[1]"
    fs.get(f"{root}/q[1]", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == b"q[1]"
    fs.cp(f"{root}/q[1]", f"{root}/copy")
    fs.mv(f"{root}/q[1]", f"{root}/moved")
    fs.mv(f"{root}/d[1]", f"{root}/tree", recursive=True)
    assert {name.removeprefix(f"{root}/"): fs.cat_file(name) for name in fs.find(root)} == {
        "copy": b"q[1]",
        "moved": b"q[1]",
        "tree/x": b"d[1]/x",
        "d1/x": b"d1/x",
        "q1": b"q1",
    }
    fs.cp_file(f"{root}/moved", f"{root}/q[1]")
    fs.mv([f"{root}/q[1]"], f"{root}/into/")
    assert (fs.cat_file(f"{root}/into/q[1]"), fs.cat_file(f"{root}/q1")) == (b"q[1]", b"q1")


def test_a_tree_is_read_whatever_its_files_are_called(either: tuple[Any, str]) -> None:
    fs, root = either
    content = {f"{root}/d/{name}": name.encode() for name in ("a[1].txt", "a1.txt", "e/*", "e/f", "g?/h")}
    fs.pipe(content)
    assert fs.cat(f"{root}/d", recursive=True) == content
    for name, text in content.items():
        assert fs.cat(name, recursive=True) == fs.cat(name) == text
        assert fs.cat([name], recursive=True) == {name: text}
    with pytest.raises(FileNotFoundError):
        fs.cat([f"{root}/d/a1.txt", f"{root}/none"])
    found = fs.cat([f"{root}/d/a1.txt", f"{root}/none"], on_error="return")
    assert isinstance(found[f"{root}/none"], hr.NotFoundError)
    assert list(fs.cat([f"{root}/d/a1.txt", f"{root}/none"], on_error="omit")) == [f"{root}/d/a1.txt"]


def test_a_pattern_deletes_whole_trees_when_that_is_said(fs: Any, tmp_path: Path) -> None:
    with hr.Store("s3://b") as store:
        for key in ("d1/", "d1/e/", "d1/x", "d2/", "d2/e/", "keep/", "d3", "d3/x"):
            store.put(key, b"")
    fs.rm("b/d*")  # files
    assert keys() == ["d1/", "d1/e/", "d1/x", "d2/", "d2/e/", "d3/x", "keep/"]
    fs.rm("b/d*", recursive=True)
    assert keys() == ["keep/"]
    with pytest.raises(hr.NotFoundError, match="nothing matches"):
        fs.rm("b/d*", recursive=True)
    local = hr.fs(tmp_path, memory="32MiB")
    for name in ("d1/e/f", "d2", "keep"):
        (tmp_path / "t" / name).mkdir(parents=True)
    (tmp_path / "t" / "d1" / "x").write_text("x")
    (tmp_path / "t" / "d3").write_text("x")
    (tmp_path / "t" / "d4").symlink_to("keep")
    (tmp_path / "t" / "keep" / "x").write_text("x")
    local.rm(f"{tmp_path}/t/d*", recursive=True)
    assert sorted(shapes(tmp_path / "t")) == ["keep", "keep/x"]
    (tmp_path / "t" / "d" / "e").mkdir(parents=True)
    local.rm([f"{tmp_path}/t/d", f"{tmp_path}/t/d/e"], recursive=True)
    (tmp_path / "t" / "e" / "f").mkdir(parents=True)
    local.rm(f"{tmp_path}/t/**", recursive=True)
    assert shapes(tmp_path / "t") == {}
    local.close()


def test_a_directory_of_a_store_is_deleted_when_that_is_said(fs: Any) -> None:
    fs.pipe({"b/d/x": b"x", "b/d/e/y": b"y", "b/both": b"", "b/both/z": b"z"})
    for path in ("b/d", "b/d/", "s3://b/d/e", Path("b/d"), "b"):
        with pytest.raises(hr.InvalidArgumentError, match="recursive=True deletes it"):
            fs.rm(path)
    with pytest.raises(ValueError, match="recursive=True deletes it"):
        asyncio.run(fs._rm("b/d"))
    assert keys() == ["both", "both/z", "d/e/y", "d/x"]
    fs.rm("b/both")  # the object of that name
    fs.rm("b/nothing")
    fs.rm(["b/d/x", "b/d/e"])  # taken for objects
    assert keys() == ["both/z", "d/e/y"]
    fs.rm("b/d", recursive=True)
    assert keys() == ["both/z"]


def test_a_local_directory_is_deleted_when_that_is_said(tmp_path: Path) -> None:
    local = hr.fs(tmp_path, memory="32MiB")
    for name in ("empty", "full"):
        (tmp_path / "t" / name).mkdir(parents=True)
    (tmp_path / "t" / "full" / "x").write_text("x")
    (tmp_path / "t" / "y").write_text("y")
    for name in ("empty", "full"):
        with pytest.raises(hr.InvalidArgumentError, match="recursive=True deletes it"):
            local.rm([f"{tmp_path}/t/y", f"{tmp_path}/t/{name}"])
    assert sorted(shapes(tmp_path / "t")) == ["empty", "full", "full/x", "y"]
    (tmp_path / "link").symlink_to("t")
    local.rm(f"{tmp_path}/link")
    (tmp_path / "link").symlink_to("t")
    local.rm(f"{tmp_path}/link", recursive=True)
    assert sorted(shapes(tmp_path)) == ["t", "t/empty", "t/full", "t/full/x", "t/y"]
    local.close()
