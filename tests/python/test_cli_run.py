"""Many commands in one process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import contents

from headrace import sim as simulator


def test_a_failure_stops_nothing_and_is_told(
    cli: Any, s3: simulator.Server, buckets: Path, tmp_path: Path
) -> None:
    (tmp_path / "a b").write_text("spaces")
    commands = tmp_path / "commands"
    commands.write_text(
        f"# comment\n\nheadrace cp '{tmp_path}/a b' s3://b/one  # and one behind\n"
        f"cp s3://b/none {tmp_path}\ncp s3://b/one s3://b/two\nfrobnicate\nrm -r s3://b/\nrm s3://b/one\n"
    )
    done = cli("run", "--workers", "1", str(commands))
    assert (done.code, contents(buckets / "b")) == (1, {"two": b"spaces"})
    assert f"{commands}:4: " in done.err
    assert f"{commands}:6: frobnicate" in done.err
    assert f"{commands}:7: " in done.err
    assert "--yes" in done.err
    assert "3 of 6 commands failed" in done.err


def test_a_hash_inside_a_word_is_no_comment(
    cli: Any, s3: simulator.Server, buckets: Path, tmp_path: Path
) -> None:
    for name in ("data#old/x", "data/x", "data#/x", "a #b", "c"):
        (buckets / "b" / name).parent.mkdir(exist_ok=True)
        (buckets / "b" / name).write_text(name)
    commands = tmp_path / "commands"
    commands.write_text(
        "rm -r --yes s3://b/data#old\n"
        "rm 's3://b/a #b' # it's one\n"
        "\t# rm s3://b/c\n"
        "rm -r --yes s3://b/data#\t#\n"
        'cp s3://b/"c"#d s3://b/e  #f\n'
        "cp s3://b/c s3://b/\\#g\n"
    )
    done = cli("run", "--workers", "1", str(commands))
    assert (done.code, f"{commands}:5: " in done.err, "1 of 5 commands failed" in done.err) == (1, True, True)
    assert contents(buckets / "b") == {"data/x": b"data/x", "c": b"c", "#g": b"c"}


def test_commands_from_stdin_run_beside_each_other(
    cli: Any, s3: simulator.Server, buckets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("x")
    lines = "".join(f"cp {tmp_path}/x s3://b/{number}\n" for number in range(200))
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert cli("run", "-", "--json").json() == {"commands": 200, "failed": 0}
    assert len(contents(buckets / "b")) == 200
    # One client: few connections, not one a command.
    assert s3.stats()["connections"] < 100


def test_options_hold_for_all_that_do_not_say_otherwise(
    cli: Any, sim: simulator.Server, tmp_path: Path
) -> None:
    (tmp_path / "buckets" / "b" / "x").write_text("x")
    lines = tmp_path / "lines"
    lines.write_text("cat s3://b/x\ncat --endpoint http://127.0.0.1:9 --timeout 0.2 s3://b/x\n")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sim.environment().items():
            if "ENDPOINT" not in name:
                patch.setenv(name, value)
        done = cli("run", "--endpoint", sim.endpoint, str(lines))
    assert (done.code, done.out, done.err.count(":2: ")) == (1, "x", 1), done


def test_mistakes_in_the_file_are_named(cli: Any, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    (tmp_path / "x").write_text("x")
    lines.write_text(f"cp {tmp_path}/x {tmp_path}/y\nls 'unclosed\ncp {tmp_path}/x {tmp_path}/z\n")
    done = cli("run", str(lines), "--json")
    assert (done.code, f"{lines}:2: " in done.err) == (1, True), done.err
    assert (json.loads(done.out), (tmp_path / "y").exists(), (tmp_path / "z").exists()) == (
        {"commands": 3, "failed": 1},
        True,
        True,
    )
    assert cli("run", str(tmp_path / "none")).code == 1
    lines.write_text(f"ls --frobnicate {tmp_path}\nrun x\n")
    done = cli("run", "-w", "1", str(lines))
    assert (done.code, "headrace ls --help" in done.err, ":2: run x" in done.err) == (1, True, True)


def test_ctrl_c_ends_all_of_them(s3: simulator.Server, buckets: Path, tmp_path: Path) -> None:
    (buckets / "b" / "large").write_bytes(bytes(400 << 20))
    lines = tmp_path / "lines"
    lines.write_text("".join(f"cp s3://b/large {tmp_path}/{number}\n" for number in range(100)))
    command = [sys.executable, "-m", "headrace.cli", "run", str(lines)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        assert process.wait(20) == 130
        assert time.monotonic() - started < 15


@pytest.mark.parametrize("line", ["cat s3://b/large", "cat --json s3://b/large", "cp s3://b/large -"])
def test_ctrl_c_ends_a_stream(s3: simulator.Server, buckets: Path, line: str) -> None:
    (buckets / "b" / "large").write_bytes(bytes(400 << 20))
    s3.set_behaviour(total_bytes_per_s=10e6)
    command = [sys.executable, "-m", "headrace.cli", "run", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line.encode())
        process.stdin.close()
        process.stdin = None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert (process.returncode, len(rest) < 200 << 20) == (130, True)


def test_an_object_stays_in_one_piece_between_lines_of_others(s3: simulator.Server, buckets: Path) -> None:
    data = b"z" * (24 << 20)
    (buckets / "b" / "large").write_bytes(data)
    for number in range(2000):
        (buckets / "b" / f"small-{number}").touch()
    lines = "cat s3://b/large\nls s3://b/small\n" * 5
    command = [sys.executable, "-m", "headrace.cli", "run", "-"]
    done = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True)
    assert done.stdout.count(data) == 5
    listed = done.stdout.replace(data, b"").splitlines()
    assert (len(listed), all(b"  0 small-" in line for line in listed)) == (10_000, True)
