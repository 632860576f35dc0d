"""What a pickle of something open holds: the call that opened it. Whoever loads it opens it anew.

Threads, connections and memory stay in their process. Secrets stay there, too: a pickle travels through
files, queues and object stores of frameworks, and nobody who was given a key by option expects it there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.base.secrets import holds_secret
from headrace.errors import InvalidArgumentError

__all__ = ["Recipe", "lasting", "lasting_options"]

_SECRETS = {"secret_key", "session_token", "password"}
# Options that are paths, or have some in them.
_PATHS = ("access_log", "ca_bundle", "cache", "cache_key", "control_directory", "index_cache", "quarantine")
_CACHE_PATHS = ("ca_bundle", "directory")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|\$\{")


def lasting(given: Any) -> Any:
    """What names a dataset, with relative paths made absolute: the other process may work elsewhere. Also of
    the parts of a list; anything that is no path as it is."""
    if isinstance(given, str | os.PathLike):
        return "::".join(
            part if _SCHEME.match(part) else os.path.join(os.getcwd(), part)
            for part in os.fspath(given).split("::")
        )
    if isinstance(given, list | tuple):
        return [lasting(part) for part in given]
    return given


def lasting_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same of options: those that are paths, or have some in them."""
    return {
        name: _lasting_option(name, value) if name in _PATHS else value for name, value in options.items()
    }


def _lasting_option(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        paths = _CACHE_PATHS if name == "cache" else tuple(value)  # A quarantine list for each source.
        return {key: _lasting_option(name, each) if key in paths else each for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_lasting_option(name, each) for each in value]
    if isinstance(value, str) and name == "cache_key":
        kind, mark, path = value.partition(":")
        return f"file:{os.path.join(os.getcwd(), path)}" if kind == "file" and mark else value
    is_path = isinstance(value, os.PathLike) or (isinstance(value, str) and value and "://" not in value)
    return os.path.join(os.getcwd(), value) if is_path else value


def _find_secret(name: str, value: Any) -> str | None:
    """The name of an option that is secret, or has something secret in it."""
    if isinstance(value, Mapping):
        found: Iterator[str | None] = (_find_secret(str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        found = (_find_secret(name, part) for part in value)
    else:
        is_secret = name in _SECRETS and value
        return name if is_secret or (isinstance(value, str) and holds_secret(value)) else None
    return next(filter(None, found), None)


def _texts(value: Any) -> Iterator[str]:
    """All that are somewhere in it."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


class Recipe(NamedTuple):
    """A call that opens the same again."""

    make: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def checked(self, owner: str) -> Recipe:
        """For a pickle. Raises InvalidArgumentError where it would hold a secret.

        :param owner: how messages name what is pickled.
        """
        given = {"its URL": list(_texts(self.arguments)), **self.options}
        secret = next(filter(None, (_find_secret(*each) for each in given.items())), None)
        if secret is not None:
            raise InvalidArgumentError(
                f"{owner} was opened with a secret ({secret}), which its pickle would hold. Leave it out and "
                "let each process find credentials by itself (environment, the vendor's files, roles: "
                "docs/stores.md), or give the other process what it needs and open it there"
            )
        return self

    def run(self) -> Any:
        return self.make(*self.arguments, **self.options)
