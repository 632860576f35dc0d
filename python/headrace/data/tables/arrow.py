"""pyarrow, as the engine's tables use it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from headrace.base.packages import missing_package
from headrace.errors import CorruptError, ExhaustedError, HeadraceError, UnsupportedError


@functools.cache
def arrow() -> Any:
    try:
        for name in ("pyarrow.compute", "pyarrow.parquet"):
            importlib.import_module(name)
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise missing_package("tables need", "pyarrow", error) from None


@functools.cache
def pool() -> Any:
    """What unpacking allocates: jemalloc gives memory back at once where it is asked to, mimalloc (the
    default) keeps much of it."""
    pa = arrow()
    try:
        pool = pa.jemalloc_memory_pool()
        pa.jemalloc_set_decay_ms(0)
    except NotImplementedError:
        return pa.system_memory_pool()
    return pool


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Exceptions of pyarrow and lance become ours."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (HeadraceError, KeyboardInterrupt):
            raise
        except NotImplementedError as error:
            raise UnsupportedError(str(error)) from error
        except MemoryError as error:
            raise ExhaustedError(f"unpacking: {error}") from error
        except (
            ValueError,
            OSError,
            LookupError,
            TypeError,
            OverflowError,
            RuntimeError,
            arrow().ArrowException,
        ) as error:
            raise CorruptError(str(error) or type(error).__name__) from error

    return call
