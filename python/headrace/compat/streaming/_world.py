"""Which process of a run this is, told as Mosaic is told: by torch.distributed, torchrun's environment and the DataLoader."""

from __future__ import annotations

import os
from typing import NamedTuple

from torch import distributed
from torch.utils.data import get_worker_info

from headrace import _native


def _from_environment(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)


class World(NamedTuple):
    """The ranks of a run, and the worker of a rank."""

    num_nodes: int
    ranks_per_node: int
    workers_per_rank: int = 1
    worker: int = 0

    @property
    def num_ranks(self) -> int:
        return self.num_nodes * self.ranks_per_node

    @property
    def rank(self) -> int:
        return self.worker // self.workers_per_rank

    @property
    def worker_of_rank(self) -> int:
        return self.worker % self.workers_per_rank

    @property
    def is_local_leader(self) -> bool:
        return self.worker % (self.ranks_per_node * self.workers_per_rank) == 0

    @classmethod
    def detect(cls) -> World:
        if distributed.is_available() and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        else:
            rank, world_size = _from_environment("RANK", 0), _from_environment("WORLD_SIZE", 1)
            if world_size > 1 and not os.environ.get("RANK"):
                raise ValueError(
                    f"WORLD_SIZE={world_size} but no RANK: every process would take itself for the first; set both, or start with torchrun"
                )
        if not 0 <= rank < world_size:
            raise ValueError(f"RANK={rank} of WORLD_SIZE={world_size}: set both, or start with torchrun")
        ranks_per_node = _from_environment("LOCAL_WORLD_SIZE", 1)
        return cls(max(world_size // ranks_per_node, 1), ranks_per_node, 1, rank).in_worker()

    def in_worker(self) -> World:
        """The same rank, seen from the DataLoader worker that calls."""
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        return self._replace(workers_per_rank=workers, worker=self.rank * workers + worker)

    def replicate(self, replication: int) -> World:
        """The world in which ``replication`` consecutive ranks count as one."""
        if replication <= 0:
            raise ValueError("Replication factor must be positive.")
        nodes, ranks, _, _ = _native.replicate_mosaic_world(
            (self.num_nodes, self.ranks_per_node, 1, 1), replication
        )
        worker = self.rank // replication * self.workers_per_rank + self.worker_of_rank
        return self._replace(num_nodes=nodes, ranks_per_node=ranks, worker=worker)
