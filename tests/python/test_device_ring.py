"""Staging buffers and the order of copies, with a copy engine that runs as late as it may: what reads a
buffer too early, or lets it be written to too early, delivers wrong values here."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import headrace as hr  # noqa: E402
from headrace.data.batch import Batch  # noqa: E402
from headrace.loader.device.placing import Placing  # noqa: E402
from headrace.loader.device.ring import Ring  # noqa: E402


class LateDevice:
    """Copies when an event is waited for, and not before. A consumer's stream waits when it uses a tensor."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.log: list[str] = []
        self._begun: list[tuple[Any, Any]] = []
        self._events: list[list[tuple[Any, Any]]] = []
        self._is_copying = False
        self.kept: set[int] = set()

    def allocate_pinned(self, size_bytes: int) -> Any:
        self.allocated.append(size_bytes)
        return torch.full((size_bytes,), 255, dtype=torch.uint8)

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        self._is_copying = True
        yield
        self._is_copying = False

    def copy(self, staged: Any) -> Any:
        assert self._is_copying
        self._begun.append((staged, torch.zeros_like(staged, memory_format=torch.contiguous_format)))
        return self._begun[-1][1]

    def record(self) -> int:
        assert self._is_copying
        self._events.append(self._begun)
        self._begun = []
        return len(self._events) - 1

    def wait_for(self, event: int) -> None:
        self.log.append(f"wait {event}")
        self.run(event)

    def hand_over(self, event: int, tensors: Sequence[Any]) -> None:
        assert not self._begun, "the event is behind all copies"
        self.log.append(f"hand over {event}")
        self.kept |= {id(each) for each in tensors}

    def run(self, event: int) -> None:
        """All that was begun up to an event, in its order."""
        for copies in self._events[: event + 1]:
            for staged, copy in copies:
                copy.copy_(staged)
            copies.clear()


def tensors_of(number: int) -> list[Any]:
    generator = torch.Generator().manual_seed(number)
    return [
        torch.randint(0, 255, (5, 7), dtype=torch.uint8, generator=generator),
        torch.rand(3, 4, generator=generator).t(),
        torch.rand(6, generator=generator).to(torch.bfloat16),
        torch.tensor(number),
        torch.zeros(0, 3, dtype=torch.int64),
        torch.rand(9, generator=generator) > 0.5,
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_buffer_is_written_to_only_when_the_copies_out_of_it_are_done(count: int) -> None:
    device = LateDevice()
    ring = Ring(device, count)
    made = [(ring.copy(tensors_of(number)), number) for number in range(8)]
    assert device.log == [
        line
        for number in range(8)
        for line in ([f"wait {number - count}"] if number >= count else []) + [f"hand over {number}"]
    ]
    device.run(7)
    for copies, number in made:
        for copy, tensor in itertools.zip_longest(copies, tensors_of(number)):
            assert copy.dtype == tensor.dtype
            assert copy.shape == tensor.shape
            assert copy.is_contiguous()
            assert torch.equal(copy, tensor)
            assert id(copy) in device.kept, "the consumer's stream is named to the allocator"


def test_the_batchs_own_memory_is_free_at_once() -> None:
    device = LateDevice()
    tensors = tensors_of(1)
    copies = Ring(device).copy(tensors)
    for tensor in tensors:
        tensor.zero_()
    device.run(0)
    assert all(torch.equal(copy, tensor) for copy, tensor in zip(copies, tensors_of(1), strict=True))


def test_buffers_are_allocated_once_and_grow_with_the_largest_batch() -> None:
    device = LateDevice()
    ring = Ring(device, 2)
    for _ in range(10):
        ring.copy(tensors_of(0))
    assert device.allocated == [1 << 20] * 2
    large = torch.zeros((3 << 20) + 1, dtype=torch.uint8)
    for _ in range(4):
        ring.copy([large])
    ring.copy([])
    assert device.allocated == [1 << 20] * 2 + [4 << 20] * 2


def test_everything_of_a_batch_is_placed() -> None:
    device = LateDevice()
    placing = Placing(torch.device("cuda"), lambda named: Ring(device))
    jagged = torch.nested.nested_tensor_from_jagged(torch.arange(6.0), torch.tensor([0, 2, 6]))
    batch = Batch(x=torch.arange(4), rows=[torch.ones(2), torch.zeros(3)], text=["a", "b"], jagged=jagged)
    batch.ids, batch.mask = torch.tensor([7, 8]), torch.tensor([True, False])
    batch.replaced, batch.epoch, batch.index = {0: 3}, 1, 2
    placed = placing(batch)
    device.run(0)
    assert placed["x"].tolist() == [0, 1, 2, 3]
    assert [row.tolist() for row in placed["rows"]] == [[1, 1], [0, 0, 0]]
    assert placed["jagged"].offsets().tolist() == [0, 2, 6]
    assert placed["jagged"].values().tolist() == list(range(6))
    assert (placed.ids.tolist(), placed.mask.tolist()) == ([7, 8], [True, False])
    assert (placed["text"], placed.replaced, placed.epoch, placed.index) == (["a", "b"], {0: 3}, 1, 2)
    arrived = {id(placed["x"]), id(placed.ids), id(placed.mask), *map(id, placed["rows"])}
    assert arrived <= device.kept


def test_what_is_not_on_the_host_is_left_where_it_is() -> None:
    placing = Placing(torch.device("cpu"))
    value = {"x": torch.ones(1)}
    assert placing(value) is value
    meta = Placing(torch.device("meta"))({"x": torch.ones(1)})
    assert meta["x"].device.type == "meta"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(hr.InvalidArgumentError, match=r"device='cuda:1': torch .* sees no CUDA device"):
        Placing(torch.device("cuda:1"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_batches_are_whole_on_the_device_while_it_is_busy() -> None:
    """The consumer's stream is kept busy, and each tensor is dropped while its work is still to be done."""
    placing = Placing(torch.device("cuda"))
    work = torch.ones(2048, 2048, device="cuda")
    sums = []
    for number in range(50):
        batch = placing({"x": torch.full((1 << 20,), number, dtype=torch.int32)})
        for _ in range(5):
            work = (work @ work).clamp(max=1.0)
        sums.append(batch["x"].sum() + work[0, 0].to(torch.int64) * 0)
        del batch
    assert [int(each) for each in sums] == [number << 20 for number in range(50)]
    with pytest.raises(hr.InvalidArgumentError, match="cuda:99"):
        Placing(torch.device("cuda:99"))
