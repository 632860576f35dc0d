"""Where a path of a file system lies: in which store, under which key."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from headrace.base.secrets import without_secrets
from headrace.errors import InvalidArgumentError
from headrace.store.repositories import split_repository

_ESCAPE = re.compile("%[0-9a-fA-F]{2}")
_LONE_PERCENT = re.compile("%(?![0-9a-fA-F]{2})")
_MAY_BE_PLAIN = "~:@!$&'()*+,;="
"""Of a path of a URL, beside letters and digits (RFC 3986, section 3.3)."""


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
    """``path`` is a whole URL. Its query goes with every request, so each is a store of its own; and so is
    each folder whose escapes a key cannot say (``a%2Fb``), which is asked for as it is written."""
    url = urlsplit(path)
    if url.scheme not in ("http", "https") or not url.netloc:
        raise InvalidArgumentError(f"{path}: expected http://host/path or https://host/path")
    path_sent = quote(_LONE_PERCENT.sub("%25", url.path), safe="%/" + _MAY_BE_PLAIN)
    folder, key = "", path_sent[1:]
    if not _is_sayable(key):
        folder = path_sent.rpartition("/")[0].rstrip("/")
        key = path_sent[len(folder) + 1 :]
    try:
        name = unquote(key, errors="strict")
    except UnicodeDecodeError:
        name = None
    if name is None or name.count("/") != key.count("/"):
        raise InvalidArgumentError(
            f"{without_secrets(path)}: the last part of the path has an escaped slash (%2F), or bytes that "
            "are no UTF-8, which cannot be asked for"
        )
    front = f"{url.scheme}://{url.netloc}{folder}"
    return Location(f"{front}?{url.query}" if url.query else front, name, f"{front}/")


def _is_sayable(path: str) -> bool:
    """Whether a path as it is sent is what a store makes of a key, which is not escaped."""
    return quote(unquote(path), safe="/~") == _ESCAPE.sub(lambda escape: escape.group().upper(), path)


def in_files(path: str) -> Location:
    return Location("file:///", path.lstrip("/"), "/")
