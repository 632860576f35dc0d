"""Headrace with packages that want other versions than the tests' venv has."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

import headrace

CACHE = Path(os.environ.get("HEADRACE_CACHE", Path.home() / ".cache" / "headrace"))
TENSORFLOW = CACHE / "tensorflow" / "bin" / "python"  # Has Keras and JAX, too.


def need_tensorflow() -> Path:
    """Its Python."""
    if not TENSORFLOW.exists():
        pytest.skip("tools/setup test installs TensorFlow, Keras and JAX in the cache")
    return TENSORFLOW


def package_alone(directory: Path) -> dict[str, str]:
    """Variables for another venv's Python that bring it headrace, and nothing else of this venv."""
    (directory / "packages").mkdir(exist_ok=True)
    link = directory / "packages" / "headrace"
    with contextlib.suppress(FileExistsError):  # Scripts run beside each other.
        link.symlink_to(Path(headrace.__file__).parent)
    return {"PYTHONPATH": str(link.parent), "TF_CPP_MIN_LOG_LEVEL": "2"}
