"""Where a path of a file system lies: in which store, under which key."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from headrace.errors import InvalidArgumentError
from headrace.store.repositories import split_repository


class Location(NamedTuple):
    root: str
    """URL for ``Store``."""
    key: str
    """``""``: the root itself."""
    front: str
    """What stands before a key of this store to make it a path of the file system."""


def in_buckets(scheme: str, path: str, depth: int) -> Location:
    """``path`` is ``bucket[/key]``, with as many leading parts as name the bucket (Azure: two)."""
    parts = path.split("/", depth)
    if len(parts) < depth or not all(parts[:depth]):
        what = "container" if depth == 2 else "bucket"
        raise InvalidArgumentError(f"{scheme}://{path}: names no {what}, and these cannot be listed")
    bucket = "/".join(parts[:depth])
    return Location(f"{scheme}://{bucket}", parts[depth] if len(parts) > depth else "", bucket + "/")


def in_repositories(path: str) -> Location:
    """``path`` is ``datasets/ORG/NAME[@REVISION][/key]`` or the like."""
    root, key = split_repository(path)
    return Location(root, key, root.removeprefix("hf://") + "/")


def on_web(path: str) -> Location:
    """``path`` is a whole URL. Its query goes with every request, so each is a store of its own."""
    url = urlsplit(path)
    if url.scheme not in ("http", "https") or not url.netloc:
        raise InvalidArgumentError(f"{path}: expected http://host/path or https://host/path")
    query = f"?{url.query}" if url.query else ""
    return Location(
        f"{url.scheme}://{url.netloc}{query}", unquote(url.path.lstrip("/")), f"{url.scheme}://{url.netloc}/"
    )


def in_files(path: str) -> Location:
    return Location("file:///", path.lstrip("/"), "/")
