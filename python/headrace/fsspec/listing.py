"""What a store holds, as fsspec describes it: files, and the directories that their names imply."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from headrace._native import ObjectInfo
from headrace.errors import NotFoundError
from headrace.fsspec.locations import Location
from headrace.store.store import Store

Entry = dict[str, Any]


def file_entry(path: str, info: ObjectInfo) -> Entry:
    """``ETag`` and ``LastModified`` as s3fs has them, ``mtime`` as pyarrow looks for it."""
    entry: Entry = {"name": path, "size": info.size, "type": "file"}
    if info.etag:
        entry["ETag"] = info.etag
    if info.modified is not None:
        entry["LastModified"] = datetime.fromtimestamp(info.modified, timezone.utc)
        entry["mtime"] = float(info.modified)
    return entry


def directory_entry(path: str) -> Entry:
    return {"name": path, "size": 0, "type": "directory"}


def as_prefix(key: str) -> str:
    return f"{key}/" if key else ""


def is_directory(store: Store, key: str) -> bool:
    """Whether there is anything below. NotFoundError: not even a bucket."""
    objects, prefixes, _ = store._native.list_page(as_prefix(key), "/", "")
    return bool(objects or prefixes)


def describe(store: Store, place: Location, path: str, *, can_list: bool) -> Entry:
    """Of one path. NotFoundError when nothing is there."""
    if place.key:
        try:
            return file_entry(path, store.head(place.key))
        except NotFoundError:
            if not can_list:
                raise
    if not can_list:
        raise NotFoundError(f"{place.root}: names no object")
    # A bucket is there even when it is empty.
    if is_directory(store, place.key) or not place.key:
        return directory_entry(path)
    raise NotFoundError(f"{path}: no such object, and none below it")


def list_directory(store: Store, place: Location, path: str, prefix: str = "") -> list[Entry]:
    """What lies directly in a directory and begins with ``prefix``, by name. Empty as well when there is no
    such directory. The path as a listing has it: a slash at its end belongs to a name, as of ``a/`` in ``a``
    where there is an object ``a//b``."""
    is_nameless = not place.key and path == place.front != "/"  # in the bucket, not the bucket
    folder = "/" if is_nameless else as_prefix(place.key)
    entries = []
    for info in store.list(folder + prefix, recursive=False):
        if info.key == folder:  # an object that stands for the directory itself
            continue
        path = place.front + info.key.removesuffix("/")
        entries.append(directory_entry(path) if info.key.endswith("/") else file_entry(path, info))
    # "a" and "a/" may both be there: one file and one directory of one name; the file is what info() finds.
    named: dict[str, Entry] = {}
    for entry in entries:
        if entry["name"] not in named or entry["type"] == "file":
            named[entry["name"]] = entry
    return sorted(named.values(), key=lambda entry: str(entry["name"]))


def list_tree(store: Store, place: Location, prefix: str = "") -> tuple[dict[str, Entry], dict[str, Entry]]:
    """(files, directories) below a directory whose names begin with ``prefix``, by path: one recursive
    listing."""
    folder = as_prefix(place.key)
    files: dict[str, Entry] = {}
    directories: dict[str, Entry] = {}
    for info in store.list(folder + prefix):
        inner = info.key[len(folder) :]
        at = inner.rfind("/")
        while at >= 0:  # 0: of a name that begins with a slash, the directory without a name
            path = place.front + folder + inner[:at]
            if path in directories:
                break
            directories[path] = directory_entry(path)
            at = inner.rfind("/", 0, at)
        if inner and not inner.endswith("/"):
            path = place.front + info.key
            files[path] = file_entry(path, info)
    return files, directories
