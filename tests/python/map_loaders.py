"""Small loaders for the tests of map()."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr

OPTIONS: dict[str, Any] = {
    "batch_size": 10,
    "memory": "16MiB",
    "block_bytes": "64KiB",
    "index_cache": "",
    "seed": 5,
}


def open_loader(path: Path, **options: Any) -> hr.Loader:
    return hr.Loader(path, **{**OPTIONS, **options})
