"""mv, --flatten, links that lead nowhere: what is copied, and what must not be lost."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import contents

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.cli.moving import Arrived
from headrace.cli.plan import Job


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in ("x", "deep/y", "deep/er/z.tmp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_trees_move_between_disk_and_store(
    cli: Any, s3: simulator.Server, tree: Path, buckets: Path, tmp_path: Path
) -> None:
    before = contents(tree)
    moved = cli("mv", "-r", str(tree), "s3://b/there", "--json").json()
    assert (moved["objects"], moved["deleted"], moved["failed"]) == (3, 3, 0)
    assert (contents(buckets / "b" / "there"), tree.exists()) == (before, False)
    assert cli("mv", "-r", "s3://b/there", "s3://b/again").code == 0
    assert contents(buckets / "b") == {f"again/{name}": data for name, data in before.items()}
    assert cli("mv", "-r", "s3://b/again/", str(tmp_path / "back")).code == 0
    assert (contents(tmp_path / "back"), contents(buckets / "b")) == (before, {})


def test_one_object_and_patterns_move(cli: Any, s3: simulator.Server, tree: Path, buckets: Path) -> None:
    large = os.urandom(30 << 20)
    (tree / "large").write_bytes(large)
    assert cli("mv", str(tree / "large"), str(tree / "x"), "s3://b/in/").code == 0
    assert contents(buckets / "b") == {"in/large": large, "in/x": b"x"}
    assert cli("mv", "s3://b/in/l*", "s3://b/").code == 0
    assert contents(buckets / "b") == {"large": large, "in/x": b"x"}
    assert set(contents(tree)) == {"deep/y", "deep/er/z.tmp"}


def test_what_is_skipped_or_fails_stays(cli: Any, s3: simulator.Server, tree: Path, buckets: Path) -> None:
    before = contents(tree)
    assert cli("mv", "-r", "--dry-run", str(tree), "s3://b/t").out.count(" -> ") == 3
    (buckets / "b" / "t").mkdir()
    (buckets / "b" / "t" / "x").write_text("older")
    assert cli("mv", "-r", "-n", "--exclude", "*.tmp", str(tree), "s3://b/t", "--json").json()["skipped"] == 1
    assert contents(tree) == {name: before[name] for name in ("x", "deep/er/z.tmp")}
    # A directory lies where a file has to go.
    (buckets / "b" / "u" / "x" / "in the way").mkdir(parents=True)
    failed = cli("mv", "-r", str(tree), str(buckets / "b" / "u"))
    assert (failed.code, "in the way" in failed.err) == (1, True), failed.err
    assert contents(tree) == {"x": b"x"}


def test_nothing_is_moved_onto_itself(cli: Any, s3: simulator.Server, tree: Path, tmp_path: Path) -> None:
    before = contents(tree)
    assert cli("cp", "-r", str(tree), "s3://b/t").code == 0
    (tmp_path / "alias").symlink_to(tree)
    for words in (
        ("s3://b/t/x", "s3://b/t/x"),
        ("s3://b/t/x", "s3://b/t/"),
        ("-r", "s3://b/t", "s3://b/t/"),
        ("s3://b/t/*", "s3://b/t/"),
        (str(tree / "x"), str(tmp_path / "alias")),
        (str(tree / "x"), str(tmp_path / "alias" / "x")),
        ("-r", str(tree), str(tmp_path / "alias")),
        ("-r", str(tmp_path / "alias"), str(tree)),
        ("http://127.0.0.1:9/x", str(tmp_path / "web")),
        ("-", "s3://b/stdin"),
    ):
        refused = cli("mv", *words)
        assert refused.code == 1, words
        assert contents(tree) == before, words
    assert cli("ls", "-rs", "s3://b/t/", "--json").json()["objects"] == 3


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("az://account/container", "azure://account/container"),
        ("az://account/container", "abfss://container@account.dfs.core.windows.net"),
        ("wasbs://container@account.blob.core.windows.net", "az://account/container"),
        ("gs://bucket", "gcs://bucket"),
    ],
)
def test_nothing_is_moved_onto_itself_under_another_spelling(cli: Any, source: str, target: str) -> None:
    """Refused before any server is asked."""
    for words in ((f"{source}/d/x", f"{target}/d/x"), ("-r", f"{source}/d", f"{target}/d/")):
        refused = cli("mv", "--anonymous", *words)
        assert (refused.code, "are the same" in refused.err) == (1, True), refused
    with hr.Store(source, anonymous=True) as a, hr.Store(target, anonymous=True) as b:
        assert _native.is_same_object(a._native, "x", b._native, "x")
        assert not _native.is_same_object(a._native, "x", b._native, "y")


def test_what_was_replaced_meanwhile_stays(s3: simulator.Server, tree: Path, tmp_path: Path) -> None:
    """Also by an older file that takes the name, and by an object of the same size."""
    for url in (str(tree), "s3://b/t"):
        with hr.Store(url) as source, hr.Store(tmp_path / "there") as target:
            for key in ("x", "y", "z"):
                source.put(key, b"first")
            copied = {key: source.head(key).etag for key in ("x", "y", "z")}
            if url == str(tree):
                (tmp_path / "older").write_bytes(b"other")
                os.utime(tmp_path / "older", (1e9, 1e9))
                (tmp_path / "older").replace(tree / "x")
            else:
                source.put("x", b"other")
            source.delete("y")
            arrived = Arrived(Job(source, target, [("", "", True, 0, "")]))
            arrived.add(("copy", key, key, 5, etag) for key, etag in copied.items())
            stays = arrived.finish(False)
            assert [(key, code) for key, code, _ in stays] == [("x", "changed")], stays
            assert "was written to while it was moved" in stays[0][2]
            assert (source.get("x"), source.exists("z")) == (b"other", False)


def test_what_has_arrived_goes_before_the_others_have(s3: simulator.Server, tmp_path: Path) -> None:
    with hr.Store("s3://b") as source, hr.Store(tmp_path / "there") as target:
        source.put("x", b"1")
        arrived = Arrived(Job(source, target, [("x", "x", False, 0, "")]))
        arrived.add([("copy", "x", "x", 1, source.head("x").etag)])
        arrived.wait()
        assert not source.exists("x")
        assert arrived.finish(True) == []


def test_a_filter_holds_for_names_that_the_shell_expanded(
    cli: Any, s3: simulator.Server, tree: Path, buckets: Path
) -> None:
    files = [str(path) for path in (tree / "x", tree / "deep" / "er" / "z.tmp")]
    before = contents(tree)
    done = cli("mv", "--exclude", "*.tmp", *files, "s3://b/m/")
    assert (done.code, contents(buckets / "b")) == (0, {"m/x": b"x"})
    assert contents(tree) == {name: data for name, data in before.items() if name != "x"}
    done = cli("cp", "--exclude", "*.tmp", files[1], "s3://b/c/")
    assert (done.code, "leave" in done.err, set(contents(buckets / "b"))) == (0, True, {"m/x"})
    done = cli("rm", "--exclude", "*.tmp", str(tree / "deep" / "y"), files[1])
    assert (done.code, done.out) == (0, "1 deleted\n")
    done = cli("rm", "--exclude", "*.tmp", files[1])
    assert (done.code, "leave" in done.err) == (1, True)
    assert cli("cat", "--exclude", "*.tmp", files[1]).out == ""
    assert set(contents(tree)) == {"deep/er/z.tmp"}


def _two_of_one_name(tree: Path) -> list[tuple[str, ...]]:
    """Words of copies, in each of which two objects would get one name."""
    (tree / "other").mkdir()
    (tree / "other" / "y").write_text("another y")
    (tree / "aside").mkdir()
    (tree / "aside" / "z.tmp").write_text("another z.tmp")
    deep, other = tree / "deep", tree / "other"
    return [
        (f"{deep}/y", f"{other}/y", "s3://b/1/"),
        (f"{deep}/*", f"{other}/*", "s3://b/2/"),
        ("-r", "--flatten", str(tree), "s3://b/3/"),
        ("-r", f"{deep}/e*", f"{tree}/a*", "s3://b/4/", "--flatten"),
        # From several stores.
        ("s3://one/*", "s3://two/*", "s3://b/5/"),
        ("s3://one/y", "s3://two/y", f"{tree}/"),
        ("s3://one/*", f"{deep}/y", "s3://b/6/"),
        ("-r", "--flatten", "s3://one", f"{deep}/er", str(tree)),
    ]


@pytest.mark.parametrize("command", ["cp", "mv"])
def test_two_of_one_name_are_refused_before_anything_is_copied(
    cli: Any, s3: simulator.Server, tree: Path, buckets: Path, command: str
) -> None:
    many = _two_of_one_name(tree)
    for bucket in ("one", "two"):
        (buckets / bucket / "sub").mkdir(parents=True)
        for name in ("y", f"only in {bucket}", "sub/z.tmp"):
            (buckets / bucket / name).write_text(f"{name} of {bucket}")
    before = contents(tree), contents(buckets)
    for words in many:
        done = cli(command, *words)
        assert done.code == 1, words
        assert re.search(
            r"/(y|z\.tmp) and \S+/(y|z\.tmp) would both become \S+/(y|z\.tmp)$", done.err.strip()
        ), (
            words,
            done.err,
        )
        assert (contents(tree), contents(buckets)) == before, words


@pytest.mark.parametrize("command", ["cp", "mv"])
def test_several_stores_into_one_directory(
    cli: Any, s3: simulator.Server, tree: Path, buckets: Path, command: str
) -> None:
    for bucket in ("one", "two"):
        (buckets / bucket / bucket[:2]).mkdir(parents=True)
        for name in (bucket, "both", f"{bucket[:2]}/both"):
            (buckets / bucket / name).write_text(bucket)
    words = ("s3://one/o*e", "s3://two/t*o", "s3://two/two", str(tree / "x"), "s3://b/", "--json")
    assert cli(command, *words).json()["objects"] == 3  # one of them is named twice
    assert contents(buckets / "b") == {"one": b"one", "two": b"two", "x": b"x"}
    # What --exclude keeps out takes no name; and with -r each has a directory of its own.
    assert cli(command, "s3://one/*", "s3://two/*", "s3://b/c/", "--exclude", "both").code == 0
    assert cli(command, "-r", "s3://one/on", "s3://two/tw", str(tree / "all")).code == 0
    assert {"all/on/both": b"one", "all/tw/both": b"two"}.items() <= contents(tree).items()


def test_flattened_trees(cli: Any, s3: simulator.Server, tree: Path, buckets: Path) -> None:
    assert cli("cp", "-r", "--flatten", str(tree), "s3://b/flat").code == 0
    assert contents(buckets / "b") == {"flat/x": b"x", "flat/y": b"deep/y", "flat/z.tmp": b"deep/er/z.tmp"}
    again = cli("cp", "-r", "--flatten", "-n", str(tree), "s3://b/flat", "--json").json()
    assert (again["objects"], again["skipped"]) == (0, 3)


def test_links_that_lead_nowhere_are_named(cli: Any, s3: simulator.Server, tree: Path, buckets: Path) -> None:
    (tree / "deep" / "dead").symlink_to("nowhere")
    (tree / "deep" / "loop").symlink_to(tree)
    done = cli("cp", "-r", str(tree), "s3://b/t")
    assert (done.code, f"{tree}/deep/dead: the link leads nowhere" in done.err) == (1, True), done.err
    assert len(contents(buckets / "b")) == 3
    # What the link once stood for is not superfluous in the copy.
    (buckets / "b" / "t" / "deep" / "dead").write_text("was there")
    assert cli("sync", "--delete", str(tree), "s3://b/t").code == 1
    assert len(contents(buckets / "b")) == 4
    assert cli("sync", "--delete", "--exclude", "dead", str(tree), "s3://b/t").code == 0
    moved = cli("mv", "-r", str(tree), "s3://b/moved")
    assert (moved.code, (tree / "deep" / "dead").is_symlink()) == (1, True)
    assert contents(tree) == {}


def test_links_to_directories_go_when_all_behind_them_was_moved(cli: Any, tree: Path, tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.mkdir()
    (behind / "w").write_text("w")
    (tree / "link").symlink_to(behind)
    partly = cli("mv", "-r", "--exclude", "x", str(tree), str(tmp_path / "to"))
    assert (partly.code, "link stays" in partly.err, (tree / "link").is_symlink()) == (1, True, True)
    assert cli("mv", "-r", str(tree), str(tmp_path / "to")).code == 0
    assert (tree.exists(), contents(behind)) == (False, {"w": b"w"})
    assert (tmp_path / "to" / "link" / "w").read_text() == "w"
