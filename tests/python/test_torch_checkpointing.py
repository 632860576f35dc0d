"""Meta's torch_checkpointing over our storage: in directories and in the simulator."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import where

pytest.importorskip("torch_checkpointing")
torch = pytest.importorskip("torch")

from torch_checkpointing import CheckpointManager  # noqa: E402
from torch_checkpointing.config import SyncCheckpointSaverConfig  # noqa: E402
from torch_checkpointing.storage.base_storage import ReadArgs  # noqa: E402

import headrace as hr  # noqa: E402
from headrace import sim as simulator  # noqa: E402
from headrace.checkpoint.torch_checkpointing import Storage, StorageConfig  # noqa: E402


@pytest.fixture(params=["directory", "s3"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageConfig]:
    if request.param == "s3":
        yield StorageConfig("s3://b/run", where(request.getfixturevalue("s3")))
    else:
        (tmp_path / "run").mkdir()
        yield StorageConfig(str(tmp_path / "run"))


@pytest.fixture
def storage(config: StorageConfig) -> Storage:
    return config.create_storage()


@pytest.fixture
def objects(s3: simulator.Server) -> Storage:
    return StorageConfig("s3://b/run", where(s3)).create_storage()


def fill(storage: Storage, directory: str, *names: str) -> None:
    for name in names:
        storage.mkdir(Path(directory, name).parent)
        storage.write(Path(directory, name), name.encode())


def tree(storage: Storage, directory: str) -> dict[str, bytes]:
    out = {}
    for name in storage.ls(Path(directory)):
        path = Path(directory, name)
        out |= tree(storage, str(path)) if storage.isdir(path) else {str(path): storage.read(path)}
    return out


def state(number: float) -> dict[str, Any]:
    return {"w": torch.full((300, 70), number), "b": torch.full((7,), number, dtype=torch.bfloat16)}


# --- Through its manager ---


@pytest.mark.parametrize("synchronous", [True, False])
def test_what_is_saved_is_loaded(config: StorageConfig, synchronous: bool) -> None:
    made = CheckpointManager.Config(storage_config=config)
    if synchronous:
        made.save = SyncCheckpointSaverConfig()
    manager = CheckpointManager(made)
    for step in (1, 2):
        future = manager.save(f"step-{step}", {"model": state(step), "step": step})
        if future is not None:
            future.result()
    for step in (1, 2):
        got = manager.load(f"step-{step}", into={"model": state(0), "step": 0})
        assert got["step"] == step
        assert all(torch.equal(got["model"][name], value) for name, value in state(step).items())
    storage = config.create_storage()
    assert sorted(storage.ls(Path())) == ["step-1", "step-2"]
    with pytest.raises(FileNotFoundError, match="step-3"):
        manager.load("step-3", into={"step": 0})
    manager.close()


# --- Files ---


def test_files_are_written_read_and_deleted(storage: Storage) -> None:
    path = Path("/a/b")
    storage.mkdir(path.parent)
    with storage.stream_write(path) as out:
        out.write(b"one")
        out.write(torch.arange(3, dtype=torch.int32).numpy())
    expected = b"one" + torch.arange(3, dtype=torch.int32).numpy().tobytes()
    assert storage.read(path) == storage.read(Path("a/b")) == expected
    assert storage.getsize(path) == len(expected)
    with storage.stream_read(path, ReadArgs(pre_read_full_file=False)) as file:
        assert file.seek(3) == 3
        into = bytearray(4)
        assert file.readinto(into) == 4
        assert bytes(into) == expected[3:7]
        assert file.tell() == 7
        assert file.read() == expected[7:]
    storage.write(path, memoryview(b"anew"))
    assert storage.read(path) == b"anew"
    storage.delete(path)
    assert not storage.exists(path)
    for call in (storage.read, storage.getsize, storage.delete):
        with pytest.raises(FileNotFoundError):
            call(path)


def test_a_file_that_was_not_closed_is_not_there(storage: Storage) -> None:
    storage.mkdir(Path("a"))
    with pytest.raises(TypeError), storage.stream_write(Path("a/b")) as out:
        out.writelines([b"half", None])
    assert not storage.exists(Path("a/b"))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_file_of_another_size_is_not_read(storage: Storage, at_once: bool) -> None:
    fill(storage, "a", "b")
    said = ReadArgs(pre_read_full_file=at_once, known_size_bytes=2)
    with pytest.raises(OSError, match="has 1 bytes, and 2 were expected"):
        storage.stream_read(Path("a/b"), said)
    said.known_size_bytes = 1
    assert storage.stream_read(Path("a/b"), said).read() == b"b"


@pytest.mark.parametrize("path", ["s3://b/run/x", "../x", "a/../../x"])
def test_paths_lie_below_the_url(storage: Storage, path: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="expected a path below"):
        storage.exists(Path(path))


def test_paths_are_told_as_urls(storage: Storage, config: StorageConfig) -> None:
    assert storage.remap_path(Path("/a/b")) == f"{config.url}/a/b"
    assert storage.remap_path(Path("/")) == config.url


def test_a_config_goes_to_other_processes(config: StorageConfig) -> None:
    assert pickle.loads(pickle.dumps(config)) == config


# --- Directories ---


def test_directories(storage: Storage) -> None:
    fill(storage, "x", "a", "sub/b", "sub/c")
    assert sorted(storage.ls(Path("x"))) == ["a", "sub"]
    assert storage.isdir(Path("x/sub"))
    assert not storage.isdir(Path("x/a"))
    assert storage.exists(Path("x/a"))
    assert sorted(storage.glob("/x/*")) == ["/x/a", "/x/sub"]
    assert storage.glob("x/s*") == ["x/sub"]
    assert storage.glob("y/*") == []
    storage.rmdir(Path("x/sub"))
    assert storage.ls(Path("x")) == ["a"]
    storage.rmdir(Path("x"))
    assert not storage.exists(Path("x"))
    with pytest.raises(FileNotFoundError):
        storage.ls(Path("x"))


def test_a_store_that_does_not_answer_is_no_empty_directory() -> None:
    options = {"endpoint": "http://127.0.0.1:1", "max_attempts": 1, "access_key": "a", "secret_key": "b"}
    storage = StorageConfig("s3://b/run", options).create_storage()
    for call in (lambda: storage.glob("/x/*"), lambda: storage.exists(Path("x"))):
        with pytest.raises(hr.UnavailableError):
            call()


# --- Renaming: the table of torch_checkpointing's base class ---


@pytest.mark.parametrize("in_background", [False, True])
def test_a_directory_is_renamed(storage: Storage, in_background: bool) -> None:
    fill(storage, "tmp_1", "metadata.pkl", "model/0", "model/1")
    storage.rename(Path("tmp_1"), Path("1"), is_directory=True, background_cleanup=in_background)
    assert tree(storage, "1") == {
        "1/metadata.pkl": b"metadata.pkl",
        "1/model/0": b"model/0",
        "1/model/1": b"model/1",
    }
    if not in_background:
        assert not storage.exists(Path("tmp_1"))


def test_names_are_no_patterns(objects: Storage) -> None:
    fill(objects, "tmp[1]", "model[0]", "*")
    fill(objects, "tmp1", "model0")
    objects.rename(Path("tmp[1]"), Path("1?"), is_directory=True)
    assert not objects.exists(Path("tmp[1]"))
    assert tree(objects, "1?") == {"1?/model[0]": b"model[0]", "1?/*": b"*"}
    objects.rmdir(Path("1?"))
    assert tree(objects, "tmp1") == {"tmp1/model0": b"model0"}
    assert objects.ls(Path()) == ["tmp1"]


def test_a_file_is_renamed(storage: Storage) -> None:
    fill(storage, "x", "a", "b")
    storage.rename(Path("x/a"), Path("x/c"))
    storage.rename(Path("x/c"), Path("x/b"))
    assert tree(storage, "x") == {"x/b": b"a"}


def test_what_is_there_is_not_replaced(storage: Storage) -> None:
    fill(storage, "new", "a")
    fill(storage, "old", "b")
    fill(storage, "more", "file")
    for source, target in (("new", "old"), ("new", "more/file"), ("new/a", "old")):
        with pytest.raises(OSError):  # noqa: PT011 (the table says no more)
            storage.rename(Path(source), Path(target), is_directory=True)
    assert tree(storage, "new") == {"new/a": b"a"}
    assert tree(storage, "old") == {"old/b": b"b"}
    assert tree(storage, "more") == {"more/file": b"file"}
    with pytest.raises(FileNotFoundError):
        storage.rename(Path("none"), Path("other"), is_directory=True)


@pytest.mark.parametrize("done", [0, 1, 3])
def test_a_directory_is_there_when_its_rename_is_complete(
    objects: Storage, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """The process that renames is stopped after some copies; the next rename to the same name goes well."""
    fill(objects, "tmp_1", "a", "b", "c", "d")
    copy, lock, count = objects._fs.cp_file, threading.Lock(), 0

    def stopped(source: str, target: str) -> None:
        nonlocal count
        with lock:
            count += 1
            if count > done:
                raise hr.UnavailableError("stopped")
            copy(source, target)

    monkeypatch.setattr(objects._fs, "cp_file", stopped)
    with pytest.raises(hr.UnavailableError, match="stopped"):
        objects.rename(Path("tmp_1"), Path("1"), is_directory=True)
    monkeypatch.undo()
    assert not objects.exists(Path("1"))
    assert not objects.isdir(Path("1"))
    assert objects.glob("/*") == ["/tmp_1"]
    with pytest.raises(FileNotFoundError):
        objects.ls(Path("1"))
    with pytest.raises(FileNotFoundError):
        objects.rename(Path("1"), Path("other"), is_directory=True)
    fill(objects, "tmp_2", "e")
    objects.rename(Path("tmp_2"), Path("1"), is_directory=True)
    assert tree(objects, "1") == {"1/e": b"e"}
    assert len(tree(objects, "tmp_1")) == 4


def test_a_copy_that_is_not_alike_is_no_rename(objects: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(objects, "tmp_1", "a", "b")
    monkeypatch.setattr(objects._fs, "cp_file", lambda _, target: objects._fs.pipe_file(target, b"other"))
    with pytest.raises(OSError, match="copies of a, b are not as in"):
        objects.rename(Path("tmp_1"), Path("1"), is_directory=True)
    assert not objects.exists(Path("1"))
    assert tree(objects, "tmp_1") == {"tmp_1/a": b"a", "tmp_1/b": b"b"}


def test_large_files_are_loaded_piece_by_piece(objects: Storage) -> None:
    data = {"x": torch.randn(3_000_000)}
    with objects.stream_write(Path("large")) as out:
        torch.save(data, out)
    with objects.stream_read(Path("large"), ReadArgs(pre_read_full_file=False)) as file:
        assert torch.equal(torch.load(io.BufferedReader(file))["x"], data["x"])


def test_large_reads_are_of_one_version_and_end_with_the_file(storage: Storage) -> None:
    data = bytes(range(256)) * (20 << 12)
    storage.write(Path("large"), data)
    out = bytearray(9 << 20)
    with storage.stream_read(Path("large"), ReadArgs(pre_read_full_file=False)) as file:
        assert file.seek(5) == 5
        assert (file.readinto(out), file.tell()) == (len(out), 5 + len(out))
        assert out == data[5 : 5 + len(out)]
        file.seek(len(data) - 7)
        assert (file.readinto(out), file.readinto(out)) == (7, 0)
        assert out[:7] == data[-7:]
        file.seek(0)
        storage.write(Path("large"), data[1:] + b"x")
        with pytest.raises(hr.ChangedError):
            file.readinto(out)
