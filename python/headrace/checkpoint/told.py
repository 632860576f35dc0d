"""What went wrong on one rank, told to the others, which raise it as the same kind of error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import errors
from headrace.errors import HeadraceError, UnavailableError

__all__ = ["error_of", "raise_first", "raise_told", "told"]


def told(error: BaseException, names_kind: bool = True) -> dict[str, str]:
    """JSON of an error. ``names_kind``: its text begins with it."""
    kind = type(error).__name__
    return {"error": f"{kind}: {error}" if names_kind else f"{error}", "kind": kind}


def error_of(
    said: Mapping[str, Any], text: str, default: type[HeadraceError] = UnavailableError
) -> HeadraceError:
    """An error of the kind that was told; of what does not say its kind, or one that is not Headrace's:
    ``default``."""
    kind = getattr(errors, said.get("kind") or "", default)
    return (kind if isinstance(kind, type) and issubclass(kind, HeadraceError) else default)(text)


def raise_told(said: Any) -> None:
    """Raises what rank 0 has told, where it is an error and not what was asked for."""
    if isinstance(said, dict) and "error" in said:
        raise error_of(said, f"rank 0: {said['error']}")


def raise_first(
    what: str, said: list[dict[str, Any]], default: type[HeadraceError] = UnavailableError
) -> None:
    """Raises the first error of what all ranks said; ``what`` happened to that rank. ``default``: see
    error_of()."""
    failed = [(rank, each) for rank, each in enumerate(said) if each["error"]]
    if not failed:
        return
    rank, first = failed[0]
    if len(said) == 1:
        raise error_of(first, first["error"], default)
    also = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    raise error_of(first, f"rank {rank}{also}: {what}: {first['error']}", default)
