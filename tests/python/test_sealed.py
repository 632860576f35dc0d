"""Encryption at rest: caches and checkpoints give the same under their key, and nothing without it."""

from __future__ import annotations

import json
import logging
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Done, where

import headrace as hr
from headrace import prepare
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.leftovers import find_leftovers
from headrace.checkpoint.place import Place

SAMPLES = 1000
MARK = b"these bytes are secret; "


def write_key(path: Path) -> str:
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return f"file:{path}"


@pytest.fixture
def key(tmp_path: Path) -> str:
    return write_key(tmp_path / "one.key")


@pytest.fixture
def other_key(tmp_path: Path) -> str:
    return write_key(tmp_path / "other.key")


def files_below(path: Path) -> list[Path]:
    return [each for each in path.rglob("*") if each.is_file()]


def shows(path: Path, text: bytes) -> bool:
    return any(text in each.read_bytes() for each in files_below(path))


# --- Caches ---


@pytest.fixture
def root(tmp_path: Path) -> Path:
    prepare.write(
        ({"x": i, "data": MARK * 20} for i in range(SAMPLES)),
        str(tmp_path / "root" / "b"),
        format="mds",
        shard_bytes="64KiB",
    )
    return tmp_path / "root"


def batches(loader: hr.Loader) -> list[list[int]]:
    return [batch["x"].tolist() for batch in loader]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_loader_reads_the_same_through_it(root: Path, tmp_path: Path, key: str, sealed: bool) -> None:
    cache = tmp_path / "cache"
    options: dict[str, Any] = {"batch_size": 32, "cache": cache, "cache_key": key if sealed else None}
    with simulator.Server(str(root)) as server:
        with hr.Loader("s3://b", batch_size=32, **where(server)) as plain:
            expected = batches(plain)
        with hr.Loader("s3://b", **options, **where(server)) as loader:
            assert batches(loader) == expected
        with hr.Loader("s3://b", **options, **where(server)) as loader:
            assert batches(loader) == expected
            assert loader.stats()["cache.hit_bytes"] > SAMPLES * 20 * len(MARK)
            assert loader.stats()["cache.corrupt"] == 0
    # Without a key the bytes are there to be found: the look itself works.
    assert shows(cache / "v1", MARK) is not sealed


def test_another_key_and_none_are_errors_that_name_the_key(
    root: Path, tmp_path: Path, key: str, other_key: str
) -> None:
    cache = tmp_path / "cache"
    with simulator.Server(str(root)) as server:
        hr.Store("s3://b", cache=cache, cache_key=key, **where(server)).close()
        own = hr.Cache(cache).usage().key_id
        assert len(own) == 16
        with pytest.raises(hr.DeniedError, match=f"is encrypted under the key {own}; the key given is"):
            hr.Store("s3://b", cache=cache, cache_key=other_key, **where(server))
        with pytest.raises(hr.DeniedError, match=f"under the key {own}; say with cache_key="):
            hr.Store("s3://b", cache=cache, **where(server))
        hr.Store("s3://b", cache=tmp_path / "plain", **where(server)).close()
        with pytest.raises(hr.InvalidArgumentError, match="was made without a key"):
            hr.Store("s3://b", cache=tmp_path / "plain", cache_key=key, **where(server))
        assert hr.Cache(tmp_path / "plain").usage().key_id == ""


def test_options_that_make_no_sense_say_so(tmp_path: Path, key: str) -> None:
    for options, message in (
        ({"cache_key": key}, "cache_key= is about the directory"),
        ({"cache_share": "group"}, "cache_share= is about the directory"),
        ({"cache": tmp_path / "c", "cache_share": "all"}, "cache_share='all'"),
        ({"cache": tmp_path / "c", "cache_key": ""}, "cache_key= names a key by"),
        ({"cache": [tmp_path / "c", "memcached://h"], "cache_key": key}, "would hold the same bytes"),
        ({"cache": tmp_path / "c", "cache_key": "env:NO_SUCH"}, "there is no such variable"),
    ):
        with pytest.raises(hr.InvalidArgumentError, match=message):
            hr.Store("s3://b", **options)  # type: ignore[arg-type]


def test_a_key_that_is_given_itself_is_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = secrets.token_hex(32)
    with caplog.at_level(logging.DEBUG), pytest.raises(hr.InvalidArgumentError) as raised:
        hr.Store("s3://b", cache=tmp_path / "c", cache_key=text)
    assert text not in str(raised.value)
    assert text not in caplog.text


def test_keys_come_from_the_environment_and_programs(
    root: Path, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = key.removeprefix("file:")
    monkeypatch.setenv("THE_KEY", Path(path).read_text())
    with simulator.Server(str(root)) as server:
        hr.Store("s3://b", cache=tmp_path / "c", cache_key=key, **where(server)).close()
        for source in ("env:THE_KEY", f"command:cat {path}"):
            hr.Store("s3://b", cache=tmp_path / "c", cache_key=source, **where(server)).close()
    os.chmod(path, 0o644)
    with pytest.raises(hr.DeniedError, match="others may read or change it"):
        hr.Store("s3://b", cache=tmp_path / "c", cache_key=key)


def told(done: Done, code: int = 0) -> Any:
    assert done.code == code, done.err
    return json.loads(done.out.splitlines()[-1])


def test_the_command_line_looks_into_it(
    root: Path, tmp_path: Path, key: str, cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, own = str(tmp_path / "cache"), ("--cache-key", key)
    with simulator.Server(str(root)) as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
        place = ("--endpoint", server.endpoint)
        assert cli("cache", "warm", "s3://b", "--cache", cache, *own, *place).code == 0
        assert "say with cache_key=" in cli("cache", "warm", "s3://b", "--cache", cache, *place).err
    usage = told(cli("cache", "stat", cache, "--json"))
    assert usage["extents"] > 0
    assert f"encrypted under the key {usage['key_id']}" in cli("cache", "stat", cache).out
    assert told(cli("cache", "ls", cache, "--json"))[0]["url"].startswith("s3://b/")
    assert told(cli("cache", "verify", cache, "--json"))["broken"] == 0
    assert told(cli("cache", "verify", cache, *own, "--json"))["broken"] == 0
    file = max(Path(cache).glob("v1/???/*"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    assert told(cli("cache", "verify", cache, *own, "--json"), 1)["broken"] == 1
    assert cli("cache", "free", cache, "--all").code == 0
    assert told(cli("cache", "stat", cache, "--json"))["extents"] == 0


def test_a_copy_and_what_is_lazy_use_the_key(root: Path, tmp_path: Path, key: str) -> None:
    with simulator.Server(str(root)) as server:
        for mode in ("copy", "lazy"):
            cache = tmp_path / mode
            with hr.Loader(
                "s3://b", batch_size=32, cache=cache, cache_mode=mode, cache_key=key, **where(server)
            ) as loader:
                batches(loader)
            assert hr.Cache(cache).usage().key_id
            assert not shows(cache / "v1", MARK)


def test_a_shared_cache_is_its_groups(root: Path, tmp_path: Path) -> None:
    cache, before = tmp_path / "cache", os.umask(0o077)
    try:
        with simulator.Server(str(root)) as server:
            with hr.Store("s3://b", cache=cache, cache_share="group", **where(server)) as store:
                store.get("index.json")
            hr.Cache(cache).pin("s3://b/")
            hr.Cache(tmp_path / "own", create=True)
            with pytest.raises(hr.InvalidArgumentError, match="not shared with its group"):
                hr.Cache(tmp_path / "own", share="group")
    finally:
        os.umask(before)
    for path in (cache, *cache.rglob("*")):
        expected = 0o2770 if path.is_dir() else 0o660
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


# --- Checkpoints ---


def state(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "weights": np.frombuffer(MARK * 5000, np.uint8).copy(),
        "arrays": [rng.random((300, 70)), np.arange(7), np.zeros((0, 3)), np.float64(3).reshape(())],
        "secret_name": "secret text",
    }


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    arrays = zip((one["weights"], *one["arrays"]), (two["weights"], *two["arrays"]), strict=True)
    return one["secret_name"] == two["secret_name"] and all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays
    )


def save(url: Any, key: str | None, *steps: int, **options: Any) -> None:
    with Checkpointer(url, memory="64MiB", encryption_key=key, **options) as ckpt:
        for step in steps:
            ckpt.save(step, state(step), metadata={"loss": 1.5}).result()


def test_checkpoints_come_back_and_show_nothing(tmp_path: Path, key: str) -> None:
    save(tmp_path / "plain", None, 1)
    save(tmp_path / "run", key, 1, 2)
    for text in (MARK, b"secret", b"weights", b"loss", b"data_offsets"):
        assert shows(tmp_path / "plain", text)
        assert not shows(tmp_path / "run", text)
    with Checkpointer(tmp_path / "run", encryption_key=key) as ckpt:
        assert same(ckpt.load(), state(2))
        assert same(ckpt.load(1), state(1))
        into = {"arrays": [np.zeros((300, 70))]}
        ckpt.load(1, into=into, partial=True)
        assert np.array_equal(into["arrays"][0], state(1)["arrays"][0])
        assert dict(ckpt.info(1).metadata) == {"loss": 1.5}
        ckpt.verify(1)


def test_on_a_store_and_from_a_local_disk(tmp_path: Path, key: str) -> None:
    (tmp_path / "bucket").mkdir()
    with simulator.Server(str(tmp_path)) as server:
        save("s3://bucket/run", key, 1, part_bytes=5 << 20, check="read", **where(server))
        save("s3://bucket/late", key, 1, 2, local=tmp_path / "near", part_bytes=5 << 20, **where(server))
        for run in ("run", "late"):
            with Checkpointer(f"s3://bucket/{run}", encryption_key=key, **where(server)) as ckpt:
                assert same(ckpt.load(1), state(1))
    for place in (tmp_path / "bucket", tmp_path / "near"):
        assert not shows(place, MARK)


def test_a_wrong_key_is_an_error_and_no_older_checkpoint(tmp_path: Path, key: str, other_key: str) -> None:
    run = tmp_path / "run"
    save(run, key, 1, 2)
    for given, message in (
        (
            None,
            "under the key [0-9a-f]{16}; say where that is: encryption_key=, --encryption-key$",
        ),
        (other_key, "is encrypted under the key [0-9a-f]{16}; the key given is [0-9a-f]{16}"),
    ):
        with Checkpointer(run, encryption_key=given) as ckpt:
            for step in (None, 1):
                with pytest.raises(hr.DeniedError, match=message):
                    ckpt.load(step)
            with pytest.raises(hr.DeniedError, match=message):
                ckpt.save(3, state(3))
    save(tmp_path / "plain", None, 1)
    with Checkpointer(tmp_path / "plain", encryption_key=key) as ckpt:
        with pytest.raises(hr.DeniedError, match="is not encrypted, and a key was given"):
            ckpt.load()
        with pytest.raises(hr.DeniedError, match="is not encrypted"):
            ckpt.save(2, state(2))
    with Checkpointer(run, encryption_key=key) as ckpt:
        assert ckpt.steps() == [1, 2]
        assert same(ckpt.load(), state(2))


def test_every_changed_byte_is_found(tmp_path: Path, key: str) -> None:
    run = tmp_path / "run"
    save(run, key, 1)
    rng = np.random.default_rng(1)
    with Checkpointer(run, encryption_key=key) as ckpt:
        for path in (*run.glob("steps/*"), *run.glob("saves/*/*")):
            good = path.read_bytes()
            for at in (0, 20, len(good) - 1, *rng.integers(0, len(good), 5).tolist()):
                if path.suffix == ".safetensors" and 40 <= at < 4096:
                    continue  # Zeros that say nothing.
                changed = bytearray(good)
                changed[at] ^= 0x10
                path.write_bytes(changed)
                with pytest.raises((hr.CorruptError, hr.DeniedError)):
                    ckpt.load(1)
            path.write_bytes(good)
        assert same(ckpt.load(1), state(1))


def test_files_of_another_save_are_not_taken(tmp_path: Path, key: str) -> None:
    """Everything in them is authentic, but not of this checkpoint."""
    run = tmp_path / "run"
    save(run, key, 1, 2)
    first, second = sorted((run / "saves").iterdir())
    for suffix in (".index", ".safetensors"):
        target = second / f"00000{suffix}"
        good = target.read_bytes()
        target.write_bytes((first / f"00000{suffix}").read_bytes())
        with Checkpointer(run, encryption_key=key) as ckpt, pytest.raises(hr.CorruptError):
            ckpt.load(2)
        target.write_bytes(good)
    (run / "steps" / "000000000002").write_bytes((run / "steps" / "000000000001").read_bytes())
    with Checkpointer(run, encryption_key=key) as ckpt, pytest.raises(hr.CorruptError, match="of step 1"):
        ckpt.load(2)


def test_a_state_that_has_not_changed_is_still_told(
    tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpointer(tmp_path / "run", encryption_key=key) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state(1)).result()
    assert "bit for bit" in caplog.text


def test_readers_of_safetensors_refuse_the_files(tmp_path: Path, key: str) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    save(tmp_path / "run", key, 1)
    (path,) = (tmp_path / "run").glob("saves/*/*.safetensors")
    with pytest.raises(Exception, match=r"(?i)header"):
        safetensors.load_file(path)


def test_the_command_line_takes_the_key(tmp_path: Path, key: str, cli: Callable[..., Done]) -> None:
    run, copy, own = str(tmp_path / "run"), str(tmp_path / "copy"), ("--encryption-key", key)
    save(run, key, 1, 2)
    assert [row["step"] for row in told(cli("ckpt", "ls", run, *own, "--json"))["checkpoints"]] == [1, 2]
    without = cli("ckpt", "ls", run)
    assert without.code == 1
    assert "is encrypted under the key" in without.err
    assert told(cli("ckpt", "info", run, "1", *own, "--json"))["metadata"] == {"loss": 1.5}
    assert cli("ckpt", "verify", run, "1", *own).code == 0
    assert told(cli("ckpt", "diff", run, "1", "2", *own, "--json"), 1)["equal_arrays"] == 3
    out = tmp_path / "out.npy"
    assert cli("ckpt", "cat", run, "1", "arrays.0", "-o", str(out), *own).code == 0
    assert np.array_equal(np.load(out), state(1)["arrays"][0])
    assert cli("ckpt", "cp", run, copy, *own).code == 0
    with Checkpointer(copy, encryption_key=key) as ckpt:
        assert same(ckpt.load(2), state(2))
    assert cli("ckpt", "gc", run, "--dry-run", *own).code == 0
    (data,) = Path(run).glob("saves/*-000000000001-*/*.safetensors")
    changed = bytearray(data.read_bytes())
    changed[5000] ^= 1
    data.write_bytes(changed)
    verified = cli("ckpt", "verify", run, "1", *own)
    assert verified.code == 1
    assert "arrays.0: " in verified.out
    assert "do not match their tag" in verified.out


def test_without_the_key_nothing_is_swept(tmp_path: Path, key: str) -> None:
    """What cannot be read names files that must stay."""
    run = tmp_path / "run"
    save(run, key, 1)
    before = {path: path.read_bytes() for path in files_below(run)}
    place = Place(hr.Store(run))
    with pytest.raises(hr.DeniedError):
        list(place.orphans(10**6))
    with pytest.raises(hr.DeniedError):
        find_leftovers(place, 0.0)
    place.close()
    assert {path: path.read_bytes() for path in files_below(run)} == before


def test_through_dcp(tmp_path: Path, key: str) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    from headrace.checkpoint.dcp import Reader, Writer

    saved = {"w": torch.arange(100_000, dtype=torch.float32), "secret_name": "secret text"}
    run = tmp_path / "run"
    dcp.save(saved, storage_writer=Writer(str(run), encryption_key=key), no_dist=True)
    assert not shows(run, b"secret")
    into = {"w": torch.zeros(100_000), "secret_name": ""}
    dcp.load(into, storage_reader=Reader(str(run), encryption_key=key), no_dist=True)
    assert torch.equal(into["w"], saved["w"])
    assert into["secret_name"] == "secret text"
