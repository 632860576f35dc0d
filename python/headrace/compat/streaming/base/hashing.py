"""Hashes of files."""

from headrace.compat.streaming._codecs import find_hash, hash_names

__all__ = ["get_hash", "get_hashes", "is_hash"]


def get_hashes() -> set[str]:
    """All names."""
    return hash_names()


def is_hash(algo: str) -> bool:
    return algo in hash_names()


def get_hash(algo: str, data: bytes) -> str:
    """The hex digest. Raises ValueError for an unknown name."""
    return find_hash(algo)(data)
