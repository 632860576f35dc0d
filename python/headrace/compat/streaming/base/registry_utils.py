"""Building by name."""

from headrace.compat.streaming._registry import construct_from_registry

__all__ = ["construct_from_registry"]
