"""Puts what a loader delivers on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headrace.data.batch import Batch
from headrace.loader.device.cuda import Cuda, check_cuda
from headrace.loader.device.ring import Ring
from headrace.loader.mapping.tensors import walk

__all__ = ["Placing", "pinned"]


class Placing:
    """Puts all tensors of a batch on a device: columns, ``ids``, ``mask``, also within lists, tuples and
    dicts, jagged ones too. Everything else stays.

    CUDA: through pinned buffers that are allocated once, by a stream of their own. The caller's current
    stream waits for the copies, the caller does not. The device without a number is the one that is current
    at the first batch. Other devices: ``tensor.to(device)``.

    Raises InvalidArgumentError for a CUDA device that is not there.
    """

    def __init__(self, device: torch.device, make_ring: Callable[[torch.device], Ring] | None = None) -> None:
        self.device = device
        self._make_ring = make_ring
        if make_ring is None and device.type == "cuda":
            check_cuda(device)
            self._make_ring = lambda named: Ring(Cuda(named))
        self._ring: Ring | None = None

    def __call__(self, value: Any) -> Any:
        if self.device.type == "cpu":
            return value
        if self._make_ring is None:
            return _replaced(value, lambda tensor: tensor.to(self.device))
        if self._ring is None:
            self._ring = self._make_ring(self.device)
        found: list[torch.Tensor] = []
        _replaced(value, lambda tensor: _note(tensor, found))
        copies = iter(self._ring.copy(found))
        return _replaced(value, lambda tensor: self._placed(tensor, copies))

    def _placed(self, tensor: torch.Tensor, copies: Any) -> torch.Tensor:
        if not _is_staged(tensor):
            return tensor.to(self.device)
        if tensor.is_nested:
            return torch.nested.nested_tensor_from_jagged(next(copies), next(copies))
        copied: torch.Tensor = next(copies)
        return copied


def _is_staged(tensor: Any) -> bool:
    """Whether it is bytes on the host and nothing else."""
    if tensor.is_nested:
        return tensor.layout is torch.jagged and tensor.lengths() is None and tensor.device.type == "cpu"
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized


def _note(tensor: Any, found: list[torch.Tensor]) -> Any:
    if _is_staged(tensor):
        found += [tensor.values(), tensor.offsets()] if tensor.is_nested else [tensor]
    return tensor


def pinned(value: Any) -> Any:
    """The value with its tensors in pinned memory of their own."""
    return _replaced(value, lambda tensor: tensor.pin_memory())


def _replaced(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The value with other tensors; dicts are changed in place."""

    def leaf(part: Any) -> Any:
        return change(part) if isinstance(part, torch.Tensor) else part

    value = walk(value, leaf)
    if isinstance(value, Batch):
        value.ids, value.mask = leaf(value.ids), leaf(value.mask)
    return value
