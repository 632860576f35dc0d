"""Splits of datasets that Megatron Energon has prepared: ``.nv-meta/split.yaml`` (or ``.json``)."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

from headrace.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from headrace.store.urls import expand_urls

__all__ = ["split_keys"]

_PLACES = (".nv-meta/split.yaml", ".nv-meta/split.json")


def split_keys(url: str, split: str, read: Callable[[str], bytes]) -> list[str] | None:
    """Keys of the tars of a split, in its order, without those that it excludes; None where Energon prepared
    nothing.

    ``read(key)`` returns an object's bytes.
    """
    found = _find(read)
    if found is None:
        return None
    key, content = found
    where = f"{url}/{key}"
    document = _parse(content, where) if key.endswith(".yaml") else json.loads(content)
    parts = document.get("split_parts") if isinstance(document, dict) else None
    if not isinstance(parts, dict):
        raise InvalidArgumentError(f"{where}: no split_parts in it")
    if split not in parts:
        raise InvalidArgumentError(f"{where} has no split {split!r}; it has {', '.join(map(str, parts))}")
    excluded = set(_expanded(document.get("exclude"), where))
    samples = sorted(name for name in excluded if "/" in name and not name.endswith(".tar"))
    if samples:
        raise UnsupportedError(
            f"{where} excludes single samples ({samples[0]}): only whole tars can be left out"
        )
    keys = [name for name in _expanded(parts[split], where) if name not in excluded]
    if not keys:
        raise InvalidArgumentError(f"{where}: no tars in split {split!r}")
    if outside := [name for name in keys if name.startswith("/") or "://" in name or ".." in name.split("/")]:
        raise InvalidArgumentError(f"{where}: {outside[0]!r} lies outside {url}")
    return keys


def _find(read: Callable[[str], bytes]) -> tuple[str, bytes] | None:
    for key in _PLACES:
        try:
            return key, read(key)
        except NotFoundError:
            continue
    return None


def _parse(content: bytes, where: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise UnsupportedError(f"{where}: reading YAML needs PyYAML (pip install pyyaml)") from None
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise InvalidArgumentError(f"{where}: {error}") from None


def _expanded(names: Any, where: str) -> list[str]:
    if not isinstance(names, list | None) or not all(isinstance(name, str) for name in names or []):
        raise InvalidArgumentError(f"{where}: expected lists of names")
    return [key for name in names or [] for key in expand_urls(name)]
