"""What messages must not show."""

from __future__ import annotations

import re

_SECRETS = re.compile(
    r"""([A-Za-z][A-Za-z0-9+.-]*://)"""
    # Passwords may have a "/" or "?" that nobody escaped: a ":" in front of it that begins no port tells.
    r"""([^/?#\s]*@|[^/?#\s:\[]*:(?!\d+(?:[/?#\s"',;)>]|$))(?:[^?\s]*@|\S*?@))?"""
    r"""([^?\s]*)(\?[^\s"']*)?"""
)


def without_secrets(text: str) -> str:
    """A message without what URLs in it may hide: user and password in front of the host, and of web and
    Azure URLs the query, which may be a signature."""
    return _SECRETS.sub(_without_secrets, text) if "://" in text else text


_LAKES = ("abfs://", "abfss://", "wasb://", "wasbs://")
"""What stands in front of their hosts is a container."""
_NAMING = (*_LAKES, "hf://")
"""What stands in front of "@" there is a name."""
_SIGNED = ("http://", "https://", "az://", "azure://", *_LAKES)
"""Whose queries may be signatures."""


def _without_secrets(match: re.Match[str]) -> str:
    scheme, user, rest, query = match.groups()
    if query and scheme.lower() in _SIGNED:
        query = "?..."
    if user and not (scheme.lower() in _NAMING and ":" not in user):
        user = "***@"
    return f"{scheme}{user or ''}{rest}{query or ''}"


_KEYS = re.compile(r"[?&](sig|signature|x-amz-signature|x-goog-signature|token|[a-z-]*security-token)=", re.I)


def holds_secret(text: str) -> bool:
    """Whether a URL has a password, or a query that is signed: who reads it can do what it allows."""
    return "://" in text and any(
        ":" in (user or "") or _KEYS.search(query or "") for _, user, _, query in _SECRETS.findall(text)
    )
