"""Names that are one memory: which is kept. All ranks decide the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.checkpoint.group import Group

__all__ = ["one_memory", "without_ties"]


def without_ties(group: Group, values: Mapping[str, Any]) -> dict[str, str]:
    """Names to leave out, each with the one that is kept: the first of those that are the same memory on all
    ranks. A rank that has nothing of a tensor has no say."""
    memories = {name: memory for name, value in values.items() if (memory := one_memory(value)) is not None}
    first: dict[Any, str] = {}
    tied: dict[str, str] = {}
    for name, memory in memories.items():
        kept = first.setdefault(memory, name)
        if kept != name:
            tied[name] = kept
    said: dict[str, str] = {}
    for each in reversed(group.gather("safetensors ties", tied)):
        said |= each
    fits = [
        tied.get(name, kept) == kept and (name in tied or name not in memories) for name, kept in said.items()
    ]
    agreed = group.gather("safetensors ties agreed", fits)
    return {
        name: kept for number, (name, kept) in enumerate(said.items()) if all(each[number] for each in agreed)
    }


def one_memory(value: Any) -> Any:
    """The same for arrays that are one memory in every respect; None for those without."""
    local = value.to_local() if hasattr(value, "to_local") else value
    if not hasattr(local, "untyped_storage"):
        return ("array", id(value))
    if not local.data_ptr():
        return None
    placements = str(getattr(value, "placements", ""))
    bits = local.is_conj(), local.is_neg()
    return str(local.device), local.data_ptr(), *bits, local.dtype, value.shape, local.stride(), placements
