"""Staging buffers in pinned memory, and when they may be used again. Knows no CUDA: what a device does is
handed in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch

__all__ = ["Device", "Ring"]

# Where a tensor begins in its buffer: a multiple of any dtype's size, and of what copy engines like.
_ALIGNMENT_BYTES = 512
_LEAST_BYTES = 1 << 20


class Device(Protocol):
    """What a ring needs of an accelerator. Copies run one after the other, beside its other work."""

    def allocate_pinned(self, size_bytes: int) -> torch.Tensor:
        """uint8[size_bytes] on the host, that copies may begin in."""

    def copying(self) -> AbstractContextManager[Any]:
        """Within it, :meth:`copy` and :meth:`record` are about the copies' own stream."""

    def copy(self, staged: torch.Tensor) -> torch.Tensor:
        """Begins a copy; the result's bytes are there when the next recorded event has happened."""

    def record(self) -> Any:
        """An event behind the copies that were begun."""

    def wait_for(self, event: Any) -> None:
        """Waits, on the host, until an event has happened."""

    def hand_over(self, event: Any, tensors: Sequence[torch.Tensor]) -> None:
        """What the caller's stream does from now on comes after the event, and the tensors' memory is kept
        until it is done with them, whoever drops them when."""


class _Buffer:
    """A staging buffer. ``event``: of the copies out of it; it must not be written to before that."""

    def __init__(self) -> None:
        self.bytes: torch.Tensor | None = None
        self.event: Any = None


class Ring:
    """Copies batches to a device, each through the next of a few buffers: while one is being copied, the next
    batch is written into another. One thread at a time.

    Buffers are allocated at the first batch and kept, and replaced only where a batch is larger than any
    before it.

    :param count: of buffers. With 2 the host waits where it is two batches ahead of the copies.
    """

    def __init__(self, device: Device, count: int = 2) -> None:
        self._device = device
        self._buffers = [_Buffer() for _ in range(count)]
        self._next = 0

    def copy(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors (on the host, strided) on the device, contiguous. Their own memory is free when this
        returns."""
        buffer = self._take(tensors)
        staged = _stage(tensors, buffer)
        with self._device.copying():
            copies = [self._device.copy(each) for each in staged]
            buffer.event = self._device.record()
        self._device.hand_over(buffer.event, copies)
        return copies

    def _take(self, tensors: Sequence[torch.Tensor]) -> _Buffer:
        buffer = self._buffers[self._next]
        self._next = (self._next + 1) % len(self._buffers)
        if buffer.event is not None:
            self._device.wait_for(buffer.event)
            buffer.event = None
        need = sum(_room(each) for each in tensors)
        if buffer.bytes is None or buffer.bytes.numel() < need:
            buffer.bytes = None  # Before the next is taken.
            buffer.bytes = self._device.allocate_pinned(max(_LEAST_BYTES, 1 << (need - 1).bit_length()))
        return buffer


def _room(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _stage(tensors: Sequence[torch.Tensor], buffer: _Buffer) -> list[torch.Tensor]:
    """The tensors in the buffer, one behind the other."""
    assert buffer.bytes is not None
    staged, begin = [], 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        place = buffer.bytes[begin : begin + size].view(tensor.dtype).view(tensor.shape)
        _copy(tensor, place)
        staged.append(place)
        begin += _room(tensor)
    return staged


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """numpy's copy is one memcpy() without the GIL. torch's waits for all its threads, which those that
    decode keep from their cores: 38 MB take 2.1 ms and 4 to 16 (docs/design/0043)."""
    source = source.detach()
    if source.is_contiguous() and not source.is_conj() and not source.is_neg():
        copied = target.reshape(-1).view(torch.uint8).numpy()
        np.copyto(copied, source.reshape(-1).view(torch.uint8).numpy())
    else:
        target.copy_(source)
