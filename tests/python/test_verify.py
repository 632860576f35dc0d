"""Verification, manifests and comparison."""

from __future__ import annotations

import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace import _native, prepare
from headrace.verification import checks

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference"
needs_reference = pytest.mark.skipif(not REFERENCE.exists(), reason="the reference data is not here")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "headrace.cli", *arguments], capture_output=True, text=True)


def write_mds(root: Path, rows: list[dict[str, Any]], **options: Any) -> None:
    from streaming import MDSWriter

    with MDSWriter(
        out=str(root), columns={"id": "int", "text": "str"}, size_limit=1 << 14, **options
    ) as writer:
        for row in rows:
            writer.write(row)


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [{"id": i, "text": f"row {i} " * (i % 40)} for i in range(500)]


@needs_reference
@pytest.mark.parametrize(
    "name", ["all_encodings", "comp_none", "comp_zstd", "every_hash", "merged", "ndarray", "golden"]
)
def test_reference_sets_pass(name: str) -> None:
    report = hr.verify(REFERENCE / "mds" / name)
    assert report.ok, report.problems
    assert report.samples_ok == report.samples > 0


@needs_reference
def test_a_turned_bit_is_found_by_every_hash() -> None:
    report = hr.verify(REFERENCE / "mds" / "every_hash")
    assert report.digests_compared > 10
    report = hr.verify(REFERENCE / "mds" / "bad_hash")
    broken = json.loads((REFERENCE / "mds" / "bad_hash" / "expected.json").read_text())["broken_file"]
    assert {p.key for p in report.problems} == {broken}


def test_any_turned_bit_of_a_hashed_shard_is_found(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    write_mds(tmp_path / "good", rows, hashes=["xxh64"])
    assert hr.verify(tmp_path / "good").ok
    rng = random.Random(5)
    for turn in range(8):
        bad = tmp_path / f"bad{turn}"
        shutil.copytree(tmp_path / "good", bad)
        shard = rng.choice(sorted(bad.glob("*.mds")))
        data = bytearray(shard.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        shard.write_bytes(data)
        report = hr.verify(bad)
        assert not report.ok
        assert {p.key for p in report.problems} <= {shard.name, ""}


def test_a_damaged_or_stale_index_is_a_problem(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    for i in range(5):
        (root / f"{i}.dat").write_bytes(bytes([i]) * 100)
    with hr.Dataset(root, format="raw") as dataset:
        dataset.write_index()
    assert hr.verify(root, format="raw").ok
    index = (root / "index.hri").read_bytes()
    (root / "index.hri").write_bytes(index[:-20] + bytes([index[-20] ^ 1]) + index[-19:])
    assert [p.key for p in hr.verify(root, format="raw").problems] == ["index.hri"]
    (root / "index.hri").write_bytes(index)
    assert hr.verify(root, format="raw").ok
    (root / "3.dat").write_bytes(b"other")
    assert [p.key for p in hr.verify(root, format="raw").problems] == ["index.hri"]


def test_the_command_ends_with_1_and_writes_the_quarantine_list(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    write_mds(tmp_path / "set", rows, hashes=["sha1"])
    good = run("verify", str(tmp_path / "set"), "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["samples_ok"] == 500
    shard = tmp_path / "set" / "shard.00001.mds"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    listed = tmp_path / "bad.jsonl"
    bad = run("verify", str(tmp_path / "set"), "--quarantine", str(listed))
    assert bad.returncode == 1
    assert "shard.00001.mds" in bad.stdout
    with hr.Dataset(tmp_path / "set") as dataset:
        first, count = dataset.shards[1].first_sample, dataset.shards[1].sample_count
    (row,) = map(json.loads, listed.read_text().splitlines())
    assert (row["key"], row["position"], row["samples"]) == ("shard.00001.mds", first, count)
    assert f"{500 - count} of 500 samples good" in " ".join(bad.stdout.split())
    assert f"samples {first} to {first + count - 1}: " in " ".join(bad.stdout.split())
    with hr.Loader(tmp_path / "set", batch_size=10, quarantine=listed, memory="16MiB") as loader:
        replaced = sorted(id for batch in loader for id in batch.replaced.values())
    assert replaced == list(range(first, first + count))


def test_a_row_says_its_object_and_sample_once(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    write_mds(tmp_path / "set", rows)
    with hr.Dataset(tmp_path / "set") as dataset:
        dataset.write_index()
        shard = dataset.shards[1]
    path = tmp_path / "set" / shard.key
    before = path.stat()
    data = bytearray(path.read_bytes())
    begin = int.from_bytes(data[4:8], "little")
    data[begin : begin + 4] = b"\xff" * 4  # How long the text of its first sample is.
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = run("verify", str(tmp_path / "set"), "--use-index")
    line = " ".join(done.stdout.split()).partition(" /")[0]
    assert line.startswith(f"{shard.key}: sample {shard.first_sample}: column sizes"), done.stdout


def test_samples_that_several_problems_concern_count_once() -> None:
    ranges = [(-1, 0), (10, 20), (25, 1), (12, 3), (29, 5), (0, 1)]
    problems = [checks.Problem("a", first, "corrupt", "", count) for first, count in ranges]
    assert checks._count_bad(problems) == 1 + 20 + 4


def test_a_scan_that_fails_leaves_a_list_that_loaders_take(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    write_tars(root, 3)
    with hr.Dataset(root) as dataset:
        dataset.write_index()
    data = bytearray((root / "1.tar").read_bytes())
    data[:100] = b"\xff" * 100
    before = (root / "1.tar").stat()
    (root / "1.tar").write_bytes(data)
    os.utime(root / "1.tar", ns=(before.st_atime_ns, before.st_mtime_ns))
    listed = tmp_path / "bad.jsonl"
    done = run("verify", str(root), "--quarantine", str(listed))
    assert done.returncode == 1
    assert "not in" not in done.stderr
    with hr.Loader(root, batch_size=1, quarantine=listed, memory="16MiB") as loader:
        assert len(list(loader)) == 30


def test_the_index_of_a_folder_says_nothing_about_some_of_its_objects(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    write_tars(root, 3)
    with hr.Dataset(root) as dataset:
        dataset.write_index()
    assert hr.verify(root).ok
    for url, keys in ((root / "0.tar", None), (root / "{0..1}.tar", None), (root, ["2.tar"])):
        report = hr.verify(url, dataset_options={"keys": keys})
        assert report.ok, report.problems
        assert 0 < report.samples_ok < 30


def test_an_object_that_the_index_does_not_know_is_a_problem(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    write_tars(root, 3)
    with hr.Dataset(root) as dataset:
        dataset.write_index()
    (root / "3.tar").write_bytes((root / "2.tar").read_bytes())
    with hr.Dataset(root) as dataset:
        assert len(dataset) == 30
    assert [(p.key, p.code) for p in hr.verify(root).problems] == [("index.hri", "changed")]


def write_tars(root: Path, count: int) -> None:
    root.mkdir()
    for shard in range(count):
        with tarfile.open(root / f"{shard}.tar", "w") as tar:
            for i in range(10):
                info = tarfile.TarInfo(f"{shard}-{i}.txt")
                info.size = 4
                tar.addfile(info, io.BytesIO(b"text"))


def test_the_command_passes_the_shape_of_tokens_on(tmp_path: Path) -> None:
    (tmp_path / "flat.bin").write_bytes(bytes(range(256)) * 4)
    shape = ["--format", "tokens", "--tokens-per-sample", "32", "--token-dtype", "uint32"]
    done = run("verify", str(tmp_path), *shape, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples_ok"] == 8


def test_the_command_opens_what_index_opens(tmp_path: Path) -> None:
    write_tars(tmp_path / "tars", 2)
    data = (tmp_path / "tars" / "1.tar").read_bytes()
    (tmp_path / "tars" / "1.tar").write_bytes(data[: 512 * 6 + 100])
    one = run("verify", str(tmp_path / "tars"), "--key", "0.tar", "--json")
    assert (one.returncode, json.loads(one.stdout)["samples_ok"]) == (0, 10)
    assert run("verify", str(tmp_path / "tars")).returncode == 1
    lenient = run("verify", str(tmp_path / "tars"), "--lenient", "--json")
    assert (lenient.returncode, json.loads(lenient.stdout)["samples_ok"]) == (0, 13)


def test_the_command_opens_pickled_columns_when_told(tmp_path: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(tmp_path / "set"), columns={"x": "pkl"}) as writer:
        writer.write({"x": {1: 2}})
    refused = run("verify", str(tmp_path / "set"))
    assert refused.returncode == 1
    assert "allow_unsafe" in refused.stderr
    done = run("verify", str(tmp_path / "set"), "--allow-unsafe", "--json")
    assert (done.returncode, json.loads(done.stdout)["samples_ok"]) == (0, 1), done.stderr


def test_manifests_are_what_sha256sum_reads_and_writes(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    for i, name in enumerate(["a", "sub/b", "sub/with space", "odd\nname", "back\\slash"]):
        (root / name).write_bytes(bytes([i]) * (1000 * i))
    done = run("manifest", "create", str(root))
    assert done.returncode == 0, done.stderr
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "MANIFEST.sha256"], cwd=root, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    theirs = subprocess.run(
        ["sha256sum", "a", "sub/b", "sub/with space", "odd\nname", "back\\slash"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert checks.parse_manifest(theirs.stdout) == checks.parse_manifest(
        (root / "MANIFEST.sha256").read_text()
    )
    assert run("manifest", "check", str(root)).returncode == 0
    (root / "MANIFEST.sha256").unlink()
    found = subprocess.run(
        ["find", ".", "-type", "f", "-exec", "sha256sum", "{}", "+"], cwd=root, capture_output=True, text=True
    )
    (tmp_path / "of find").write_text(found.stdout)
    assert run("manifest", "check", str(root), str(tmp_path / "of find")).returncode == 0


def test_a_manifest_check_names_what_differs(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    digests, _ = hr.create_manifest(tmp_path)
    (tmp_path / "a").write_bytes(b"A")
    (tmp_path / "b").unlink()
    (tmp_path / "d").write_bytes(b"new")
    report = hr.check_manifest(tmp_path, digests)
    assert (report.different, report.missing, report.extra, report.matching) == (["a"], ["b"], ["d"], 1)


def test_manifests_of_what_patterns_leave(tmp_path: Path) -> None:
    """sha256sum over the files that find names so is the judge."""
    root = tmp_path / "tree"
    for name in ("a.bin", "b.txt", "tmp/c.bin", "sub/d.bin"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "tmp" / "dead").symlink_to("nowhere")
    chosen = ("--include", "*.bin", "--exclude", "tmp/**")
    theirs = subprocess.run(
        ["find", ".", "-name", "*.bin", "-not", "-path", "./tmp/*", "-exec", "sha256sum", "{}", "+"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    made = run("manifest", "create", str(root), *chosen, "-o", str(tmp_path / "sums"))
    assert made.returncode == 0, made.stderr  # what leads nowhere was not asked for
    sums = (tmp_path / "sums").read_text()
    assert checks.parse_manifest(sums) == checks.parse_manifest(theirs.stdout)
    # Of a manifest of everything the same part is compared: what is left out may differ.
    assert run("manifest", "create", str(root), "-o", str(tmp_path / "all")).returncode == 1
    (root / "b.txt").write_text("other")
    (root / "tmp" / "c.bin").unlink()
    (root / "tmp" / "new.bin").write_text("new")
    checked = run("manifest", "check", str(root), str(tmp_path / "all"), *chosen, "--json")
    assert json.loads(checked.stdout)["matching"] == 2, checked.stderr
    (root / "sub" / "d.bin").write_text("other")
    checked = run("manifest", "check", str(root), str(tmp_path / "all"), *chosen, "--json")
    assert (checked.returncode, json.loads(checked.stdout)["different"]) == (1, ["sub/d.bin"])


@pytest.mark.parametrize("command", ["create", "check"])
def test_a_manifest_of_nothing_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "a").write_text("a")
    assert run("manifest", "create", str(tmp_path)).returncode == 0
    done = run("manifest", command, str(tmp_path), "--exclude", "*")
    assert done.returncode == 1
    assert "nothing that --include and --exclude leave" in done.stderr


def list_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    listed = checks._objects
    gone = SimpleNamespace(key="gone", size=5, etag="")
    monkeypatch.setattr(checks, "_objects", lambda store: [*listed(store), gone])


def test_a_manifest_of_what_cannot_be_read_says_what_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    list_one_that_is_gone(monkeypatch)
    with pytest.raises(hr.errors.NotFoundError, match=r"^gone: .*\(1 object could not be read\)") as raised:
        hr.create_manifest(tmp_path)
    assert raised.value.key == "gone"


def test_a_manifest_check_says_why_an_object_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    digests, _ = hr.create_manifest(tmp_path)
    list_one_that_is_gone(monkeypatch)
    report = hr.check_manifest(tmp_path, {**digests, "gone": "0" * 64})
    assert (report.matching, report.unreadable) == (1, ["gone"])
    assert "gone" in report.reasons["gone"]


def test_a_manifest_is_made_with_little_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(5_000_000))
    assert hr.create_manifest(tmp_path, memory="256KiB") == hr.create_manifest(tmp_path)


@pytest.mark.parametrize(
    "text", ["short  a", "0" * 64 + "a", "0" * 64 + "  ", f"{'0' * 64}  a\n{'0' * 64}  a", "Z" * 64 + "  a"]
)
def test_bad_manifests_name_the_line(text: str) -> None:
    with pytest.raises(hr.errors.InvalidArgumentError, match=r"line [12]"):
        checks.parse_manifest(text)


def test_diff_of_equal_and_unequal_sets(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    write_mds(tmp_path / "a", rows)
    write_mds(tmp_path / "b", rows, compression="zstd")
    write_mds(
        tmp_path / "c",
        [{**row, "text": row["text"] + "!"} if row["id"] in (3, 400) else row for row in rows[:-1]],
    )
    write_mds(tmp_path / "d", rows[::-1])
    with (
        hr.Dataset(tmp_path / "a") as a,
        hr.Dataset(tmp_path / "b") as b,
        hr.Dataset(tmp_path / "c") as c,
        hr.Dataset(tmp_path / "d") as d,
    ):
        assert hr.diff(a, b).ok
        report = hr.diff(a, c)
        assert [x.position_a for x in report.differences] == [3, 400]
        assert (report.compared, report.different, report.only_a, report.only_b) == (499, 2, 1, 0)
        assert not hr.diff(a, d).ok
        assert hr.diff(a, d, key="id").ok
        keyed = hr.diff(a, c, key="id")
        assert (keyed.only_a, keyed.only_b, keyed.different) == (1, 0, 2)
    assert run("diff", str(tmp_path / "a"), str(tmp_path / "b")).returncode == 0
    assert run("diff", str(tmp_path / "a"), str(tmp_path / "c")).returncode == 1


def test_diff_of_a_dataset_and_its_pack_in_a_format_without_text(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    rows = [{"id": row["id"], "text": f"{row['id']} \u00e9"} for row in rows]
    write_mds(tmp_path / "a", rows)
    for changes in ("", "!"):
        texts = [{**row, "text": (row["text"] + changes).encode()} for row in rows]
        prepare.write(texts, tmp_path / f"b{changes}", columns={"id": "int", "text": "bytes"})
    assert hr.diff(tmp_path / "a", tmp_path / "b").ok
    assert hr.diff(tmp_path / "a", tmp_path / "b", key="text").equal == len(rows)
    assert hr.diff(tmp_path / "a", tmp_path / "b!").different == len(rows)


def test_diff_opens_urls(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    write_mds(tmp_path / "a", rows)
    write_mds(tmp_path / "d", rows[::-1])
    assert hr.diff(tmp_path / "a", str(tmp_path / "d"), key="id").ok
    with hr.Dataset(tmp_path / "a") as opened:
        assert hr.diff(opened, tmp_path / "a").ok
        assert opened[0], "one that was open stays open"
    with pytest.raises(hr.errors.NotFoundError):
        hr.diff(tmp_path / "a", tmp_path / "none")


KEYS = [
    ("json", [[1, 2], {"a": [1, {"b": None}]}, {"a": 1}, "x", 1.5, math.nan, [math.nan]]),
    ("float64", [0.5, math.nan, math.inf]),
    ("float32", [0.5, math.nan, math.inf]),
    ("ndarray:float32", [np.array([0.5, math.nan], np.float32), np.array([0.5], np.float32)]),
]


@pytest.mark.parametrize(("encoding", "keys"), KEYS)
def test_diff_pairs_by_keys_of_any_kind(tmp_path: Path, encoding: str, keys: list[Any]) -> None:
    rows = [{"key": key, "x": position} for position, key in enumerate(keys)]
    columns = {"key": encoding, "x": "int"}
    for name, written in (("a", rows), ("b", rows[::-1]), ("twice", [*rows, rows[-1]])):
        prepare.write(written, tmp_path / name, columns=columns)
    report = hr.diff(tmp_path / "a", tmp_path / "b", key="key")
    assert report.ok
    assert report.equal == len(keys)
    for pair in (("a", "twice"), ("twice", "a")):
        with pytest.raises(hr.errors.InvalidArgumentError, match="a key must come once"):
            hr.diff(*(tmp_path / name for name in pair), key="key")


def test_verify_says_what_it_compares(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """Digests of plain shards are compared by verify alone: docs/design/0031."""
    write_mds(tmp_path / "none", rows)
    plain = run("verify", str(tmp_path / "none")).stdout
    assert re.search(r"; 0 of (\d+) shards have digests: only lengths and structure were compared;", plain)
    write_mds(tmp_path / "hashed", rows, hashes=["sha1", "xxh64"])
    shards = sorted((tmp_path / "hashed").glob("*.mds"))
    assert f"{2 * len(shards)} stored digests compared" in run(
        "verify", str(tmp_path / "hashed")
    ).stdout.replace("\n", " ")
    data = bytearray(shards[0].read_bytes())
    data[-2] ^= 1  # Inside of a text.
    shards[0].write_bytes(data)
    with hr.Dataset(tmp_path / "hashed", index_cache="") as dataset:
        assert len(dataset.read(range(len(dataset)))) == len(rows)
    report = hr.verify(tmp_path / "hashed")
    assert [(p.key, p.code) for p in report.problems] == [(shards[0].name, "corrupt")]
    assert "sha1" in report.problems[0].message
    assert "xxh64" in report.problems[0].message


def test_every_row_of_a_lance_table_is_unpacked(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"text": [f"row {i} " + "abc" * 200 for i in range(20_000)]}), path)
    report = hr.verify(path)
    assert report.ok, report.problems
    assert report.samples_ok == report.samples == 20_000
    [file] = (path / "data").iterdir()
    data = bytearray(file.read_bytes())
    begin, end = len(data) // 3, len(data) * 3 // 4
    data[begin:end] = random.Random(1).randbytes(end - begin)
    file.write_bytes(data)
    report = hr.verify(path)
    assert not report.ok
    assert 0 < report.samples_ok == 20_000 - sum(p.samples for p in report.problems) < 20_000
    assert run("verify", str(path)).returncode == 1


def test_samples_that_nobody_looked_at_are_not_good() -> None:
    assert checks.VerifyReport("x", samples=3, samples_ok=3).ok
    assert not checks.VerifyReport("x", samples=3, samples_ok=2).ok


def test_hashing_reports_its_end(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 100_000)
    reports: list[tuple[int, ...]] = []
    with hr.Store(str(tmp_path)) as store:
        rows = [(info.key, info.size, info.etag or "") for info in store.list()]
        _native.digest_objects(
            store._native, rows, digests=["sha256"], workers=1, progress=lambda *now: reports.append(now)
        )
    assert reports[-1][:2] == (100_000, 100_000)


def test_what_could_not_be_checked_is_said_and_fails_when_asked(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    write_mds(tmp_path / "hashed", rows, hashes=["sha1"])
    write_tars(tmp_path / "tars", 3)
    prepare.convert(tmp_path / "hashed", tmp_path / "records", format="tfrecord")
    (tmp_path / "raw").mkdir()
    for i in range(3):
        (tmp_path / "raw" / f"{i}.bin").write_bytes(b"x")
    for name, unchecked, text in [
        ("hashed", 0, " shards have digests ("),
        ("tars", 3, "0 of 3 shards have digests: only lengths and structure were compared"),
        ("records", 0, "0 of 1 shards have digests, 1 have checksums, which were compared;"),
        ("raw", 3, "0 of 3 files have digests: only lengths and structure were compared"),
    ]:
        report = hr.verify(tmp_path / name)
        assert report.ok
        assert report.shards_unchecked == unchecked, name
        done = run("verify", str(tmp_path / name))
        assert done.returncode == 0
        assert text in done.stdout.replace("\n", " "), done.stdout
        strict = run("verify", str(tmp_path / name), "--require-digests", "--json")
        assert strict.returncode == (1 if unchecked else 0)
        assert json.loads(strict.stdout)["shards_unchecked"] == unchecked
        assert ("have neither digests nor checksums" in strict.stderr) == bool(unchecked)
