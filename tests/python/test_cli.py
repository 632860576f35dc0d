"""The command line: every command, with --json, on files and on S3."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import contents

import headrace as hr
from headrace import sim as simulator
from headrace.cli import main, reading
from headrace.cli.base import print_json


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, size in (("a.txt", 10), ("deep/b.txt", 20), ("deep/er/c.bin", 30 << 20), ("empty", 0)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.urandom(size))
    return root


def test_trees_go_up_and_come_back_equal(
    cli: Any, s3: simulator.Server, tree: Path, buckets: Path, tmp_path: Path
) -> None:
    up = cli("cp", "-r", str(tree), "s3://b/copy", "--json").json()
    assert (up["objects"], up["bytes"], up["skipped"]) == (4, 30 + (30 << 20), 0)
    assert contents(buckets / "b" / "copy") == contents(tree)
    assert cli("cp", "-r", "s3://b/copy", "s3://b/again").code == 0
    assert cli("cp", "-r", "s3://b/again", str(tmp_path / "back")).code == 0
    assert contents(tmp_path / "back") == contents(tree)


def test_cp_of_one_object_keeps_or_changes_the_name(
    cli: Any, s3: simulator.Server, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (tree / "a.txt").read_bytes()
    assert cli("cp", str(tree / "a.txt"), "s3://b/dir/").code == 0
    assert cli("cp", "s3://b/dir/a.txt", "s3://b/other.txt").code == 0
    monkeypatch.chdir(tmp_path)
    assert cli("cp", "s3://b/other.txt", ".").code == 0
    assert cli("cp", "s3://b/other.txt", "named.txt").code == 0
    assert (tmp_path / "other.txt").read_bytes() == (tmp_path / "named.txt").read_bytes() == data


def test_cp_replaces_unless_told_not_to(cli: Any, s3: simulator.Server, tree: Path, buckets: Path) -> None:
    target = buckets / "b" / "a.txt"
    target.write_bytes(b"old")
    assert cli("cp", "-n", str(tree / "a.txt"), "s3://b/", "--json").json()["skipped"] == 1
    assert target.read_bytes() == b"old"
    assert cli("cp", str(tree / "a.txt"), "s3://b/").code == 0
    assert target.read_bytes() == (tree / "a.txt").read_bytes()
    again = cli("cp", "-rn", str(tree), "s3://b/", "--json").json()
    assert (again["objects"], again["skipped"]) == (3, 1)


def test_a_failed_upload_leaves_nothing_visible(
    cli: Any, s3: simulator.Server, tree: Path, buckets: Path
) -> None:
    done = cli("cp", str(tree / "deep" / "er" / "c.bin"), "s3://no-bucket/c.bin")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "no-bucket" in done.err
    assert contents(buckets) == {}


def test_ls_shows_levels_and_everything(cli: Any, s3: simulator.Server, numbers: Path) -> None:
    assert cli("ls", "s3://b/").out.split()[-1] == "numbers/"
    lines = cli("ls", "-r", "s3://b/", "--json").out.splitlines()
    assert [json.loads(line)["key"] for line in lines] == [
        "numbers/index.json",
        *(f"numbers/shard.{i:05d}.mds" for i in range(10)),
    ]
    assert cli("ls", "-s", "s3://b/", "--json").json()["objects"] == 11
    assert "11 objects" in cli("ls", "-s", str(numbers)).out
    nothing = cli("ls", "s3://b/nothing")
    assert (nothing.code, nothing.err.count("\n")) == (1, 1)


def test_directories_of_a_level_are_no_objects(cli: Any, s3: simulator.Server, numbers: Path) -> None:
    (numbers.parent / "x").write_text("12")
    for root in ("s3://b/", str(numbers.parent)):
        done = cli("ls", "--summarize", root)
        assert ("numbers/" in done.out, done.out.splitlines()[-1]) == (True, "1 objects, 2 bytes (2 B)")
    (numbers.parent / "x").unlink()
    assert cli("ls", "--summarize", "s3://b/").out.endswith("0 objects, 0 bytes (0 B)\n")


def test_sums_below_a_pattern_have_the_names_of_their_directories(cli: Any, tmp_path: Path) -> None:
    for name in ("d/a/p/x", "d/b/p/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("12")
    lines = cli("du", "--depth", "1", f"{tmp_path}/d/*/p/x", "--json").out.splitlines()
    urls = [json.loads(line)["url"] for line in lines]
    assert urls == [f"{tmp_path}/d/a/", f"{tmp_path}/d/b/", f"{tmp_path}/d/*/p/x"]


def test_lines_of_one_object_are_of_one_version(
    cli: Any, s3: simulator.Server, buckets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (buckets / "b" / "x").write_bytes(b"a" * (20 << 20))

    def replace(line: dict[str, Any]) -> None:
        print_json(line)
        with hr.Store("s3://b") as store:
            store.put("x", b"b" * (20 << 20))

    monkeypatch.setattr(reading, "print_json", replace)
    done = cli("cat", "--json", "s3://b/x")
    assert (done.code, len(done.out.splitlines()), "s3://b/x" in done.err) == (1, 1, True)


def test_stat_and_cat(s3: simulator.Server, buckets: Path, capfdbinary: Any) -> None:
    (buckets / "b" / "x.bin").write_bytes(bytes(range(256)))
    with pytest.raises(SystemExit):
        main(["cat", "s3://b/x.bin", "--offset", "250"])
    assert capfdbinary.readouterr().out == bytes(range(250, 256))
    with pytest.raises(SystemExit):
        main(["stat", "s3://b/x.bin", "--json"])
    assert json.loads(capfdbinary.readouterr().out)["size"] == 256
    for arguments in (
        ["cat", "s3://b/x.bin", "--offset", "300"],
        ["cat", "s3://b/"],
        ["stat", "s3://b/none"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 1
        assert capfdbinary.readouterr().err.count(b"\n") == 1


def test_rm_asks_first(
    cli: Any, s3: simulator.Server, numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    refused = cli("rm", "-r", "s3://b/numbers")
    assert (refused.code, "--yes" in refused.err) == (1, True)
    assert numbers.exists()
    assert cli("rm", "s3://b/numbers/shard.00000.mds", "--json").json() == {"deleted": 1}
    assert cli("rm", "s3://b/numbers/shard.00000.mds").code == 1
    assert cli("rm", "-r", "s3://b/numbers", "--yes", "--json").json() == {"deleted": 10}
    assert not [p for p in numbers.rglob("*") if p.is_file()]


def test_inspect_index_and_order(cli: Any, s3: simulator.Server, numbers: Path, tmp_path: Path) -> None:
    shown = cli("inspect", "s3://b/numbers", "--shards", "--json").json()
    assert (shown["format"], shown["samples"], len(shown["shards"]), len(shown["fingerprint"])) == (
        "mds",
        1000,
        10,
        32,
    )
    assert "1,000 samples" in cli("inspect", "s3://b/numbers", "--shards").out
    written = cli("index", "s3://b/numbers", "--json").json()
    assert (numbers / "index.hri").stat().st_size == written["bytes"]
    assert cli("index", str(numbers), "--output", str(tmp_path / "i.hri")).code == 0
    order = [
        "order",
        "s3://b/numbers",
        "--batch-size",
        "16",
        "--world-size",
        "3",
        "--block-bytes",
        "64KiB",
        "--seed",
        "4",
        "--verify",
    ]
    report = cli(*order, "--json").json()
    assert report["verified"]["exactly_once"]
    assert len(set(report["first_ids"])) == 16
    assert "exactly once over 3 ranks" in cli(*order).out


def test_index_of_a_part_does_not_stand_for_the_folder(cli: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"x": 1}\n' * 3)
    assert cli("index", str(tmp_path), "--json").json()["samples"] == 6
    before = (tmp_path / "index.hri").read_bytes()
    for part in ("a.jsonl", "{a,b}.jsonl"):
        refused = cli("index", str(tmp_path / part))
        assert (refused.code, "--output" in refused.err) == (1, True), refused
        with hr.Dataset(tmp_path / part) as dataset, pytest.raises(hr.InvalidArgumentError, match="path="):
            dataset.write_index()
        assert cli("index", str(tmp_path / part), "--output", str(tmp_path / "part.hri")).code == 0
    assert (tmp_path / "index.hri").read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [["--format", "mds", "--compression", "zstd"], ["--format", "webdataset"], ["--tokens", "33"]],
)
def test_pack_makes_datasets_that_load(cli: Any, tmp_path: Path, arguments: list[str]) -> None:
    source = tmp_path / "files"
    source.mkdir()
    for i in range(20):
        (source / f"{i:02d}.txt").write_text(f"file {i} " * 10)
    packed = cli("pack", str(source), str(tmp_path / "out"), *arguments, "--json").json()
    assert packed["file_count"] == 20
    with hr.Dataset(tmp_path / "out") as dataset:
        assert len(dataset) == packed["sample_count"]
        first = dataset[0]
    if "--tokens" in arguments:
        assert bytes(first["tokens"][:6].astype("u1")) == b"file 0"
    else:
        assert next(v for v in first.values() if isinstance(v, bytes)).startswith(b"file 0")
    again = cli("pack", str(source), str(tmp_path / "out"), *arguments, "--json").json()
    assert again["resumed_shard_count"] == again["shard_count"]


def test_bench_measures(cli: Any, s3: simulator.Server, numbers: Path) -> None:
    report = cli(
        "bench",
        "fetch",
        "s3://b/numbers",
        "--part-bytes",
        "1KiB,2KiB",
        "--in-flight",
        "2,4",
        "--seconds",
        "0.1",
        "--json",
    ).json()
    rows = report["rows"]
    assert [(row["part_bytes"], row["in_flight"]) for row in rows] == [
        (1024, 2),
        (1024, 4),
        (2048, 2),
        (2048, 4),
    ]
    assert all(
        row["bytes"] > 0 and row["failures"] == 0 and row["first_byte_p50_us"] <= row["first_byte_p999_us"]
        for row in rows
    )
    assert [row["part_bytes"] for row in rows if row.get("is_knee")] == [1024, 2048]
    assert report["recommendation"]["max_in_flight"] in (2, 4)
    assert "GB/s" in cli("bench", "fetch", str(numbers), "--seconds", "0.1", "--in-flight", "1").out
    loaded = cli("bench", "load", "s3://b/numbers", "--batch-size", "10", "--json").json()
    assert (loaded["samples"], loaded["batches"]) == (1000, 100)
    assert "samples in" in cli("bench", "load", str(numbers), "--batches", "3").out
    assert cli("bench", "fetch", "s3://b/nothing").code == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sim_serves_until_told_to_stop(buckets: Path, number: signal.Signals) -> None:
    (buckets / "b" / "x").write_bytes(b"served")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "sim", str(buckets), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    served = json.loads(process.stdout.readline())
    with hr.Store(
        "s3://b", endpoint=served["endpoint"], access_key="headrace", secret_key="headrace-secret"
    ) as store:
        assert store.get("x") == b"served"
    with urllib.request.urlopen(served["endpoint"] + "/_headrace/stats") as answer:
        assert json.load(answer)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130 if number == signal.SIGINT else 0, "", "")


def test_sim_prints_what_to_export_and_names_bad_arguments(cli: Any, tmp_path: Path) -> None:
    for arguments, word in (
        (["sim", str(tmp_path / "none")], "none"),
        (["sim", str(tmp_path), "--profile", "perfect"], "perfect"),
        (["sim", str(tmp_path), "--set", "throttle_rate=nan"], "throttle_rate must be a finite number"),
        (["sim", str(tmp_path), "--certificate", "none.pem"], "none.pem"),
    ):
        done = cli(*arguments)
        assert (done.code, done.err.count("\n"), word in done.err) == (1, 1, True), done.err


def test_usage_errors_exit_with_2(cli: Any) -> None:
    for arguments in (["nonsense"], ["ls"], ["ls", "--bogus", "x"], ["order", "x", "--batch-size", "0"]):
        done = cli(*arguments)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert "--help" in done.err
    assert cli().code == 2


def test_every_command_has_help_with_examples_and_json(cli: Any) -> None:
    commands = [
        [c] for c in ("ls", "stat", "cat", "cp", "rm", "inspect", "pack", "index", "order", "sim")
    ] + [["bench", "fetch"], ["bench", "load"]]
    for command in commands:
        shown = cli(*command, "--help").out
        assert "Example" in shown, command
        assert "--json" in shown, command
    assert cli("version", "--json").json() == {"version": hr.__version__}


def test_an_unexpected_error_is_one_line(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.serve.console", lambda: 1 / 0)
    done = cli("version")
    assert (done.code, done.err.count("\n"), "report" in done.err) == (1, 1, True)


def test_output_to_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    command = (
        f"{sys.executable} -m headrace.cli cat {tmp_path / 'x'} | head -c 1 > {tmp_path / 'out'}; echo "
        f"${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_labels_and_manifests_of_raw_files_are_kept_in_the_index(cli: Any, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    for name in ("cat/1.jpg", "dog/2.jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    labelled = ["--labels", "folder"]
    assert cli("index", str(root), *labelled, "--json").json()["samples"] == 2
    with hr.Dataset(root) as dataset:
        assert [(row["key"], int(row["label"])) for row in dataset] == [("cat/1.jpg", 0), ("dog/2.jpg", 1)]
    assert cli("verify", str(root), *labelled, "--json").json()["ok"]
    (root / "list.jsonl").write_text('{"file_name": "dog/2.jpg", "caption": "a dog"}\n')
    listed = ["--manifest", "list.jsonl"]
    assert cli("index", str(root), *listed, "--json").json()["samples"] == 1
    assert cli("verify", str(root), *listed, "--json").json()["ok"]
    with hr.Dataset(root) as dataset:
        assert dataset[0]["caption"] == "a dog"
    wrong = cli("index", str(root), "--labels", "name")
    assert wrong.code != 0
    assert "folder" in wrong.err
