"""The processes of a run."""

import os
from typing import Any

from torch import distributed

from headrace.compat.streaming._world import World

__all__ = [
    "all_gather_object",
    "barrier",
    "get_local_rank",
    "get_local_world_size",
    "get_rank",
    "get_world_size",
]


def get_rank() -> int:
    return World.detect().rank


def get_world_size() -> int:
    return (
        distributed.get_world_size()
        if distributed.is_available() and distributed.is_initialized()
        else int(os.environ.get("WORLD_SIZE") or 1)
    )


def get_local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK") or 0)


def get_local_world_size() -> int:
    return World.detect().ranks_per_node


def barrier() -> None:
    """Waits for all processes of torch.distributed, where there are several."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


def all_gather_object(obj: Any) -> list[Any]:
    """The objects of all ranks, by rank."""
    world_size = get_world_size()
    if distributed.is_available() and distributed.is_initialized():
        gathered: list[Any] = [None] * world_size
        distributed.all_gather_object(gathered, obj)
        return gathered
    if world_size == 1:
        return [obj]
    raise RuntimeError(
        f"The world_size({world_size}) > 1, but the distributed package is not available or has not been initialized: call init_process_group()"
    )
