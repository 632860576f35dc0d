"""Streams and their registry."""

from headrace.compat.streaming._stream import Stream, streams_registry

__all__ = ["Stream", "streams_registry"]
