"""The processes of a run."""

from typing import Any

from torch import distributed

from headrace.base.ranks import count_of, group_rank
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
    # Alone, without a look at RANK: with WORLD_SIZE=2 and no process group Mosaic's all_gather_object() is a
    # RuntimeError.
    group = group_rank()
    return count_of("WORLD_SIZE", 1) if group is None else group.world_size


def get_local_rank() -> int:
    return count_of("LOCAL_RANK", 0)


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
        f"The world_size({world_size}) > 1, but the distributed package is not available or has not been "
        "initialized: call init_process_group()"
    )
