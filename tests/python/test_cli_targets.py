"""Targets of commands that write: what is spelled as a pattern is hardly meant as a name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import contents

from headrace import sim as simulator
from headrace.cli.base import refuse_pattern
from headrace.errors import InvalidArgumentError

SAS = "?sv=2024-11-04&sp=rw&sig=a%2Fb"


@pytest.mark.parametrize(
    "words",
    [
        ("cp", "t/a", "s3://b/*.sh"),
        ("cp", "t/a", "s3://b/dir?/a"),
        ("cp", "-r", "t", "s3://b/x[1]"),
        ("cp", "t/a", "new*/a"),
        ("mv", "t/a", "s3://b/*"),
        ("sync", "t", "s3://b/q*"),
        ("pack", "t", "s3://b/*"),
        ("ckpt", "cp", "t", "s3://b/*"),
        ("ckpt", "convert", "t", "s3://b/*", "--to", "dcp"),
    ],
)
def test_a_target_that_is_a_pattern_is_refused(
    cli: Any, s3: simulator.Server, tmp_path: Path, buckets: Path, monkeypatch: Any, words: tuple[str, ...]
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").write_text("a")
    monkeypatch.chdir(tmp_path)
    done = cli(*words)
    assert (done.code, "a target is one place" in done.err) == (1, True), done.err
    assert "--raw" in done.err
    assert contents(buckets) == {}
    assert contents(tmp_path / "t") == {"a": b"a"}
    if words[0] in ("cp", "mv", "sync"):
        assert cli(*words, "--raw").code == 0
        target = next(word for word in words if any(mark in word for mark in "*?["))
        written = {
            **contents(buckets / "b"),
            **{f"new*/{k}": v for k, v in contents(tmp_path / "new*").items()},
        }
        assert all(key.startswith(target.removeprefix("s3://b/")) for key in written)
        assert len(written) == 1


def test_so_is_that_of_a_stream(s3: simulator.Server, buckets: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "headrace.cli", "cp", "-", *words],
            input="new",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = run("s3://b/*")
    assert (done.returncode, "a target is one place" in done.stderr) == (1, True), done.stderr
    assert run("--raw", "s3://b/*").returncode == 0
    assert contents(buckets / "b") == {"*": b"new"}


def test_what_is_there_and_a_query_are_no_patterns(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "run[1]").mkdir()
    (tmp_path / "a").write_text("a")
    assert cli("cp", str(tmp_path / "a"), str(tmp_path / "run[1]" / "new")).code == 0
    assert contents(tmp_path / "run[1]") == {"new": b"a"}
    for url in ("https://h/c/a?X-Amz-Signature=1", f"az://a/c/k{SAS}", f"https://h/c/a{SAS}", "s3://b/{a}"):
        refuse_pattern(url)
    with pytest.raises(InvalidArgumentError, match="must be there already"):
        refuse_pattern(str(tmp_path / "run*"))
    for url in ("https://h/c/*?x=1", f"az://a/c/k*{SAS}", "az://a/c/k?", "file:///none/*"):
        with pytest.raises(InvalidArgumentError, match="a target is one place") as told:
            refuse_pattern(url)
        assert "sig=" not in str(told.value)
