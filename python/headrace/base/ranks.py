"""Which rank this process is: from torch.distributed or jax.distributed, or from what the launcher of the
process set."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from headrace.base.units import whole_number
from headrace.errors import InvalidArgumentError

__all__ = [
    "Rank",
    "count_of",
    "find_rank",
    "given_rank",
    "group_rank",
    "jax_rank",
    "local_world_size",
    "rank_so_far",
    "recorded_rank",
    "torch_rank",
    "torchrun_rank",
]

# (rank, world size) as launchers set them; the first that is there counts. Slurm comes last: mpirun and
# torchrun inside of a Slurm job are often started by srun, one a node, and then Slurm's variables count
# those.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_REMEDY = "set both, as torchrun does, or give rank= and world_size="


class Rank(NamedTuple):
    rank: int
    world_size: int


def group_rank() -> Rank | None:
    """Rank in the process group of torch.distributed, else among the processes of jax.distributed, where that
    is initialised."""
    return torch_rank() or jax_rank()


def jax_rank() -> Rank | None:
    """Of jax.distributed alone. Asked of what initialize() was told: jax.process_index() would start the
    devices."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or state.client is None:
        return None
    return Rank(state.process_id, state.num_processes)


def torch_rank() -> Rank | None:
    """Of torch.distributed alone."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Rank(distributed.get_rank(), distributed.get_world_size())


def _number(name: str) -> int:
    text = os.environ[name]
    if not (text.isascii() and text.isdigit()):
        raise InvalidArgumentError(f"{name}={text!r}: expected a whole number")
    return int(text)


def _pair(rank_name: str, size_name: str) -> Rank | None:
    """What two variables say that belong together; None: neither is set."""
    there = [name for name in (rank_name, size_name) if name in os.environ]
    if not there:
        return None
    if len(there) == 1:
        (missing,) = {rank_name, size_name} - set(there)
        raise InvalidArgumentError(
            f"{there[0]}={os.environ[there[0]]} is set and {missing} is not, so the rank of this process is "
            f"unknown: {_REMEDY}"
        )
    rank, size = _number(rank_name), _number(size_name)
    if rank >= size:
        raise InvalidArgumentError(
            f"{rank_name}={rank}, {size_name}={size}: expected {rank_name} below {size_name}"
        )
    return Rank(rank, size)


def _slurm_rank() -> Rank | None:
    """Rank among the tasks of an srun step. A batch script has SLURM_PROCID=0 and SLURM_NTASKS too, and is
    one process."""
    is_task = (
        "SLURM_STEP_ID" in os.environ
        or "SLURM_STEP_NUM_TASKS" in os.environ
        or os.environ.get("SLURM_PROCID", "0") != "0"
    )
    if not is_task:
        return None
    return _pair(
        "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in os.environ else "SLURM_NTASKS"
    )


def torchrun_rank() -> Rank | None:
    """Of RANK and WORLD_SIZE alone. Raises InvalidArgumentError where only one of them is set."""
    return _pair(*_LAUNCHERS[0])


def count_of(name: str, default: int) -> int:
    """A number that torchrun sets besides the rank (LOCAL_RANK, ...). Raises InvalidArgumentError where it is
    none."""
    return _number(name) if os.environ.get(name) else default


def local_world_size() -> int:
    """Ranks on this node, as far as the launcher says: a hint for sharing its cores."""
    for name in (
        "LOCAL_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "MPI_LOCALNRANKS",
        "SLURM_NTASKS_PER_NODE",
    ):
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit():
            return max(1, int(text))
    return 1


def _told_rank() -> Rank | None:
    """As find_rank(); None: nothing says that this process is one of several."""
    found = group_rank()
    for names in _LAUNCHERS:
        found = found or _pair(*names)
    found = found or _slurm_rank()
    if found is None and "PMIX_RANK" in os.environ:
        raise InvalidArgumentError(
            f"PMIX_RANK={os.environ['PMIX_RANK']} is set and nothing says of how many: set RANK and "
            "WORLD_SIZE, or give rank= and world_size="
        )
    return found


def find_rank() -> Rank:
    """Of torch.distributed or jax.distributed when it is initialised, else of RANK and WORLD_SIZE, else of
    Open MPI's, PMI's or Slurm's variables, else (0, 1). Raises InvalidArgumentError where only half of a pair
    is set."""
    return _told_rank() or Rank(0, 1)


def recorded_rank() -> int | None:
    """For records of what a process does, which no rank changes. Half a rank is no error here, but no rank:
    loaders, which read other samples by it, refuse it, and one with rank= may be opened all the same."""
    try:
        told = _told_rank()
    except InvalidArgumentError:
        return None
    return told.rank if told is not None and told.rank < 1 << 32 else None


def given_rank(rank: int | None, world_size: int | None) -> Rank | None:
    """What a caller names; None: nothing. The engine judges the numbers."""
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        raise InvalidArgumentError("rank and world_size go together: give both or neither")
    return Rank(whole_number("rank", rank, 32), whole_number("world_size", world_size, 32))


def rank_so_far() -> Rank:
    """The rank as far as it is known. One that is set by halves is no error yet where a process group is
    about to be made, as in the processes that Lightning starts: the first use of a loader wants to know."""
    try:
        return find_rank()
    except InvalidArgumentError:
        if "MASTER_ADDR" not in os.environ:
            raise
    return Rank(0, 1)
