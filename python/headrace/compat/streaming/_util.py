"""Mosaic's helper functions: what is left over, and what is asked for again."""

from __future__ import annotations

import functools
import logging
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.base.ranks import count_of

logger = logging.getLogger(__name__)

_SHARED_MEMORY = Path("/dev/shm")
_NAMES = (
    "locals",
    "barrier",
    "next_epoch",
    "cache_usage",
    "shard_states",
    "shard_access_times",
    "resume",
    "epoch_shape",
    "epoch_data",
)


def get_list_arg(text: str) -> list[str]:
    """``"a,b"`` -> ``["a", "b"]``."""
    return text.split(",") if text else []


def wait_for_file_to_exist(filename: str, poll_interval: float, timeout: float, err_msg: str) -> None:
    """Waits for a file. Raises RuntimeError when it takes longer than ``timeout`` seconds."""
    began = time.monotonic()
    while not os.path.exists(filename):
        waited = time.monotonic() - began
        if waited > timeout:
            raise RuntimeError(f"{err_msg}{timeout:.3f} < {waited:.3f} secs.")
        time.sleep(poll_interval)


def clean_stale_shared_memory() -> None:
    """Removes the shared memory that killed runs of mosaicml-streaming have left. Headrace itself leaves
    none.

    As with Mosaic's: only while no job of Mosaic's runs on this machine, whose memory would go too.
    """
    if count_of("LOCAL_RANK", 0):
        return
    number, found = 0, True
    while found:
        found = False
        for name in _NAMES:
            try:
                (_SHARED_MEMORY / f"{number:06}_{name}").unlink()
                found = True
            except (FileNotFoundError, PermissionError):
                continue
        number += 1


def get_import_exception_message(package_name: str, extra_deps: str) -> str:
    """What to install for an optional feature."""
    return f"{package_name} is not installed, which {extra_deps} needs: pip install {package_name}"


def retry(
    exc_class: Any = Exception,
    clean_up_fn: Callable[[], None] | None = None,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
) -> Any:
    """Decorator: calls the function again after an exception, with doubling pauses. Usable without
    parentheses."""
    if num_attempts < 1:
        raise ValueError("num_attempts must be at-least 1")
    if callable(exc_class) and not isinstance(exc_class, type):
        return retry()(exc_class)
    classes: tuple[type[Exception], ...] = (exc_class,) if isinstance(exc_class, type) else tuple(exc_class)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for attempt in range(num_attempts):
                try:
                    return function(*args, **kwargs)
                except classes as error:
                    if clean_up_fn is not None:
                        clean_up_fn()
                    logger.debug("attempt %d of %d failed: %s", attempt + 1, num_attempts, error)
                    if attempt + 1 == num_attempts:
                        raise
                time.sleep(initial_backoff * 2**attempt + random.random() * max_jitter)
            raise AssertionError("unreachable")

        return call

    return decorate
