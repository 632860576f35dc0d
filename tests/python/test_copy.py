"""cp, sync, ls, du, rm, cat: between local files and a simulator in this process."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import contents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import _native
from headrace import sim as simulator
from headrace.base.secrets import without_secrets
from headrace.cli import main, quick
from headrace.cli.base import Stores, split_url, split_wildcard, wildcard
from headrace.cli.declare import Argument, Option, Where, parameters, without_aliases
from headrace.errors import InvalidArgumentError

HEADRACE = [sys.executable, "-m", "headrace.cli"]


def write_tree(root: Path, tree: dict[str, bytes]) -> Path:
    for name, data in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def hidden(root: Path) -> list[str]:
    return [p.name for p in root.rglob(".headrace-*")]


NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=20
).filter(lambda n: n not in (".", "..") and not n.startswith(".headrace-") and len(n.encode()) < 200)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), unique=True, max_size=12),
    seed=st.integers(0, 1 << 30),
)
def test_random_trees_come_back_equal(
    s3: simulator.Server, tmp_path: Path, names: list[str], seed: int
) -> None:
    generator = random.Random(seed)
    taken = {name.rsplit("/", i)[0] for name in names for i in range(1, name.count("/") + 1)}
    tree = {
        name: generator.randbytes(generator.choice((0, 1, 5000, 100_000)))
        for name in names
        if name not in taken
    }
    if not tree:
        return
    # One of its own for each example: two with one seed would find each other's files.
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    write_tree(place / "from", tree)
    prefix = f"s3://b/{place.name}"
    for arguments in (["cp", "-r", str(place / "from"), prefix], ["cp", "-r", prefix, str(place / "back")]):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--part-size", "64KiB"])
        assert ended.value.code == 0
    assert contents(place / "back") == tree


def make_old(root: Path) -> None:
    """Gives files a time in a second in which nothing was copied."""
    for path in root.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))


def test_thousands_of_small_files_there_and_back(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    tree = {f"d{i % 7}/f{i}": str(i).encode() * (i % 50) for i in range(3000)}
    write_tree(tmp_path / "from", tree)
    assert cli("cp", "-r", str(tmp_path / "from"), "s3://b/many", "--json").json()["objects"] == 3000
    make_old(buckets / "b")
    assert cli("sync", "s3://b/many", str(tmp_path / "back"), "--json").json()["objects"] == 3000
    assert contents(tmp_path / "back") == tree
    assert hidden(tmp_path / "back") == []
    assert cli("sync", "s3://b/many", str(tmp_path / "back"), "--json").json()["skipped"] == 3000
    assert cli("du", "--depth", "1", "s3://b/many/", "--json").out.count("\n") == 8
    assert cli("rm", "-r", "-y", "s3://b/many", "--json").json() == {"deleted": 3000}


def test_sync_copies_deletes_and_tells_before(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    source = write_tree(tmp_path / "from", {"same": b"1", "changed": b"22", "new": b"3", "x.tmp": b"t"})
    target = write_tree(buckets / "b" / "t", {"same": b"1", "changed": b"2", "extra": b"4", "kept.tmp": b"5"})
    make_old(source)
    arguments = ("sync", "--delete", "--exclude", "*.tmp", str(source), "s3://b/t")
    told = cli(*arguments, "--dry-run")
    assert told.code == 0
    assert "delete s3://b/t/extra" in told.out
    assert "would copy 2 objects" in told.out
    assert (target / "extra").exists()
    done = cli(*arguments, "--json").json()
    assert (done["objects"], done["deleted"], done["skipped"]) == (2, 1, 1)
    assert contents(target) == {"same": b"1", "changed": b"22", "new": b"3", "kept.tmp": b"5"}


def test_sync_finds_what_changed_in_the_second_of_the_last_one(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    source = tmp_path / "from"
    for target, there in (("s3://b/t", buckets / "b" / "t"), (str(tmp_path / "t"), tmp_path / "t")):
        write_tree(source, {"x": b"1"})
        assert cli("sync", str(source), target).code == 0
        write_tree(source, {"x": b"2"})
        assert cli("sync", str(source), target).code == 0
        assert contents(there) == {"x": b"2"}
        # A needless copy of what was written in that second ends with it.
        time.sleep(1.1)
        assert cli("sync", str(source), target).code == 0
        assert cli("sync", str(source), target, "--json").json()["skipped"] == 1
    make_old(source)
    assert cli("cp", "-r", "--keep-times", str(source), str(tmp_path / "kept")).code == 0
    assert cli("sync", str(source), str(tmp_path / "kept"), "--json").json()["skipped"] == 1


def test_sync_exact_keeps_times(cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path) -> None:
    write_tree(buckets / "b", {"a": b"1"})
    os.utime(buckets / "b" / "a", (1_000_000_000, 1_000_000_000))
    assert cli("sync", "--exact", "s3://b", str(tmp_path / "t"), "--json").json()["objects"] == 1
    copied = (tmp_path / "t" / "a").stat().st_mtime
    assert cli("sync", "--exact", "s3://b", str(tmp_path / "t"), "--json").json()["skipped"] == 1
    os.utime(tmp_path / "t" / "a", (copied + 5, copied + 5))
    assert cli("sync", "s3://b", str(tmp_path / "t"), "--json").json()["skipped"] == 1
    assert cli("sync", "--exact", "s3://b", str(tmp_path / "t"), "--json").json()["objects"] == 1


def test_patterns_choose_objects(cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path) -> None:
    write_tree(
        buckets / "b",
        {f"p/s-{i}.tar": b"x" * i for i in range(12)} | {"p/deep/s-1.tar": b"d", "p/readme": b"r"},
    )
    assert cli("cp", "s3://b/p/s-[0-9].tar", str(tmp_path / "a")).code == 0
    assert sorted(contents(tmp_path / "a")) == [f"s-{i}.tar" for i in range(10)]
    assert cli("cp", "s3://b/p/**.tar", str(tmp_path / "b")).code == 0
    assert len(contents(tmp_path / "b")) == 13
    assert "deep/s-1.tar" in contents(tmp_path / "b")
    assert cli("cp", str(tmp_path / "a" / "s-{1,2}.tar"), "s3://b/up/").code == 0
    assert sorted(contents(buckets / "b" / "up")) == ["s-1.tar", "s-2.tar"]
    assert len(cli("ls", "s3://b/p/s-?.tar").out.splitlines()) == 10
    assert len(cli("ls", "s3://b/p/**/s-1.tar", "--json").out.splitlines()) == 2
    assert "10 objects" in cli("ls", "--summarize", "s3://b/p/s-?.tar").out.splitlines()[-1]
    assert "would delete 2" in cli("rm", "--dry-run", "s3://b/up/*").out
    assert cli("rm", "-f", "s3://b/up/*", "--json").json() == {"deleted": 2}
    for url in ("s3://b*/x", "s3://b/[x"):
        done = cli("cp", url, str(tmp_path))
        assert (done.code, done.err.count("\n")) == (1, 1), done.err


def test_sync_takes_patterns_and_deletes_only_what_they_name(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    write_tree(buckets / "b", {"run/a.tar": b"1", "run/c": b"c", "run/x.tar/below": b"2"})
    before = {"b.tar": b"old", "c": b"mine", "d": b"mine"}
    target = write_tree(tmp_path / "t", before)
    none = cli("sync", "--delete", "s3://b/run/*.zip", str(target))
    assert (none.code, "nothing matches" in none.err) == (1, True), none.err
    assert contents(target) == before
    done = cli("sync", "--delete", "s3://b/run/*.tar", str(target), "--json").json()
    assert (done["objects"], done["deleted"]) == (2, 1)
    assert contents(target) == {"a.tar": b"1", "x.tar/below": b"2", "c": b"mine", "d": b"mine"}
    assert cli("cp", "-r", "s3://b/run/{a.tar,c}", str(tmp_path / "u")).code == 0
    assert contents(tmp_path / "u") == {"a.tar": b"1", "c": b"c"}


def test_a_missing_source_among_others_ends_the_copy(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    write_tree(buckets / "b", {"a": b"1"})
    done = cli("cp", "s3://b/a", "s3://b/typo", str(tmp_path / "t"))
    assert (done.code, "typo" in done.err) == (1, True)
    assert contents(tmp_path / "t") == {"a": b"1"}


def test_a_tree_is_not_copied_into_itself(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    tree = write_tree(tmp_path / "t", {"a": b"1", "sub/b": b"2"})
    write_tree(buckets / "b", {"d/a": b"1"})
    for arguments in (
        ["cp", "-r", str(tree), str(tree / "copy")],
        ["cp", "-r", "s3://b/d", "s3://b/d/copy"],
        ["sync", "--delete", str(tree / "sub"), str(tree)],
    ):
        done = cli(*arguments)
        assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert contents(tree) == {"a": b"1", "sub/b": b"2"}
    assert contents(buckets / "b") == {"d/a": b"1"}


def test_rm_removes_links_not_what_they_lead_to(cli: Any, tmp_path: Path) -> None:
    kept = write_tree(tmp_path / "kept", {"a": b"1", "deep/b": b"2"})
    tree = write_tree(tmp_path / "t", {"d/c": b"3"})
    (tree / "d" / "link").symlink_to(kept)
    (tree / "file-link").symlink_to(kept / "a")
    (tmp_path / "alone").symlink_to(kept)
    assert cli("rm", "-r", "--yes", str(tree), "--json").json() == {"deleted": 3}
    assert not tree.exists()
    assert cli("rm", "-r", "--yes", str(tmp_path / "alone"), "--json").json() == {"deleted": 1}
    assert not (tmp_path / "alone").is_symlink()
    assert contents(kept) == {"a": b"1", "deep/b": b"2"}


def test_a_copy_goes_on_when_its_reader_leaves(s3: simulator.Server, tmp_path: Path, buckets: Path) -> None:
    tree = {f"f{i:04}": b"x" for i in range(2000)}
    write_tree(buckets / "b", tree)
    command = [sys.executable, "-m", "headrace.cli", "cp", "-rv", "s3://b", str(tmp_path / "t")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert len(contents(tmp_path / "t")) == 2000


def test_names_that_are_not_utf8_are_reported_as_they_are(
    cli: Any, s3: simulator.Server, tmp_path: Path
) -> None:
    (tmp_path / "from").mkdir()
    with open(os.fsencode(tmp_path / "from") + b"/n\xff", "wb") as file:
        file.write(b"1")
    done = cli("cp", "-r", "-v", str(tmp_path / "from"), str(tmp_path / "to"))
    assert (done.code, "n\udcff" in done.out) == (0, True), done
    assert os.listdir(os.fsencode(tmp_path / "to")) == [b"n\xff"]


def test_one_endpoint_is_not_taken_for_two_services(cli: Any, tmp_path: Path) -> None:
    done = cli("cp", "s3://b/x", "gs://bucket/x", "--endpoint", "http://127.0.0.1:1", "--anonymous")
    assert (done.code, "--endpoint" in done.err) == (1, True), done.err


def test_presigned_urls_are_copied(cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path) -> None:
    from headrace import Store

    write_tree(buckets / "b", {"d/a b": b"123"})
    with Store("s3://b") as store:
        url = store.presign("d/a b")
    assert "?" in url
    assert cli("cp", url, str(tmp_path / "t") + "/").code == 0
    assert contents(tmp_path / "t") == {"a b": b"123"}
    missing = cli("cp", url.replace("a%20b", "none"), str(tmp_path) + "/")
    assert (missing.code, "Signature" in missing.err) == (1, False), missing.err


def test_several_sources_go_into_a_directory(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    write_tree(tmp_path, {"one/a": b"1", "two/a": b"2", "f": b"3"})
    assert cli("cp", str(tmp_path / "f"), str(tmp_path / "one" / "a"), "s3://b/files").code == 0
    assert contents(buckets / "b" / "files") == {"f": b"3", "a": b"1"}
    assert cli("cp", "-r", str(tmp_path / "one"), str(tmp_path / "two"), "s3://b/trees").code == 0
    assert contents(buckets / "b" / "trees") == {"one/a": b"1", "two/a": b"2"}
    refused = cli("cp", str(tmp_path / "one"), "s3://b/x")
    assert (refused.code, "-r" in refused.err) == (1, True)


def test_odd_keys(cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path) -> None:
    tree = {
        "a b": b"1",
        "50%25": b"2",
        "ünïcode/日本": b"3",
        "+plus&=?#": b"4",
        "'quote\"": b"5",
        "new\nline": b"6",
        "-dash": b"7",
    }
    write_tree(tmp_path / "from", tree)
    assert cli("cp", "-r", str(tmp_path / "from"), "s3://b/odd").code == 0
    assert contents(buckets / "b" / "odd") == tree
    assert cli("cp", "-r", "s3://b/odd", str(tmp_path / "back")).code == 0
    assert contents(tmp_path / "back") == tree


def test_names_that_cannot_be_files_fail_alone(cli: Any, tmp_path: Path) -> None:
    with _native_memory() as store:
        for key in ("ok", "up/../../evil", "file", "file/below", "mark/", "a//b"):
            store.put(key, b"x" if key != "mark/" else b"")
        job = _native.CopyJob(store._native, _local(tmp_path / "t"), [("", "", True, 0, "")])
        job.run()
        failed = {key: message for key, _, message in job.failures()}
    assert set(failed) == {"up/../../evil", "a//b", "file/below"} or set(failed) == {
        "up/../../evil",
        "a//b",
        "file",
    }
    assert ".." in failed["up/../../evil"]
    assert "ok" in contents(tmp_path / "t")
    assert not (tmp_path / "evil").exists()
    assert job.progress()["skipped"] == 1


def _native_memory() -> Any:
    from headrace import Store

    return Store(f"memory://copy-{random.getrandbits(60)}")


def _local(path: Path) -> Any:
    from headrace.store.store import open_native

    return open_native(path, 64 << 20)


def test_links_are_followed_and_circles_end(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    write_tree(tmp_path / "from", {"real/a": b"1"})
    (tmp_path / "from" / "file-link").symlink_to("real/a")
    (tmp_path / "from" / "real" / "up").symlink_to("..")
    assert cli("cp", "-r", str(tmp_path / "from"), "s3://b/links").code == 0
    assert contents(buckets / "b" / "links") == {"real/a": b"1", "file-link": b"1"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_named(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    write_tree(buckets / "b", {"x": b"1"})
    (tmp_path / "locked").mkdir(mode=0o500)
    done = cli("cp", "s3://b/x", str(tmp_path / "locked") + "/")
    assert (done.code, "locked" in done.err) == (1, True)


def test_a_full_disk_is_an_error_and_leaves_nothing(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    place = tmp_path / "small"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], capture_output=True
        ).returncode
    ):
        pytest.skip("cannot mount a small file system")
    try:
        write_tree(buckets / "b", {"large": bytes(30 << 20), "small": b"1"})
        done = cli("cp", "-r", "s3://b", str(place))
        assert (done.code, "large" in done.err) == (1, True), done.err
        assert "space" in done.err
        assert contents(place) == {"small": b"1"}
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_failures_are_listed_and_the_rest_is_copied(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path
) -> None:
    write_tree(buckets / "b", {f"k{i}": b"x" for i in range(20)})
    write_tree(tmp_path / "t", {"k3/in-the-way": b"", "k4/in-the-way": b""})
    done = cli("cp", "-r", "s3://b", str(tmp_path / "t"))
    assert done.code == 1
    assert "k3" in done.err
    assert "k4" in done.err
    assert "18 objects" in done.out
    assert len(contents(tmp_path / "t")) == 20


def test_faults_of_the_server_do_not_make_wrong_bytes(
    cli: Any, buckets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(5)
    tree = {f"f{i}": generator.randbytes(generator.choice((100, 50_000, 3 << 20))) for i in range(60)}
    write_tree(buckets / "b", tree)
    with simulator.Server(buckets, seed=3, behaviour={"throttle_rate": 0.02, "reset_rate": 0.02}) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        done = cli("cp", "-r", "s3://b", str(tmp_path / "t"), "--part-size", "256KiB", "--json")
    copied = contents(tmp_path / "t")
    assert all(copied[name] == tree[name] for name in copied)
    assert done.code == 0, done.err
    assert copied == tree


def test_stdin_and_stdout(s3: simulator.Server, buckets: Path) -> None:
    data = random.Random(1).randbytes(20 << 20)
    command = [sys.executable, "-m", "headrace.cli", "cp", "-", "s3://b/from-stdin"]
    assert subprocess.run(command, input=data, capture_output=True).returncode == 0
    assert (buckets / "b" / "from-stdin").read_bytes() == data
    out = subprocess.run(
        [sys.executable, "-m", "headrace.cli", "cp", "s3://b/from-stdin", "-"], capture_output=True
    )
    assert (out.returncode, out.stdout == data) == (0, True)
    part = subprocess.run(
        [sys.executable, "-m", "headrace.cli", "cat", "--range", "5-9", "s3://b/from-stdin"],
        capture_output=True,
    )
    assert part.stdout == data[5:10]
    for bad in ("x", "9-5", "-5"):
        failed = subprocess.run(
            [sys.executable, "-m", "headrace.cli", "cat", f"--range={bad}", "s3://b/from-stdin"],
            capture_output=True,
        )
        assert failed.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_copy_that_was_ended_goes_on(buckets: Path, tmp_path: Path, number: signal.Signals) -> None:
    generator = random.Random(2)
    tree = {
        "large": generator.randbytes(48 << 20),
        **{f"small/{i}": generator.randbytes(10_000) for i in range(500)},
    }
    write_tree(buckets / "b", tree)
    target = tmp_path / "t"
    with simulator.Server(buckets, profile="s3-standard", seed=1) as server:
        environment = {**os.environ, **server.environment()}
        options = ["cp", "-r", "--if-size-differ", "--part-size", "1MiB", "--concurrency", "4", "--json"]
        command = [*HEADRACE, *options, "s3://b", str(target)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        until = time.monotonic() + 100
        while time.monotonic() < until and not (
            target.exists() and any(p.stat().st_blocks > 4096 for p in target.glob(".headrace-*.part"))
        ):
            assert process.poll() is None, "it ended before it could be stopped"
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
        assert ("go on" in err) == (number == signal.SIGINT)
        assert not (target / "large").exists()
        again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["resumed_bytes"] > 0
    assert contents(target) == tree
    assert hidden(target) == []


def test_an_upload_that_was_ended_goes_on(buckets: Path, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(64 << 20)
    write_tree(tmp_path, {"large": data})
    with simulator.Server(buckets, profile="s3-standard", seed=1) as server:
        environment = {**os.environ, **server.environment()}
        options = ["cp", "--part-size", "5MiB", "--concurrency", "2", "--json"]
        command = [*HEADRACE, *options, str(tmp_path / "large"), "s3://b/large"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 100
        # Two parts are under way at a time: of so many bytes some are whole ones.
        while (
            time.monotonic() < until
            and sum(p.stat().st_size for p in buckets.rglob("*") if p.is_file()) < 20 << 20
        ):
            assert process.poll() is None, "it ended before it could be stopped"
            time.sleep(0.01)
        process.kill()
        process.communicate(timeout=60)
        again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["resumed_bytes"] > 0
    assert (buckets / "b" / "large").read_bytes() == data


def test_rm_removes_local_trees_with_their_directories(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "t", {"a/b/c": b"1", "d": b"2"})
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert cli("rm", "-r", str(tmp_path / "t")).code == 1
    assert "would delete 2" in cli("rm", "-r", "--dry-run", str(tmp_path / "t")).out
    assert cli("rm", "-r", "--yes", str(tmp_path / "t"), "--json").json() == {"deleted": 2}
    assert not (tmp_path / "t").exists()
    assert cli("rm", "-r", "--yes", str(tmp_path / "t")).code == 1


def test_urls_of_all_schemes_split() -> None:
    assert split_url("gs://b/k/x") == ("gs://b", "k/x")
    assert split_url("az://account/container/k/x") == ("az://account/container", "k/x")
    assert split_url("https://host:1/d/x") == ("https://host:1", "d/x")
    assert split_url("https://host/b/a%20b?X-Sig=1/2") == ("https://host?X-Sig=1/2", "b/a b")
    for url in ("s3://", "az://account"):
        with pytest.raises(InvalidArgumentError):
            split_url(url)


SAS = "?sv=2021-12-02&sr=c&sig=a%2Fb%3D"


@pytest.mark.parametrize(
    ("url", "root", "key"),
    [
        ("azure://account/container/k/x", "azure://account/container", "k/x"),
        ("az://account/container/k/x" + SAS, "az://account/container" + SAS, "k/x"),
        ("az://account/container" + SAS, "az://account/container" + SAS, ""),
        ("az://account/container/k?x", "az://account/container", "k?x"),
        (
            "abfss://container@account.dfs.core.windows.net/k/x" + SAS,
            "abfss://container@account.dfs.core.windows.net" + SAS,
            "k/x",
        ),
        (
            "https://account.blob.core.windows.net/container/k%20x" + SAS,
            "https://account.blob.core.windows.net/container" + SAS,
            "k x",
        ),
        (
            "https://account.blob.core.windows.net/container/k",
            "https://account.blob.core.windows.net/container",
            "k",
        ),
    ],
)
def test_a_sas_goes_with_the_container(url: str, root: str, key: str) -> None:
    assert split_url(url) == (root, key)
    with Stores(Where(anonymous="sig=" not in url)) as stores:  # contacts nobody
        store, found = stores.split(url)
        assert (found, "sig=" in store.url) == (key, False)
    if url.startswith("https:") or "?x" in url:
        return
    pattern = url.replace("k/x", "k/*.tar")
    glob = wildcard(pattern)
    assert (glob is not None) == ("*" in pattern)
    if glob is not None:
        assert split_wildcard(pattern, glob) == (root, "k/", "k/*.tar")


def test_messages_have_no_sas_and_keep_the_container() -> None:
    for url in ("az://a/c/k", "abfss://c@a.dfs.core.windows.net/k", "wasbs://c@a.blob.core.windows.net/k"):
        assert without_secrets(f"GET {url}{SAS}: no") == f"GET {url}?... no"
    assert without_secrets("s3://user:pass@b/k?x abfs://c:pass@a/k") == "s3://***@b/k?x abfs://***@a/k"


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("GET https://u:VE/RY@h:1/x?a@b: no", "GET https://***@h:1/x?... no"),
        ("s3://KEY:/SE/RET@b/k", "s3://***@b/k"),
        ("https://u:12ab?RY@h/x", "https://***@h/x"),
        ('"https://[::1]:80/a@b"', '"https://[::1]:80/a@b"'),
        ('"https://h:80": x@y', '"https://h:80": x@y'),
        ("s3://bucket: a@b", "s3://bucket: a@b"),
        ("https://h/a@b", "https://h/a@b"),
        ("hf://name@main", "hf://name@main"),
        ("hf://u:p@name", "hf://***@name"),
    ],
)
def test_passwords_may_have_slashes_that_nobody_escaped(text: str, public: str) -> None:
    assert without_secrets(text) == public


# --- the quick way ---


def lines_of(name: str) -> Iterator[list[str]]:
    """A line for each option of a command, and one with all of them."""
    rows = parameters(quick.COMMANDS[name])
    words = []
    for row in rows:
        if isinstance(row.given, Argument):
            words += [f"{row.name}{i}" for i in range(row.given.least if row.kind == list[str] else 1)]
    every: list[str] = []
    for row in rows:
        if isinstance(row.given, Option) and row.kind is not float:
            value = {bool: [], int: ["7"], str: ["text"]}.get(row.kind, ["many"])
            for flag in (*row.given.flags, *row.given.aliases):
                yield [name, *words, flag, *value]
            every += [row.given.flags[0], *value]
    yield [name, *words, *every]


def listed(value: Any) -> Any:
    """As the library hands it to a function: a list, None for an empty one."""
    return list(value) or None if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", quick.COMMANDS)
def test_both_parsers_understand_the_same(name: str) -> None:
    import typer.main

    from headrace.cli import app

    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    function = quick.COMMANDS[name]
    defaults = {row.name: row.default for row in parameters(function) if isinstance(row.given, Option)}
    turned_off = {name for name, default in defaults.items() if default is True}
    flags = {flag for row in command.params for flag in row.opts}
    lines = list(lines_of(name))
    assert len(lines) > 3 or name == "completion"
    for line in lines:
        parsed = quick.parse(line)
        assert parsed is not None, line
        names = [row.name for row in parameters(function) if isinstance(row.given, Argument)]
        here = {**defaults, **dict(zip(names, parsed[1], strict=True)), **parsed[2]}
        there = command.make_context(name, without_aliases(line[1:], flags)).params
        # To the library a flag that turns something off is one like others; the command turns it around.
        given = {key: not value if key in turned_off else listed(value) for key, value in there.items()}
        assert given == here, line


def test_quick_takes_plain_lines_only() -> None:
    parsed = quick.parse(["cp", "-rn", "a", "--include", "x", "--include=y", "--concurrency", "8", "b"])
    assert parsed is not None
    assert parsed[1:] == (
        [["a", "b"]],
        {"recursive": True, "no_clobber": True, "include": ["x", "y"], "concurrency": 8},
    )
    for line in (
        ["cp", "a"],
        ["cp", "--help"],
        ["cp", "a", "b", "--concurrency", "x"],
        ["cp", "a", "b", "--bogus"],
        ["pack", "a"],
        [],
        ["ls", "a", "b"],
    ):
        assert quick.parse(line) is None, line


def test_quick_commands_import_little(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"1"})
    code = (
        f"import sys\nfrom headrace.cli import main\ntry:\n main(['cp', {str(tmp_path / 'a')!r}, "
        f"{str(tmp_path / 'b')!r}])\nexcept SystemExit:\n pass\n"
    )
    code += (
        "print([m for m in ('numpy', 'typer', 'rich', 'click', 'concurrent.futures') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
