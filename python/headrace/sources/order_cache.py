"""Where tables of other loaders' orders are kept, for all processes of a machine."""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def order_cache() -> str:
    """``$HEADRACE_ORDER_CACHE``, else ``headrace/orders`` in the user's cache directory; ``""``: tables stay
    in memory."""
    given = os.environ.get("HEADRACE_ORDER_CACHE")
    if given == "":
        return ""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(given) if given else root / "headrace" / "orders"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        logger.warning("orders are kept in memory: %s", error)
        return ""
    return str(path)
