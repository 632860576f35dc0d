"""What ``cache=`` names: a directory, memcached servers, a hot store, or a list of them, nearest first."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from headrace import _native
from headrace.base.units import parse_bytes
from headrace.errors import InvalidArgumentError
from headrace.store.urls import lasting_path

__all__ = ["CACHE_OPTIONS", "CacheChoice", "Tiers", "key_environment", "parse_tiers", "profile_environment"]

CACHE_OPTIONS = ("cache", "cache_limit", "cache_key", "cache_share")

CacheTier: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
CacheChoice: TypeAlias = "CacheTier | Sequence[CacheTier] | None"

_LIMIT = re.compile(r"(.+):([0-9][0-9.]*\s*[A-Z]{1,3}|[0-9]{7,})", re.IGNORECASE | re.DOTALL)
"""A directory and what looks like a size, right or not: nobody means a directory of that name, which a
dictionary or a Path may name all the same."""

_SECRETS = {"access_key", "secret_key", "session_token"}
_HOT_SCHEMES = ("s3", "gs", "az")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
_POD_ROLE = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME")


class Tiers(NamedTuple):
    """``cache=``, taken apart."""

    directory: str = ""
    """Absolute; ``""``: none."""
    limit_bytes: int = 0
    """Of the directory; 0: what the disk has."""
    key: str = ""
    """Where the key of the directory is; ``""``: it is not encrypted."""
    is_group_shared: bool = False
    cluster: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Kind and options of each cache that nodes share, nearest first."""


def profile_environment(profile: str | None) -> dict[str, str]:
    """What the environment must say for a profile to be used: keys in it, and a pod's role, would come
    first."""
    return {} if profile is None else {**dict.fromkeys(_KEYS + _POD_ROLE, ""), "AWS_PROFILE": profile}


def key_environment(
    access_key: str | None, secret_key: str | None, session_token: str | None
) -> dict[str, str]:
    """What the environment must say for these keys to be used: no token of other keys goes along with
    them."""
    if (access_key is None) != (secret_key is None):
        raise InvalidArgumentError("access_key and secret_key go together: give both or neither")
    if access_key is None or secret_key is None:
        return {}
    return dict(zip(_KEYS, (access_key, secret_key, session_token or "", ""), strict=True))


def parse_tiers(
    cache: CacheChoice,
    cache_limit: int | str | None = None,
    cache_key: str | None = None,
    cache_share: str | None = None,
) -> Tiers:
    """Raises InvalidArgumentError for what names no cache, and for an order that makes no sense."""
    found = _with_limit(_parse_choice(cache), cache_limit)
    is_group_shared = _is_group_shared(cache_share)
    if cache_key is None and not is_group_shared:
        return found
    if not found.directory:
        what = "cache_share=" if cache_key is None else "cache_key="
        raise InvalidArgumentError(f"{what} is about the directory of a cache: name that with cache=")
    if cache_key is not None and (not isinstance(cache_key, str) or not cache_key):
        raise InvalidArgumentError("cache_key= names a key by file:PATH, env:NAME or command:PROGRAM")
    if cache_key and found.cluster:
        kinds = " and ".join(kind for kind, _ in found.cluster)
        raise InvalidArgumentError(
            f"cache_key= encrypts the directory alone, and cache= also names a {kinds}, which would hold the "
            "same bytes as they are: leave out one of both"
        )
    return found._replace(key=cache_key or "", is_group_shared=is_group_shared)


def _is_group_shared(cache_share: str | None) -> bool:
    if cache_share not in (None, "group"):
        raise InvalidArgumentError(
            f'cache_share={cache_share!r}: "group" shares a new directory with its group; without, it is its '
            "maker's alone"
        )
    return cache_share == "group"


def _parse_choice(cache: CacheChoice) -> Tiers:
    found = Tiers()
    for tier in _as_list(cache):
        kind, options = _parse_tier(tier)
        if kind == "directory":
            found = _with_directory(found, options)
        else:
            if any(kind == other for other, _ in found.cluster):
                raise InvalidArgumentError(
                    f"cache={tier!r}: there is one of this kind already, and there can be one"
                )
            found = found._replace(cluster=(*found.cluster, (kind, options)))
    return found


def _with_limit(found: Tiers, cache_limit: int | str | None) -> Tiers:
    if cache_limit is None:
        return found
    if not found.directory:
        raise InvalidArgumentError(
            "cache_limit= says how large a cache may get: name its directory with cache="
        )
    if found.limit_bytes:
        raise InvalidArgumentError(
            "cache= says how large its directory may get, and so does cache_limit=: keep one"
        )
    return found._replace(limit_bytes=parse_bytes(cache_limit, "cache_limit"))


def _as_list(cache: CacheChoice) -> list[CacheTier]:
    if cache is None or cache == "":
        return []
    if isinstance(cache, (str, os.PathLike, Mapping)):
        return [cache]
    if isinstance(cache, Sequence) and not isinstance(cache, (bytes, bytearray)):
        return list(cache)
    raise InvalidArgumentError(f"cache={cache!r}: expected a directory, a URL, or a list of them")


def _with_directory(found: Tiers, options: dict[str, Any]) -> Tiers:
    if found.directory:
        raise InvalidArgumentError(
            f"cache= names two directories, {found.directory} and {options['directory']}"
        )
    if found.cluster:
        raise InvalidArgumentError(
            f"cache= goes from near to far: name the directory {options['directory']} first"
        )
    return found._replace(directory=options["directory"], limit_bytes=options["limit_bytes"])


def _parse_tier(tier: CacheTier) -> tuple[str, dict[str, Any]]:
    if isinstance(tier, Mapping):
        return _parse_mapping(tier)
    if not isinstance(tier, (str, os.PathLike)) or not os.fspath(tier):
        raise InvalidArgumentError(f"cache={tier!r}: expected a directory or a URL")
    text = os.fspath(tier)
    if isinstance(text, bytes):
        raise InvalidArgumentError(f"cache={tier!r}: expected text")
    _native.check_store_url(text)
    if "://" not in text or text.startswith("file://"):
        match = _LIMIT.fullmatch(text) if isinstance(tier, str) else None
        return _directory(match[1], match[2]) if match else _directory(text, None)
    options = dict(parse_qsl(urlsplit(text).query, keep_blank_values=True))
    if secrets := _SECRETS & options.keys():
        raise InvalidArgumentError(
            f"cache={text.partition('?')[0]!r}: {', '.join(sorted(secrets))} would be seen by whoever sees "
            "the URL: give a dictionary with url=, or profile="
        )
    return _parse_url(text, options)


def _parse_mapping(tier: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    given = dict(tier)
    if "directory" in given:
        directory, limit = given.pop("directory"), given.pop("limit", None)
        _refuse_rest(given, f"cache={directory!r}", ("directory", "limit"))
        return _directory(directory, limit)
    url = given.pop("url", None)
    if not isinstance(url, str) or "://" not in url:
        raise InvalidArgumentError(f"cache={sorted(tier)}: a dictionary names a directory= or a url=")
    return _parse_url(url, given)


def _directory(path: str | os.PathLike[str], limit: int | str | None) -> tuple[str, dict[str, Any]]:
    limit_bytes = 0 if limit is None else parse_bytes(limit, "limit of the cache")
    return "directory", {"directory": lasting_path(path), "limit_bytes": limit_bytes}


def _parse_url(url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}{parts.path}"
    if parts.scheme == "memcached":
        return "memcached", _memcached(root, parts.netloc, parts.path, options)
    if parts.scheme in _HOT_SCHEMES:
        return "store", _hot_store(root, options)
    raise InvalidArgumentError(
        f"cache={root!r}: expected a directory, memcached://host[:port],host,... or s3://bucket/prefix"
    )


def _memcached(root: str, hosts: str, path: str, options: dict[str, Any]) -> dict[str, Any]:
    if path not in ("", "/") or "@" in hosts:
        raise InvalidArgumentError(f"cache={root!r}: only servers go there: memcached://host[:port],host,...")
    readers: dict[str, Callable[[Any], Any]] = {
        "item_size": lambda value: parse_bytes(value, "item_size"),
        "connections": lambda value: _number(value, "connections", int),
        "timeout": lambda value: _number(value, "timeout", float),
    }
    return {"nodes": hosts.split(","), **_read_options(root, options, readers)}


def _hot_store(root: str, options: dict[str, Any]) -> dict[str, Any]:
    secrets = ("access_key", "secret_key", "session_token")
    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("endpoint", "region", "profile", "ca_bundle", *secrets), _text),
        **dict.fromkeys(("anonymous", "path_style", "tls_verify"), _truth),
        "timeout": lambda value: _number(value, "timeout", float),
    }
    found = _read_options(root, options, readers)
    profile = found.pop("profile", None)
    try:
        keys = key_environment(*(found.pop(name, None) for name in secrets))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"cache={root!r}: {error}") from None
    environment = profile_environment(profile) | keys
    rest = {"timeout": found.pop("timeout")} if "timeout" in found else {}
    return {"url": root.rstrip("/"), "options": found, "environment": environment, **rest}


def _read_options(
    root: str, options: dict[str, Any], readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    found = {name: readers[name](options.pop(name)) for name in readers if name in options}
    _refuse_rest(options, f"cache={root!r}", tuple(readers))
    return found


def _refuse_rest(options: Mapping[str, Any], what: str, known: tuple[str, ...]) -> None:
    if options:
        raise InvalidArgumentError(
            f"{what}: no option {', '.join(sorted(options))}; known are {', '.join(known)}"
        )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"cache=: expected text instead of a {type(value).__name__}")
    return value


def _truth(value: Any) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, bool) or str(value).lower() in known:
        return value if isinstance(value, bool) else known[str(value).lower()]
    raise InvalidArgumentError(f"cache=: expected true or false instead of {value!r}")


def _number(value: Any, name: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name}={value!r}: expected a number") from None
