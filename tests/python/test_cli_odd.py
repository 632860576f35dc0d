"""Commands in odd places: streams that are closed, directories that may not be read, disks that are full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace import sim as simulator

HEADRACE = [sys.executable, "-m", "headrace.cli"]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_closed_streams(tmp_path: Path, s3: simulator.Server, buckets: Path) -> None:
    (buckets / "b" / "x").write_text("over the wire")
    line = f"'{sys.executable}' -m headrace.cli"
    # No file or socket of the copy may have the number of a stream, and what goes there.
    for streams in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        target = tmp_path / "copied"
        done = run("sh", "-c", f"{line} -v cp -v s3://b/x '{target}' {streams}")
        assert (done.returncode, target.read_text()) == (0, "over the wire"), done.stderr
        target.unlink()
        assert run("sh", "-c", f"{line} ls s3://b {streams}").returncode == 0
        failed = run("sh", "-c", f"{line} ls s3://none {streams}")
        assert (failed.returncode, "Traceback" in failed.stderr) == (1, False), failed.stderr


def test_options_of_a_copy_hold_for_stdin(s3: simulator.Server, buckets: Path) -> None:
    def stream(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HEADRACE, "cp", "-", "s3://b/x", *words],
            input="new",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def content() -> str | None:
        return (buckets / "b" / "x").read_text() if (buckets / "b" / "x").exists() else None

    done = stream("--dry-run")
    assert (done.returncode, done.stdout, content()) == (0, "would copy - -> s3://b/x\n", None), done.stderr
    assert (stream("-n", "--json").returncode, content()) == (0, "new")
    (buckets / "b" / "x").write_text("old")
    for words in (("-n",), ("-n", "--dry-run")):
        done = stream(*words)
        assert (done.returncode, "exists: skipped" in done.stderr, content()) == (0, True, "old"), done
    done = stream("--if-size-differ")
    assert (done.returncode, "--if-size-differ" in done.stderr, content()) == (1, True, "old")
    done = stream("--memory", "1MiB")
    assert (done.returncode, "the memory does not hold one" in done.stderr, content()) == (1, True, "old")
    assert (stream().returncode, content()) == (0, "new")
    done = run(*HEADRACE, "cp", "--dry-run", "s3://b/x", "-")
    assert (done.returncode, done.stdout) == (0, "would copy s3://b/x -> -\n")


def test_a_full_output_is_named() -> None:
    done = run("sh", "-c", f"'{sys.executable}' -m headrace.cli version > /dev/full")
    assert (done.returncode, done.stderr) == (1, "headrace: the output: No space left on device\n")


def test_a_directory_that_may_not_be_read_is_listed(tmp_path: Path) -> None:
    """Such as lost+found."""
    (tmp_path / "data" / "lost+found").mkdir(parents=True)
    (tmp_path / "data" / "x").write_text("x")
    (tmp_path / "data" / "lost+found").chmod(0)
    as_others = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything")
        as_others = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    try:
        listed = run(*as_others, *HEADRACE, "ls", f"{tmp_path}/data/")
        assert listed.returncode == 0, listed.stderr
        assert [row.split()[-1] for row in listed.stdout.splitlines()] == ["lost+found/", "x"]
        # What a copy or a sum would leave out is an error.
        for words in (("ls", "-r"), ("du",), ("cp", "-r", "--dry-run")):
            done = run(
                *as_others, *HEADRACE, *words, f"{tmp_path}/data/", *(["/none"] if "cp" in words else [])
            )
            assert (done.returncode, "lost+found/: Permission denied" in done.stderr) == (1, True), (
                done.stderr
            )
    finally:
        (tmp_path / "data" / "lost+found").chmod(0o700)


def test_a_manifest_is_no_sample(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a.bin", "b.bin"):
        (tmp_path / "data" / name).write_text(name)
    with hr.Dataset(tmp_path / "data", format="raw") as before:
        assert run(*HEADRACE, "manifest", "create", str(tmp_path / "data")).returncode == 0
        with hr.Dataset(tmp_path / "data", format="raw") as after:
            assert (len(after), after.fingerprint) == (2, before.fingerprint)
    assert run(*HEADRACE, "manifest", "check", str(tmp_path / "data")).returncode == 0
    (tmp_path / "empty").mkdir()
    done = run(*HEADRACE, "manifest", "create", str(tmp_path / "empty"))
    assert (done.returncode, list((tmp_path / "empty").iterdir())) == (1, []), done.stdout


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "small").write_bytes(bytes(1 << 20))
    (tmp_path / "files" / "large").write_bytes(bytes(40 << 20))
    if run("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)).returncode != 0:
        pytest.skip("needs to mount a tmpfs")
    try:
        for name in ("small", "large"):
            done = run(*HEADRACE, "cp", str(tmp_path / "files" / name), f"{disk}/")
            assert done.returncode == 1
            assert "No space left on device" in done.stderr
            assert str(disk) in done.stderr, "where there is no room"
            assert list(disk.iterdir()) == []
    finally:
        run("umount", str(disk))
