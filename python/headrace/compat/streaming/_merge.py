"""merge_index: one ``index.json`` over data sets that were written in parts."""

from __future__ import annotations

import json
import logging
import os
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.compat.streaming._shards import INDEX, parse_index
from headrace.errors import HeadraceError
from headrace.store.store import Store

logger = logging.getLogger(__name__)

Place = str | tuple[str, str]
_FILES = ("raw_data", "zip_data", "raw_meta", "zip_meta")


def merge_index(*args: Any, **kwargs: Any) -> None:
    """``merge_index(index_file_urls, out, keep_local=True, download_timeout=60)`` or ``merge_index(out,
    keep_local=True, download_timeout=60)``.

    Writes to ``out`` (a directory, a URL, or both as a tuple) an ``index.json`` of all shards of the indexes
    given, or of those below ``out``, in the order of their names. An index may be a path, a URL, or both as a
    tuple: the URL is read where the path does not exist. ``keep_local=False`` leaves no merged index in the
    local directory. Shards stay where they are.
    """
    if args and isinstance(args[0], list) and 2 <= len(args) + len(kwargs) <= 4:
        _merge_list(*args, **kwargs)
    elif args and isinstance(args[0], (str, tuple)) and len(args) + len(kwargs) <= 3:
        _merge_root(*args, **kwargs)
    else:
        raise ValueError(f"Invalid arguments to merge_index: {args}, {kwargs}")


def _split(out: Place) -> tuple[str, str]:
    """(directory, URL), "" where there is none."""
    if isinstance(out, tuple):
        return out[0], out[1]
    return ("", out) if "://" in out else (out, "")


def _merge_root(out: Place, keep_local: bool = True, download_timeout: float = 60) -> None:
    local, remote = _split(out)
    if remote:
        with Store(remote, timeout=download_timeout) as store:
            found = sorted(
                info.key
                for info in store.list()
                if posixpath.basename(info.key) == INDEX and info.key != INDEX
            )
    else:
        paths = (
            os.path.relpath(os.path.join(folder, INDEX), local)
            for folder, _, files in os.walk(local)
            if INDEX in files
        )
        found = sorted(path for path in paths if path != INDEX)
    urls: list[Place] = [
        (os.path.join(local, key) if local else "", f"{remote.rstrip('/')}/{key}" if remote else "")
        for key in found
    ]
    if not urls:
        raise FileNotFoundError(f"{remote or local}: there is no {INDEX} in a folder below")
    _merge_list(urls, out, keep_local, download_timeout)


def _merge_list(
    index_file_urls: Sequence[Place], out: Place, keep_local: bool = True, download_timeout: float = 60
) -> None:
    if not index_file_urls or not out:
        logger.warning(
            "Either index_file_urls or out are None. Need to specify both `index_file_urls` and `out`. No "
            "index merged"
        )
        return
    shards: list[dict[str, Any]] = []
    for url in dict.fromkeys(index_file_urls):
        where, text = _read(url, download_timeout)
        folder = _folder_below(where, _split(out))
        for shard in parse_index(text, where):
            for name in _FILES:
                if shard.get(name):
                    shard[name]["basename"] = posixpath.join(folder, shard[name]["basename"])
            shards.append(shard)
    _write(json.dumps({"version": 2, "shards": shards}).encode(), out, keep_local)


def _read(url: Place, timeout: float) -> tuple[str, bytes]:
    """Of which of its names an index was read, and its text."""
    local, remote = url if isinstance(url, tuple) else _split(url)
    local, remote = local.rstrip("/").strip(), remote.rstrip("/").strip()
    if local and (os.path.exists(local) or not isinstance(url, tuple)):
        try:
            with open(local, "rb") as file:
                return local, file.read()
        except OSError as error:
            raise RuntimeError(f"Failed to download index.json: {local}") from error
    if not remote:
        raise FileNotFoundError(
            f"Check data availability! local index {local} is not accessible. remote index {remote} does not "
            "have a valid url format"
        )
    folder, key = posixpath.split(remote)
    try:
        with Store(folder, timeout=timeout) as store:
            return remote, store.get(key)
    except HeadraceError as error:
        raise RuntimeError(f"Failed to download index.json: {remote}") from error


def _folder_below(index: str, out: tuple[str, str]) -> str:
    """Where an index's folder is below ``out``; its name, where it is not, as then it is to be moved
    there."""
    folder = posixpath.dirname(index)
    for root in filter(None, out):
        if folder.startswith(root.rstrip("/") + "/"):
            return posixpath.relpath(folder, root)
    return posixpath.basename(folder)


def _write(text: bytes, out: Place, keep_local: bool) -> None:
    local, remote = _split(out)
    if remote:
        with Store(remote) as store:
            store.put(INDEX, text)
    if not local:
        return
    path = Path(local) / INDEX
    if not keep_local:
        path.unlink(missing_ok=True)
        return
    partial = path.with_name(f"{INDEX}.tmp")
    partial.write_bytes(text)
    partial.replace(path)
