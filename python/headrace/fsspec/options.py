"""Names that fsspec's users have for what Headrace calls otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from headrace.base.secrets import without_secrets
from headrace.errors import InvalidArgumentError

# s3fs's, gcsfs's and adlfs's where they mean exactly this.
_S3_NAMES = {
    "key": "access_key",
    "secret": "secret_key",
    "token": "session_token",
    "anon": "anonymous",
    "endpoint_url": "endpoint",
}
_CLIENT_NAMES = {"endpoint_url": "endpoint", "region_name": "region", "verify": "tls_verify"}
_SECRETS = ("secret_key", "secret", "session_token", "token")
# fsspec hands these to every file system; they are about what we do not do (keep listings).
_IGNORED = ("use_listings_cache", "listings_expiry_time", "max_paths")


def store_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of ``Store`` from those that were given to the file system, with the names of s3fs too."""
    result: dict[str, Any] = {}

    def put(name: str, value: Any, said: str) -> None:
        if value is None:
            return
        if name in result:
            raise InvalidArgumentError(f"{said}= and {name}= say the same: give one of them")
        result[name] = value

    for name, value in options.items():
        if name in _IGNORED:
            continue
        if name == "client_kwargs":
            for inner, one in dict(value or {}).items():
                if inner not in _CLIENT_NAMES:
                    raise InvalidArgumentError(
                        f"client_kwargs: {inner!r} is not known here; see StoreOptions"
                    )
                if inner == "verify" and isinstance(one, str):
                    put("ca_bundle", one, f"client_kwargs[{inner!r}]")
                else:
                    put(_CLIENT_NAMES[inner], one, f"client_kwargs[{inner!r}]")
        else:
            put(_S3_NAMES.get(name, name), value, name)
    return result


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """With paths as text, which JSON and fsspec's table of instances take; also those in lists and
    mappings."""
    return {name: _plain(value) for name, value in options.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return plain(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is secret in them: keys, and passwords in URLs (proxy, endpoint, caches)."""
    return {name: _shown(value) for name, value in options.items() if name not in _SECRETS}


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return shown(value)
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return without_secrets(value) if isinstance(value, str) else value
