"""The ranks of a run."""

from headrace.compat.streaming._world import World

__all__ = ["World"]
