"""Which process of a run this is, told as Mosaic is told: by torch.distributed, torchrun's environment and
the DataLoader."""

from __future__ import annotations

from typing import NamedTuple

from torch.utils.data import get_worker_info

from headrace import _native
from headrace.base.ranks import Rank, count_of, group_rank, torchrun_rank


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
        # Not find_rank(): as with Mosaic, the processes of mpirun and srun are runs of their own unless RANK
        # says otherwise.
        rank, world_size = group_rank() or torchrun_rank() or Rank(0, 1)
        ranks_per_node = count_of("LOCAL_WORLD_SIZE", 1)
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
