"""How each library saves and loads a state, for checkpoints.py.

A way is a function of (place, state, like), where `state` is saved and loaded into `like`, both dicts of
torch tensors. It returns (save, load, close): `save(step)` returns when the state may change, with what is to
be waited for until it is durable, or None where that is the same; `load()` fills `like` with what was saved
last.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Save = Callable[[int], Any]
Way = tuple[Save, Callable[[], Any], Callable[[], Any]]


def sync(directory: Path, *, drops: bool = False) -> None:
    """``drops``: out of the page cache as well."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError), Path(folder, name).open("rb") as file:  # Retention may go on.
                os.fsync(file.fileno())
                if drops:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _copy_into(like: Any, tensors: Any) -> None:
    for name, tensor in tensors:
        like[name].copy_(tensor)


def _join_alone() -> Callable[[], None]:
    """The process group of one rank that DCP wants."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return dist.destroy_process_group


# --- To a directory ---


def headrace(
    place: Any, state: Any, like: Any, memory: str = "4GiB", *, is_prepared: bool = False, **options: Any
) -> Way:
    from headrace.checkpoint import Checkpointer

    checkpointer = Checkpointer(place, memory=memory, keep=1, **options)
    if is_prepared:
        checkpointer.prepare(state)
        before = 0
        while before != (before := _resident()):
            time.sleep(0.1)
    return (
        lambda step: checkpointer.save(step, state).result,
        lambda: checkpointer.load(into=like),
        checkpointer.close,
    )


def headrace_prepared(place: Any, state: Any, like: Any, **options: Any) -> Way:
    return headrace(place, state, like, is_prepared=True, **options)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def headrace_small(place: Any, state: Any, like: Any, **options: Any) -> Way:
    return headrace(place, state, like, "256MiB", **options)


def headrace_dcp(place: Any, state: Any, like: Any, **options: Any) -> Way:
    from torch.distributed import checkpoint as dcp

    from headrace.checkpoint.dcp import Reader, Writer

    leave = _join_alone()
    writer, reader = Writer(place, memory="4GiB", **options), Reader(place, **options)
    return (
        lambda _: dcp.async_save(state, storage_writer=writer).result,
        lambda: dcp.load(like, storage_reader=reader),
        leave,
    )


def torch_save(place: Path, state: Any, like: Any) -> Way:
    import torch

    def save(_: int) -> None:
        torch.save(state, place / "file.pt")
        sync(place)

    def load() -> None:
        _copy_into(like, torch.load(place / "file.pt", weights_only=True).items())

    return save, load, lambda: None


def safetensors(place: Path, state: Any, like: Any) -> Way:
    from safetensors.torch import load_file, save_file

    def save(_: int) -> None:
        save_file(state, place / "file.safetensors")
        sync(place)

    return (
        save,
        lambda: _copy_into(like, load_file(place / "file.safetensors").items()),
        lambda: None,
    )


def runai_files(place: Path, state: Any, like: Any) -> Way:
    """It only loads: what safetensors has saved."""
    from runai_model_streamer import SafetensorsStreamer

    save, _, close = safetensors(place, state, like)

    def load() -> None:
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(str(place / "file.safetensors"))
            _copy_into(like, streamer.get_tensors())

    return save, load, close


def dcp(place: Path, state: Any, like: Any) -> Way:
    from torch.distributed import checkpoint

    leave = _join_alone()
    last = place / "none"

    def save(step: int) -> Any:
        nonlocal last
        shutil.rmtree(last, ignore_errors=True)
        last = place / f"step{step}"
        writer = checkpoint.FileSystemWriter(last, thread_count=4, sync_files=True)
        return checkpoint.async_save(state, storage_writer=writer).result

    return (
        save,
        lambda: checkpoint.load(like, storage_reader=checkpoint.FileSystemReader(last)),
        leave,
    )


def torch_checkpointing(place: Any, state: Any, like: Any, storage: Any = None) -> Way:
    """As it comes: a copy in shared memory, and a process of its own that writes it, and syncs nothing."""
    from torch_checkpointing import CheckpointManager

    config = CheckpointManager.Config.with_async_save()
    if storage is not None:
        config.storage_config = storage
    manager, last = CheckpointManager(config), ""

    def save(step: int) -> Any:
        nonlocal last
        if storage is None:
            shutil.rmtree(last, ignore_errors=True)
        last = f"step{step}" if storage is not None else str(place / f"step{step}")
        written = manager.save(last, {"model": state})
        with manager.lock():  # Until the state may change.
            pass

        def wait() -> None:
            written.result()
            if storage is None:
                sync(place)

        return wait

    return save, lambda: manager.load(last, into={"model": like}), manager.close


TO_DIRECTORIES: dict[str, Callable[[Path, Any, Any], Way]] = {
    "headrace": headrace,
    "headrace (prepared)": headrace_prepared,
    "headrace (256 MiB)": headrace_small,
    "torch.save": torch_save,
    "DCP async_save": dcp,
    "DCP async_save (headrace's Writer)": headrace_dcp,
    "torch_checkpointing": torch_checkpointing,
    "safetensors": safetensors,
    "safetensors (loaded by runai)": runai_files,
}

# --- To an object store, which the environment names (AWS_ENDPOINT_URL and so on) ---


def s3torchconnector(place: str, state: Any, like: Any) -> Way:
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
    from s3torchconnector.dcp.s3_file_system import S3FileSystem
    from torch.distributed import checkpoint

    leave = _join_alone()
    region = os.environ["AWS_REGION"]
    config = S3ClientConfig(force_path_style=True)
    client = S3Client(region=region, endpoint=os.environ["AWS_ENDPOINT_URL"], s3client_config=config)
    last = ""

    def through(made: Any) -> Any:
        made.fs = S3FileSystem(region, s3_client=client)  # Its own knows no endpoint.
        return made

    def save(step: int) -> Any:
        nonlocal last
        last = f"{place}/step{step}"
        writer = through(S3StorageWriter(region, last, thread_count=4))
        return checkpoint.async_save(state, storage_writer=writer).result

    return (
        save,
        lambda: checkpoint.load(like, storage_reader=through(S3StorageReader(region, last))),
        leave,
    )


def torch_checkpointing_headrace(place: str, state: Any, like: Any) -> Way:
    from headrace.checkpoint.torch_checkpointing import StorageConfig

    return torch_checkpointing(place, state, like, StorageConfig(place))


def headrace_safetensors(place: str, state: Any, like: Any) -> Way:
    from headrace.checkpoint.safetensors import load, save_sharded

    return (
        lambda _: save_sharded(f"{place}/model", state, overwrite=True),
        lambda: load(f"{place}/model", into=like),
        lambda: None,
    )


def runai_store(place: str, state: Any, like: Any) -> Way:
    """It only loads: what Headrace has saved."""
    from runai_model_streamer import SafetensorsStreamer

    import headrace as hr

    save, _, close = headrace_safetensors(place, state, like)

    def load() -> None:
        with hr.Store(f"{place}/model") as store:
            files = [each.key for each in store.list() if each.key.endswith(".safetensors")]
        with SafetensorsStreamer() as streamer:
            streamer.stream_files([f"{place}/model/{name}" for name in files])
            _copy_into(like, streamer.get_tensors())

    return save, load, close


TO_STORES: dict[str, Callable[[str, Any, Any], Way]] = {
    "headrace": headrace,
    "headrace (256 MiB)": headrace_small,
    "DCP async_save (headrace's Writer)": headrace_dcp,
    "DCP async_save (s3torchconnector)": s3torchconnector,
    "torch_checkpointing (headrace's Storage)": torch_checkpointing_headrace,
    "safetensors by headrace": headrace_safetensors,
    "safetensors by headrace (loaded by runai)": runai_store,
}
