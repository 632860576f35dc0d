"""mosaicml-streaming's module paths: ``from streaming.base.X import Y`` becomes ``from
headrace.compat.streaming.base.X import Y``."""

from headrace.compat import streaming
from headrace.compat.streaming import *  # noqa: F403

__all__ = streaming.__all__
