"""What this process may use of the machine."""

from __future__ import annotations

import warnings

from headrace import _native
from headrace.base.ranks import local_world_size
from headrace.base.units import format_bytes

__all__ = ["available_cores", "warn_of_memory"]

_has_warned = False


def available_cores() -> int:
    """CPUs that this process may use: its affinity, or fewer where its control group has a quota."""
    return _native.available_cores()


def warn_of_memory(memory: int) -> None:
    """Says once a process that ``memory`` bytes for each rank of this node are more than there are: what goes
    beyond a control group's limit, or the machine, ends in the kernel killing the process without a word."""
    global _has_warned
    limit, file = _native.memory_limit()
    ranks = local_world_size()
    if _has_warned or not limit or memory * ranks <= limit:
        return
    _has_warned = True
    whose = f"the control group of this process has ({file})" if file else "this machine has"
    wanted = format_bytes(memory)
    if ranks > 1:
        wanted = f"{wanted} for each of {ranks} ranks on this node"
    warnings.warn(
        f"memory={wanted} is more than the {format_bytes(limit)} that {whose}: where that much is read "
        "ahead, the kernel kills the "
        f'process. Half of it, memory="{max(limit // (2 * ranks) >> 20, 16)}MiB", leaves room for the '
        "training itself. The order of a new run "
        "depends on memory=. This is said once.",
        RuntimeWarning,
        stacklevel=4,
    )
