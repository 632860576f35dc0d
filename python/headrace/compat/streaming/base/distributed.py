"""The processes of a run."""

import os

from torch import distributed

from headrace.compat.streaming._world import World

__all__ = ["barrier", "get_local_rank", "get_local_world_size", "get_rank", "get_world_size"]


def get_rank() -> int:
    return World.detect().rank


def get_world_size() -> int:
    return World.detect().num_ranks


def get_local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK") or 0)


def get_local_world_size() -> int:
    return World.detect().ranks_per_node


def barrier() -> None:
    """Waits for all processes of torch.distributed, where there are several."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
