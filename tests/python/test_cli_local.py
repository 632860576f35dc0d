"""What lies in local trees beside files and directories: links, fifos, sockets, devices. Nothing of it is
passed over in silence, removed through, or replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import contents

import headrace as hr
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer
from headrace.cli import dead_links

HEADRACE = [sys.executable, "-m", "headrace.cli"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """What lies behind links."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").write_text("kept")
    return tmp_path / "kept"


@pytest.fixture
def tree(tmp_path: Path, kept: Path) -> Path:
    root = tmp_path / "tree"
    for run in ("run1", "run2"):
        (root / run / "deep").mkdir(parents=True)
        (root / run / "deep" / "y").write_text("y")
        (root / run / "dead").symlink_to("nowhere")
        (root / run / "loop").symlink_to("loop")
        (root / run / "link").symlink_to(kept)
        (root / run / "empty").symlink_to(root / "nothing")
        os.mkfifo(root / run / "fifo")
    (root / "nothing").mkdir()
    (root / "other").write_text("other")
    (root / "runlink").symlink_to(kept)
    return root


def test_rm_leaves_nothing_of_a_tree(cli: Any, tree: Path, kept: Path) -> None:
    (tree / "run1" / ".headrace-0123456789abcdef.part").write_text("of a dead copy")
    assert cli("rm", "-r", "--dry-run", str(tree), "--json").json()["deleted"] == 14
    assert cli("rm", "-r", "--yes", str(tree), "--json").json() == {"deleted": 14}
    assert (tree.exists(), contents(kept)) == (False, {"x": b"kept"})


def test_rm_of_a_pattern_leaves_nothing_of_what_it_names(cli: Any, tree: Path, kept: Path) -> None:
    assert cli("rm", "-r", "--yes", "--exclude", "*", f"{tree}/run1").code == 1
    assert cli("rm", "-r", "--yes", f"{tree}/run*", "--json").json() == {"deleted": 13}
    assert sorted(entry.name for entry in tree.iterdir()) == ["nothing", "other"]
    assert contents(kept) == {"x": b"kept"}


def test_rm_of_a_pattern_removes_links_themselves(cli: Any, tree: Path, kept: Path) -> None:
    assert cli("rm", "--yes", f"{tree}/run1/*", "--json").json() == {"deleted": 5}
    assert [entry.name for entry in (tree / "run1").iterdir()] == ["deep"]
    assert cli("rm", "--yes", f"{tree}/r*k", "--json").json() == {"deleted": 1}
    # What lies behind a link that is not named itself is named, and stays.
    done = cli("rm", "--yes", f"{tree}/run2/*/x")
    assert (done.code, "link" in done.err, (tree / "run2" / "link").is_symlink()) == (1, True, True)
    assert contents(kept) == {"x": b"kept"}


def test_rm_of_some_files_leaves_the_directories_that_it_did_not_empty(cli: Any, tmp_path: Path) -> None:
    for name in ("d/empty/deep", "d/emptied/deep", "d/both"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("d/emptied/deep/x.tmp", "d/both/x.tmp", "d/both/x", "d/x.tmp"):
        (tmp_path / name).touch()
    assert cli("rm", "-r", "--yes", "--include", "*.tmp", f"{tmp_path}/d", "--json").json() == {"deleted": 3}
    left = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "d").rglob("*"))
    assert left == ["d/both", "d/both/x", "d/empty", "d/empty/deep"]


def test_filters_hold_for_links_too(cli: Any, tree: Path) -> None:
    assert cli("rm", "-r", "--yes", "--include", "fifo", str(tree), "--json").json() == {"deleted": 2}
    assert cli("rm", "-r", "--yes", "--exclude", "dead", f"{tree}/run1", "--json").json() == {"deleted": 4}
    assert [entry.name for entry in (tree / "run1").iterdir()] == ["dead"]


def test_a_pattern_of_one_directory_looks_into_no_other(
    cli: Any, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def scandir(path: str) -> Any:
        seen.append(Path(path))
        return os.scandir(path)

    monkeypatch.setattr(dead_links, "os", SimpleNamespace(path=os.path, stat=os.stat, scandir=scandir))
    assert cli("cp", f"{tree}/oth*", f"{tmp_path}/copied/", "--json").json()["objects"] == 1
    assert seen == [tree]


def test_what_a_copy_passes_over_is_named(
    cli: Any, s3: simulator.Server, tree: Path, buckets: Path, tmp_path: Path
) -> None:
    for words in (("cp", "-r"), ("mv", "-r"), ("sync",)):
        done = cli(*words, f"{tree}/run1", f"s3://b/{words[0]}")
        assert done.code == 1, words
        assert f"{tree}/run1/fifo: neither a file nor a directory" in done.err, words
        assert f"{tree}/run1/dead: the link leads nowhere" in done.err, words
        (tree / "run1" / "deep").mkdir(exist_ok=True)
        (tree / "run1" / "deep" / "y").write_text("y")
        assert (tree / "run1" / "fifo").is_fifo()
    assert contents(buckets / "b" / "cp") == {"deep/y": b"y", "link/x": b"kept"}


def test_a_fifo_keeps_nothing_from_being_deleted(cli: Any, s3: simulator.Server, buckets: Path) -> None:
    (buckets / "b" / "old").write_text("old")
    source = buckets.parent / "source"
    source.mkdir()
    (source / "new").write_text("new")
    os.mkfifo(source / "fifo")
    assert cli("sync", "--delete", str(source), "s3://b/").code == 1
    assert contents(buckets / "b") == {"new": b"new"}


@pytest.mark.parametrize("command", ["pack", "manifest"])
def test_what_pack_and_manifest_pass_over_is_named(
    cli: Any, tree: Path, tmp_path: Path, command: str
) -> None:
    words = (
        ("pack", str(tree), str(tmp_path / "out")) if command == "pack" else ("manifest", "create", str(tree))
    )
    (tree / ".hidden").symlink_to("nowhere")
    done = cli(*words)
    assert (done.code, ".hidden" in done.err) == (1, command == "manifest")
    assert f"{tree}/run1/dead: the link leads nowhere" in done.err
    assert f"{tree}/run2/fifo: neither a file nor a directory" in done.err
    assert (tree / "MANIFEST.sha256" if command == "manifest" else tmp_path / "out" / "index.json").exists()


def test_a_file_is_packed_by_its_path_and_by_its_url(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "1.bin").write_text("one")
    for number, source in enumerate((f"{tmp_path}/1.bin", f"file://{tmp_path}/1.bin")):
        assert cli("pack", source, str(tmp_path / f"out{number}"), "--json").json()["sample_count"] == 1


@pytest.fixture
def null(tmp_path: Path) -> Path:
    """A device as /dev/null is, that no test may destroy for others."""
    path = tmp_path / "null"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.write_bytes(b"")
    except PermissionError:
        pytest.skip("needs to make a device")
    return path


def test_one_object_goes_into_a_device(
    cli: Any, s3: simulator.Server, buckets: Path, null: Path, tmp_path: Path
) -> None:
    (buckets / "b" / "x").write_bytes(bytes(1 << 20))
    (tmp_path / "to null").symlink_to(null)
    for target in (str(null), f"file://{null}", str(tmp_path / "to null")):
        assert cli("cp", "s3://b/x", target).code == 0
    for words in (
        ("mv", "s3://b/x", str(null)),
        ("cp", "-r", "s3://b/", str(null)),
        ("cp", "s3://b/*", str(null)),
        ("cp", "s3://b/x", "--content-type", "text/plain", str(null)),
    ):
        assert cli(*words).code == 1, words
        assert null.is_char_device()
    assert contents(buckets / "b") == {"x": bytes(1 << 20)}


def test_fifos_and_devices_are_not_replaced(
    cli: Any, s3: simulator.Server, buckets: Path, null: Path, tmp_path: Path
) -> None:
    (buckets / "b" / "x").write_text("x")
    with Checkpointer(str(tmp_path / "run")) as checkpointer:
        checkpointer.save(1, {"a": np.arange(3)})
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    data = tmp_path / "data"
    data.mkdir()
    (data / "1.jsonl").write_text('{"a": 1}\n')
    for target in (null, tmp_path / "fifo", tmp_path / "stdout"):
        kind = stat.S_IFMT(target.lstat().st_mode)
        for words in (
            ("cp", "-", str(target)),
            ("ckpt", "cat", str(tmp_path / "run"), "1", "a", "-o", str(target)),
            ("index", str(data), "-o", str(target)),
            *([] if target == null else [("cp", "s3://b/x", str(target))]),
        ):
            done = subprocess.run([*HEADRACE, *words], input="in", capture_output=True, text=True, timeout=60)
            assert (done.returncode, "use `-` for stdout" in done.stderr) == (1, True), (words, done.stderr)
            assert stat.S_IFMT(target.lstat().st_mode) == kind, words
    with hr.Dataset(data) as dataset, pytest.raises(hr.UnsupportedError):
        dataset.write_index(tmp_path / "fifo")
    # In a tree it is an object that fails.
    (buckets / "b" / "t").mkdir()
    (buckets / "b" / "t" / "fifo").write_text("x")
    done = cli("cp", "-r", "s3://b/t", str(tmp_path))
    assert (done.code, "is no file" in done.err, (tmp_path / "fifo").is_fifo()) == (1, True, True)


@pytest.mark.parametrize("command", ["cp", "mv"])
def test_dots_are_no_names_of_objects(
    cli: Any,
    s3: simulator.Server,
    buckets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    for name in ("a/x", "b/y", "c/z"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_text(name)
    monkeypatch.chdir(tmp_path / "in" / "a")
    assert cli(command, "-r", ".", "../b", "../c/.", "s3://b/").code == 0
    assert contents(buckets / "b") == {"a/x": b"a/x", "b/y": b"b/y", "c/z": b"c/z"}
