"""URLs that name many objects: brace patterns, ``::`` lists, ``${var}``, wildcards, and index files of
wids."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace import _native
from headrace.base.secrets import without_secrets
from headrace.errors import InvalidArgumentError, NotFoundError, UnsupportedError

__all__ = [
    "absolute_url",
    "check_beginning",
    "expand_urls",
    "is_azure",
    "is_hidden",
    "is_pattern",
    "kept_url",
    "lasting_path",
    "lies_inside",
    "local_path",
    "named_objects",
    "parent_and_key",
    "parse_wids_index",
    "public_url",
    "refuse_inside",
    "refuse_memory",
    "split_root",
    "take_sas",
    "without_secrets",
]

MOST_URLS = 10_000_000
"""A pattern that names more is a mistake; a million shards of 1 GB are a petabyte."""

WIDS_KIND = "wids-shard-index-v1"

_AZURE = ("az", "azure", "abfs", "abfss", "wasb", "wasbs")
_SCHEMES = ("s3", "gs", "gcs", *_AZURE, "hf", "http", "https", "file", "memory")

_INT_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?")
_CHAR_RANGE = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def expand_urls(text: str) -> list[str]:
    """The URLs that ``text`` names, as webdataset expands it.

    ``a::b`` is two; ``${NAME}`` is the environment's ``WDS_NAME``; ``{000..099}``, ``{9..0..3}``, ``{a..f}``
    and ``{x,y}`` are one each, also nested; a backslash takes the meaning off the character behind it.
    """
    urls: list[str] = []
    for part in text.split("::"):
        for url in _braces(_variables(part)):
            _refuse_commands(url)
            urls.append(url)
            if len(urls) > MOST_URLS:
                raise InvalidArgumentError(f"{text!r} names more than {MOST_URLS:,} objects")
    return urls


def split_root(urls: Sequence[str]) -> tuple[str, list[str]]:
    """The folder that all URLs lie in, and each one's key below it."""
    if not urls:
        raise InvalidArgumentError("no URLs: a dataset has at least one object")
    stores = {_store_of(url) for url in urls}
    if len(stores) > 1:
        first, second = sorted(stores)[:2]
        raise InvalidArgumentError(
            f"the URLs lie in different stores ({first or 'local files'}, {second or 'local files'}); mix "
            "datasets of each instead"
        )
    store = stores.pop()
    paths = [url[len(store) :] for url in urls]
    root = _common_folder(min(paths), max(paths))
    keys = [path[len(root) :] for path in paths]
    for url, key in zip(urls, keys, strict=True):
        if not key:
            raise InvalidArgumentError(f"{url!r} names a folder, the others objects")
    return store + (root if root == "/" else root.rstrip("/")) or ".", keys


def parse_wids_index(document: Any, where: str) -> list[tuple[str, int]]:
    """(URL as written, samples) of each shard of a wids index that was read from ``where``."""
    shards: list[tuple[str, int]] = []
    for entry in _wids_lists(document, where):
        url, count = (entry.get("url"), entry.get("nsamples")) if isinstance(entry, dict) else (None, None)
        if (
            not isinstance(url, str)
            or not url
            or not isinstance(count, int)
            or isinstance(count, bool)
            or count < 0
        ):
            raise InvalidArgumentError(f"{where}: a shard without url or nsamples: {entry!r:.200}")
        _refuse_commands(url)
        shards.append((url, count))
    if not shards:
        raise InvalidArgumentError(f"{where}: no shards")
    return shards


def is_pattern(text: str) -> bool:
    """Whether a URL names many objects by itself."""
    return "::" in text or "{" in text or _has_wildcard(text)


def named_objects(
    url: str | os.PathLike[str],
    read: Callable[[str, str], bytes],
    list_keys: Callable[[str, str, bool], list[str]],
) -> tuple[str, list[str]] | None:
    """Root and keys when ``url`` is a pattern, a list or a wids index; None when it is an ordinary URL.

    ``read(root, key)`` returns an object's bytes, ``list_keys(root, prefix, is_deep)`` the keys below a root.
    """
    text = os.fspath(url)
    _refuse_commands(text)
    if os.path.exists(text):
        # A path that is there is meant, whatever characters are in it; but a wids index stands for its
        # shards.
        return _wids_objects(text, read) if text.endswith(".json") and os.path.isfile(text) else None
    if is_pattern(text):
        return split_root(
            [
                name
                for part in expand_urls(text)
                for name in (_matching(part, list_keys) if _has_wildcard(part) else [part])
            ]
        )
    return _wids_objects(text, read) if text.endswith(".json") else None


def _has_wildcard(text: str) -> bool:
    # A question mark begins the query of a web URL.
    is_web = text.startswith(("http://", "https://"))
    return not is_web and any(mark in text for mark in "*?[")


def _matching(pattern: str, list_keys: Callable[[str, str, bool], list[str]]) -> list[str]:
    """URLs of the objects that a pattern of wildcards names, in byte order; hidden ones are not among
    them."""
    first = min(at for at in map(pattern.find, "*?[") if at >= 0)
    folder = pattern[: pattern.rfind("/", 0, first) + 1]
    if folder.endswith("://"):
        raise InvalidArgumentError(f"{pattern}: a wildcard cannot stand in the name of the bucket")
    rest = pattern[len(folder) :]
    glob = _native.Glob(rest)
    keys = list_keys(folder or ".", glob.prefix, "/" in rest or "**" in rest)
    named = (key for key in keys if glob.matches(key) and not key.endswith("/"))
    found = sorted((key for key in named if not is_hidden(key)), key=str.encode)
    if not found:
        raise NotFoundError(f"{pattern}: no object matches")
    return [folder + key for key in found]


def is_hidden(key: str) -> bool:
    """Whether a part of a key begins with a dot: what data and patterns leave out, as shells do."""
    return "/." in f"/{key}"


def _common_folder(first: str, last: str) -> str:
    """Up to and with the last "/" that both share, and so all between them in order."""
    end = 0
    for at, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            break
        if a == "/":
            end = at + 1
    return first[:end]


def _refuse_commands(url: str) -> None:
    if url.startswith("pipe:"):
        raise UnsupportedError(
            f"{url!r}: a pipe: URL runs a shell command, which is never done here; give the URL of the "
            "object itself"
        )


def _variables(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = "WDS_" + match.group(1)
        if name not in os.environ:
            raise InvalidArgumentError(f"{text!r}: the environment has no {name}")
        return os.environ[name]

    # A value may hold variables itself; one that holds itself does not end.
    for _ in range(10):
        replaced = _VARIABLE.sub(value, text)
        if replaced == text:
            return text
        text = replaced
    return text


def _braces(pattern: str) -> Iterator[str]:
    """Expansions of a pattern, first brace slowest."""
    opening = _find(pattern, 0, "{")
    if opening < 0:
        if _find(pattern, 0, "}") >= 0:
            raise InvalidArgumentError(f"unbalanced braces: {pattern!r}")
        yield _plain(pattern)
        return
    closing = _closing(pattern, opening)
    head, inner, tail = _plain(pattern[:opening]), pattern[opening + 1 : closing], pattern[closing + 1 :]
    for middle in _choices(inner):
        for rest in _braces(tail):
            yield head + middle + rest


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _find(text: str, start: int, wanted: str) -> int:
    at = start
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in wanted:
            return at
        at += 1
    return -1


def _closing(pattern: str, opening: int) -> int:
    depth, at = 0, opening
    while at >= 0:
        depth += 1 if pattern[at] == "{" else -1
        if depth == 0:
            return at
        at = _find(pattern, at + 1, "{}")
    raise InvalidArgumentError(f"unbalanced braces: {pattern!r}")


def _choices(inner: str) -> Iterator[str]:
    if match := _INT_RANGE.fullmatch(inner):
        yield from _integers(*match.groups())
    elif match := _CHAR_RANGE.fullmatch(inner):
        yield from _characters(*match.groups())
    else:
        parts = _commas(inner)
        for part in parts:
            for text in _braces(part):
                # Without a comma the braces mean themselves.
                yield text if len(parts) > 1 else "{" + text + "}"


def _integers(first: str, last: str, step: str | None) -> Iterator[str]:
    padded = any(text.lstrip("-").startswith("0") and text not in ("0", "-0") for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    by = int(step or 1) or 1
    begin, end = int(first), int(last)
    for number in range(begin, end + 1, by) if begin < end else range(begin, end - 1, -by):
        yield f"{number:0{width}d}"


def _characters(first: str, last: str, step: str | None) -> Iterator[str]:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    by = int(step or 1) or 1
    begin, end = alphabet.index(first), alphabet.index(last)
    for at in range(begin, end + 1, by) if begin < end else range(begin, end - 1, -by):
        yield alphabet[at]


def _commas(inner: str) -> list[str]:
    parts: list[str] = []
    start = at = 0
    while True:
        at = _find(inner, at, "{,")
        if at < 0:
            return [*parts, inner[start:]]
        if inner[at] == "{":
            at = _closing(inner, at) + 1
        else:
            parts.append(inner[start:at])
            start = at = at + 1


def _store_of(url: str) -> str:
    """Scheme and host or bucket, ``""`` for a path."""
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*/?", url)
    return match.group() if match else ""


def _wids_lists(document: Any, where: str) -> Iterator[Any]:
    yield from document.get("shardlist") or []
    for part in document.get("datasets") or []:
        if not isinstance(part, dict) or "source_url" in part:
            raise UnsupportedError(
                f"{where}: a wids index of other indexes (source_url); open and mix them one by one"
            )
        yield from part.get("shardlist") or []


def _wids_objects(text: str, read: Callable[[str, str], bytes]) -> tuple[str, list[str]] | None:
    root, keys = split_root([text])
    try:
        content = read(root, keys[0])
    except NotFoundError:
        return None
    try:
        document = json.loads(content)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("__kind__") != WIDS_KIND:
        return None
    return split_root(_wids_urls(document, text))


def _wids_urls(document: Any, where: str) -> list[str]:
    """Where the shards of a wids index lie: relative to it, or to the base that it names; never outside its
    folder or its bucket."""
    folder = where[: where.rfind("/") + 1]
    base = document.get("base") or ""
    if not isinstance(base, str):
        raise InvalidArgumentError(f"{where}: base is no text")
    base = _resolved(folder, base.rstrip("/") + "/" if base else "")
    urls = [_resolved(base, url) for url, _ in parse_wids_index(document, where)]
    for url in urls:
        if not _lies_in(url, folder):
            place = f"the bucket {_store_of(folder)}" if _store_of(folder) else f"its folder {folder or '.'}"
            raise InvalidArgumentError(
                f"{where}: names {url!r}, which lies outside {place}; an index is no reason to read it: open "
                "it by its own URL"
            )
    return urls


def _resolved(folder: str, url: str) -> str:
    is_absolute = url.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url)
    return url if is_absolute else folder + url


def _lies_in(url: str, folder: str) -> bool:
    """Whether an object belongs to an index in ``folder``: in its bucket (or on its web server), else below
    the folder itself."""
    store = _store_of(folder)
    if store.startswith("file://"):
        store, folder = "", local_path(folder) or ""
    if not store and url.startswith("file://"):
        url = local_path(url) or ""
    is_named = bool(_store_of(url)) or url.startswith("/")
    is_below = url.startswith(store or folder) and (bool(store or folder) or not is_named)
    return is_below and ".." not in unquote(url).split("/")  # servers may take escapes off


def local_path(url: str) -> str | None:
    """The path of a local URL; None for one of another store than the file system. Every character behind
    ``file://`` means itself, ``%``, ``#`` and ``?`` too: what another program would read as an escape is part
    of a name. Raises InvalidArgumentError for a file URL that names another machine."""
    if not url.startswith("file://"):
        return None if "://" in url else url
    host, slash, path = url.removeprefix("file://").partition("/")
    if not slash or host not in ("", "localhost"):
        raise InvalidArgumentError(f"{url}: a file URL has three slashes, as file:///data/x")
    return f"/{path}"


def lasting_path(directory: str | os.PathLike[str]) -> str:
    """A directory to write to, wherever the process works later. "~" is the home directory, as in a shell:
    else a directory of that name would come to be, and be filled. Raises InvalidArgumentError for the URL of
    another place, also a mistyped one."""
    text = os.fspath(directory)
    _check_written(text)
    path = local_path(text)
    if path is None:
        raise InvalidArgumentError(f"{without_secrets(text)}: a directory of this machine is meant")
    return os.path.abspath(os.path.expanduser(path))


def absolute_url(url: str | os.PathLike[str]) -> str:
    """The same place, wherever the process works later: a relative path is that of now. Raises
    InvalidArgumentError for a mistyped URL, which as a path would be a new directory here."""
    text = os.fspath(url)
    _check_written(text)
    return os.path.join(os.getcwd(), text) if text and local_path(text) == text else text


def _check_written(text: str) -> None:
    """What the store itself finds no fault with, and nobody means of a place that comes to be by it: a blank
    at the end."""
    _native.check_store_url(text)
    if text != text.rstrip():
        raise InvalidArgumentError(
            f"{without_secrets(text)!r} ends in a blank; write a slash behind it if the name does"
        )


def public_url(url: str) -> str:
    """What may be written down: no user, password, query and fragment, and nothing of a local path, which may
    name a user."""
    if local_path(url) is not None:
        return ""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_azure(url: str) -> bool:
    return url.partition("://")[0].lower() in _AZURE


def take_sas(url: str) -> tuple[str, str]:
    """A URL of Azure's without its SAS, and that with its question mark; "" where there is none."""
    before, _, query = url.rpartition("?")
    has_sas = is_azure(url) and before and "sig=" in query and "sv=" in query
    return (before, f"?{query}") if has_sas else (url, "")


def kept_url(url: str) -> str:
    """What a URL, or the beginning of one, is as a cache names its objects: the scheme in lower case, no
    slash too many, of Azure no signature, and of the web, whose paths are the server's own, no user,
    password, query and fragment."""
    url, _ = take_sas(url)
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    if scheme.lower() in ("http", "https"):
        return scheme.lower() + mark + public_url(url).partition("://")[2]
    bucket, slash, path = rest.partition("/")
    path = path.lstrip("/")
    return scheme.lower() + mark + bucket + slash + (path.rstrip("/") + "/" if path.endswith("/") else path)


def check_beginning(url: str) -> None:
    """Raises InvalidArgumentError for what no object's URL begins with."""
    _native.check_store_url(url)
    scheme, mark, rest = url.partition("://")
    if mark:
        is_named = scheme.lower() in _SCHEMES and bool(rest)
    else:
        is_named = bool(url) and (url.startswith("/") or os.path.lexists(url.partition("/")[0]))
    if not is_named:
        raise InvalidArgumentError(
            f"{without_secrets(url)!r} is neither the beginning of a store's URL, as s3://bucket/train/, nor "
            "a path that is there"
        )


def lies_inside(target: str, source: str) -> bool:
    """Whether the target is the source or below it, however local paths are spelled."""

    def place(url: str) -> str:
        path = local_path(url)
        return (url if path is None else os.path.realpath(path)).rstrip("/") + "/"

    return place(target).startswith(place(source))


def refuse_inside(target: str, source: str) -> None:
    """InvalidArgumentError when the target is the source or below it, however local paths are spelled."""
    if lies_inside(target, source):
        raise InvalidArgumentError(f"the target {target} lies inside the source {source}")


def refuse_memory(target: str | os.PathLike[str]) -> None:
    """InvalidArgumentError for a target that nobody can read: each store of ``memory://`` has a memory of its
    own."""
    url = os.fspath(target)
    if url.lower().startswith("memory://"):
        raise InvalidArgumentError(
            f"the target {url} would be gone with the store that writes it; write to a directory (in memory: "
            "below /dev/shm)"
        )


def parent_and_key(url: str | os.PathLike[str]) -> tuple[str, str] | None:
    """The URL as a folder and the object in it; None when it cannot be that."""
    text = os.fspath(url)
    scheme, mark, path = text.rpartition("://")
    parent, slash, key = path.rpartition("/")
    if not key or (mark and not slash):
        return None
    return scheme + mark + (parent or ("/" if slash else ".")), key
