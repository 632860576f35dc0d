"""URLs of repositories of the Hugging Face hub: where the repository ends and the path in it begins."""

from __future__ import annotations

import re

from headrace.errors import InvalidArgumentError

_REVISION = r"@(?:refs/(?:convert|pr)/[^/]+|[^/]*)"


def split_repository(path: str) -> tuple[str, str]:
    """(root, key) of what stands behind ``hf://``: ``datasets/ORG/NAME[@REV]/key``, ``spaces/...``, or
    ``ORG/NAME[@REV]/key``. Some revisions have slashes, some repositories no ORG."""
    first = path.partition("/")[0]
    kind = f"{first}/" if first in ("datasets", "spaces") else ""
    pattern = rf"{kind}(?:[^/@]+/[^/@]+(?:{_REVISION})?|[^/@]+{_REVISION}|[^/@]+)(?=/|$)"
    found = re.match(pattern, path.rstrip("/"))
    if not found:
        raise InvalidArgumentError(f"hf://{path}: no repository; expected hf://{kind}ORG/NAME[@REVISION]/key")
    return f"hf://{found[0]}", path[found.end() :].lstrip("/")
