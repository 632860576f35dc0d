"""LitData's streaming from a simulator, for the benchmarks beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def litdata_source(url: str, cache: str | Path, endpoint: str) -> dict[str, Any]:
    """Arguments of its StreamingDataset that read `url` from there, with the credentials of the
    environment."""
    import botocore.config
    import litdata

    # Its obstore path refuses plain HTTP unless told.
    downloader = litdata.streaming.downloader
    downloader._OBSTORE_CLIENT_OPTIONS = {**(downloader._OBSTORE_CLIENT_OPTIONS or {}), "allow_http": True}
    return {
        "input_dir": litdata.streaming.resolver.Dir(path=str(cache), url=url),
        "storage_options": {
            "endpoint_url": endpoint,
            "config": botocore.config.Config(s3={"addressing_style": "path"}),
        },
    }
