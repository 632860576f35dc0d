"""Completion: what words may become, and that the script of bash brings it to the shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import sim as simulator


@pytest.fixture
def keys(buckets: Path) -> Path:
    for name in ("train/a", "train/b", "trains", "with space/x"):
        (buckets / "b" / name).parent.mkdir(parents=True, exist_ok=True)
        (buckets / "b" / name).write_text(name)
    (buckets / "bucket").mkdir()
    return buckets


def test_commands_and_options(cli: Any) -> None:
    assert set(cli("__complete", "c").out.split()) == {"cat", "cp", "cache", "ckpt", "completion"}
    assert cli("__complete", "bench", "l").out.split() == ["load"]
    assert cli("__complete", "bench", "load", "--sw").out.split() == ["--sweep"]
    assert "--no-verify-tls" in cli("__complete", "ls", "--").out.split()
    assert cli("__complete", "cp", "./").out == ""


def test_buckets_and_keys(cli: Any, s3: simulator.Server, keys: Path) -> None:
    def found(*words: str) -> list[str]:
        lines: list[str] = cli("__complete", *words).out.splitlines()
        return lines

    assert found("ls", "s3://") == ["s3://b/", "s3://bucket/"]
    assert found("ls", "s3://bu") == ["s3://bucket/"]
    assert found("cp", "-r", "s3://b/tr") == ["s3://b/train/", "s3://b/trains"]
    assert found("cp", "s3://b/train/") == ["s3://b/train/a", "s3://b/train/b"]
    assert found("ls", "--anonymous", "s3://b/tr") == []
    assert found("ls", "--endpoint=http://127.0.0.1:9", "s3://b/tr") == []


def test_the_script_of_bash(s3: simulator.Server, keys: Path, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "headrace"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace.cli "$@"\n')
    command.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(
        "compopt() { :; }\nsource <(headrace completion bash)\n"
        'for COMP_LINE in "$@"; do COMP_POINT=${#COMP_LINE}; _headrace; echo "${COMPREPLY[*]}"; done\n'
    )
    env = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    lines = ["headrace sy", "headrace cp --fl", "headrace cp s3://b/tr", "headrace cp s3://b/wi"]
    done = subprocess.run(["bash", str(script), *lines], capture_output=True, text=True, env=env)
    # Of a word with a colon readline wants what comes after it.
    assert done.stdout.splitlines() == ["sync", "--flatten", "//b/train/ //b/trains", r"//b/with\ space/"], (
        done
    )


def test_scripts_of_other_shells(cli: Any) -> None:
    for shell in ("zsh", "fish"):
        assert "headrace __complete" in cli("completion", shell).out
    assert cli("completion", "csh").code == 1
