"""On a real GPU: what loaders deliver there, and what checkpoints take from it and bring back. Skipped
without one; the same rules with an engine that copies as late as it may are in test_device_ring.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import Checkpointer

torch = pytest.importorskip("torch")

import headrace.torch  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

OPTIONS: dict[str, Any] = {"batch_size": 32, "memory": "64MiB", "block_bytes": "64KiB", "seed": 1}
LONG = 100_000_000
"""Cycles of a GPU: some 60 ms."""


def test_batches_are_those_of_the_cpu_while_the_gpu_is_behind(numbers: Path) -> None:
    """Every batch's work is queued behind what takes long, and its tensors are dropped at once."""
    with (
        headrace.torch.Loader(numbers, **OPTIONS) as plain,
        headrace.torch.Loader(numbers, device="cuda", **OPTIONS) as loader,
    ):
        for _ in range(2):
            sums = []
            for number, batch in enumerate(loader):
                if number % 8 == 0:
                    torch.cuda._sleep(LONG)
                sums.append(torch.stack([batch["x"].sum(), batch.ids.sum(), batch.mask.sum()]))
                del batch
            wanted = [[int(v.sum()) for v in (batch["x"], batch.ids, batch.mask)] for batch in plain]
            assert [each.tolist() for each in sums] == wanted


def test_copies_do_not_wait_for_the_consumers_work(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, device="cuda", **OPTIONS) as loader:
        batches = iter(loader)
        next(batches)
        torch.cuda.synchronize()
        torch.cuda._sleep(20 * LONG)
        behind = torch.cuda.Event()
        behind.record()
        batch = next(batches)
        ring = loader._placing._ring
        copied = [buffer.event for buffer in ring._buffers if buffer.event is not None]
        for event in copied:
            event.synchronize()
        assert not behind.query(), "the copies were behind the consumer's work"
        assert batch["x"].tolist() == [7 * i + 1 for i in batch.ids.tolist()]


def test_the_stream_that_is_current_waits(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, device="cuda", **OPTIONS) as loader:
        for batch_number, batch in enumerate(_on_streams(loader)):
            assert batch["x"].tolist() == [7 * i + 1 for i in batch.ids.tolist()], batch_number


def _on_streams(loader: Any) -> Any:
    streams = [torch.cuda.Stream() for _ in range(3)]
    batches = iter(loader)
    for number in range(len(loader)):
        with torch.cuda.stream(streams[number % 3]):
            torch.cuda._sleep(LONG // 10)
            yield next(batches)


def test_staging_buffers_are_allocated_once(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, device="cuda", **OPTIONS) as loader:
        places = set()
        for _ in range(3):
            for _ in loader:
                places.add(
                    tuple(
                        sorted(
                            b.bytes.data_ptr() for b in loader._placing._ring._buffers if b.bytes is not None
                        )
                    )
                )
        assert len(places) <= 2  # The first batch has one of them.
        assert all(b.bytes.is_pinned() for b in loader._placing._ring._buffers)


def state_on_gpu() -> dict[str, Any]:
    torch.manual_seed(3)
    base = torch.randn(200, 300, device="cuda")
    return {
        "plain": torch.randn(1000, 999, device="cuda"),
        "parameter": torch.nn.Parameter(torch.randn(77, 11, device="cuda")),
        "transposed": base.t(),
        "expanded": base[:, :1].expand(200, 50),
        "bfloat16": base.bfloat16()[::2, 5:],
        "float8": base.to(torch.float8_e4m3fn),
        "conjugate": torch.complex(base, base * 2).conj(),
        "bool": (base > 0)[:, ::2],
        "scalar": base[3, 3],
        "none": base[:0],
        "host": torch.arange(1000),
        "pinned": torch.arange(5000).pin_memory(),
        "step": 7,
    }


@pytest.mark.parametrize("streams", ["default", "another"])
def test_a_checkpoint_has_the_values_of_the_moment_of_the_call(tmp_path: Path, streams: str) -> None:
    """What is queued behind save() changes every tensor; what was queued before it is in the checkpoint."""
    state = state_on_gpu()
    wanted = {n: v.detach().clone().cpu() + 1 if n == "plain" else v for n, v in state.items()}
    wanted = {n: v.detach().cpu().clone() if isinstance(v, torch.Tensor) else v for n, v in wanted.items()}
    stream = torch.cuda.Stream() if streams == "another" else torch.cuda.default_stream()
    torch.cuda.synchronize()
    with (
        torch.cuda.stream(stream),
        Checkpointer(tmp_path, part_bytes=64 << 10, memory="1MiB") as checkpointer,
    ):
        torch.cuda._sleep(5 * LONG)
        state["plain"].add_(1)
        handle = checkpointer.save(1, state)
        for name in ("plain", "transposed", "bool", "bfloat16"):
            state[name].zero_()
        handle.result()
        got = checkpointer.load(1)
        torch.cuda.synchronize()
        for name, value in wanted.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(_bits(got[name]), _bits(value)), name
            else:
                assert got[name] == value
        state["expanded"] = state["expanded"].clone()
        checkpointer.load(1, into=state)
        torch.cuda.synchronize()
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert state[name].device.type == ("cpu" if name in ("host", "pinned") else "cuda")
            assert torch.equal(_bits(state[name]), _bits(value)), name


def _bits(value: Any) -> Any:
    value = value.detach().cpu().resolve_conj().contiguous()
    return value if value.dim() == 0 else value.view(torch.uint8 if not value.is_complex() else value.dtype)


def test_a_save_takes_no_memory_of_the_gpu_and_little_of_the_host(tmp_path: Path) -> None:
    state = {f"w{n}": torch.randn(8 << 20, device="cuda") for n in range(16)}  # 512 MiB.
    state["strided"] = torch.randn(2048, 4096, device="cuda").t()
    with Checkpointer(tmp_path, memory="64MiB") as checkpointer:
        checkpointer.save(0, {"w": state["w0"]}).result()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        checkpointer.save(1, state).result()
        assert torch.cuda.max_memory_allocated() - before <= 64 << 20
        wanted = {name: value.clone() for name, value in state.items()}
        for value in state.values():
            value.zero_()
        checkpointer.load(1, into=state)
    assert all(torch.equal(state[name], value) for name, value in wanted.items())


def test_dcp_saves_and_loads_on_the_gpu(tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    from headrace.checkpoint.dcp import Reader, Writer

    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 10)).cuda()
    wanted = {name: value.clone() for name, value in model.state_dict().items()}
    dcp.save(model.state_dict(), storage_writer=Writer(tmp_path / "c"))
    other = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 10)).cuda()
    loaded = other.state_dict()
    dcp.load(loaded, storage_reader=Reader(tmp_path / "c"))
    for name, value in wanted.items():
        assert loaded[name].is_cuda
        assert torch.equal(loaded[name], value)


def test_arrays_of_jax_are_on_its_gpu(numbers: Path) -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax sees no GPU")
    from headrace.jax import Loader

    with Loader(numbers, **OPTIONS) as loader, hr.Loader(numbers, **OPTIONS) as plain:
        for ours, theirs in zip(loader, plain, strict=True):
            assert {d.platform for d in ours["x"].devices()} == {"gpu"}
            assert np.array_equal(np.asarray(ours["x"]), theirs["x"])
