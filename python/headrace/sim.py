"""The S3 simulator: an S3 server over a directory, with seeded misbehaviour. For tests, and to see how a job would fare."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace import _live, _native

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Server"]


class Server:
    """Serves ``directory``, whose first-level folders are buckets, until closed.

    :param profile: ``"none"``, ``"s3-standard"`` or ``"s3-express"`` (docs/simulator.md).
    :param behaviour: replaces the profile's numbers: ``first_byte_p50_ms``, ``throttle_rate``, ``reset_rate``, ...
    :param port: 0 picks a free one.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        profile: str = "none",
        behaviour: Mapping[str, float] | None = None,
        seed: int = 0,
        threads: int = 1,
        require_signature: bool = True,
        access_key: str = "headrace",
        secret_key: str = "headrace-secret",
        session_token: str = "",
        region: str = "us-east-1",
    ) -> None:
        self._native = _native.SimServer(
            os.fspath(directory),
            host=host,
            port=port,
            profile=profile,
            behaviour=None if behaviour is None else dict(behaviour),
            seed=seed,
            threads=threads,
            require_signature=require_signature,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            region=region,
        )
        self.access_key, self.secret_key, self.session_token, self.region = access_key, secret_key, session_token, region
        self.port: int = self._native.port
        self.endpoint: str = self._native.endpoint
        _live.register(self)

    def environment(self) -> dict[str, str]:
        """The variables that point any S3 client of a child process here."""
        variables = {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }
        return variables | ({"AWS_SESSION_TOKEN": self.session_token} if self.session_token else {})

    def stats(self) -> dict[str, Any]:
        """Requests by kind and status, bytes, per object; the same as ``GET /_headrace/stats``."""
        stats: dict[str, Any] = json.loads(self._native.stats_json())
        return stats

    def close(self) -> None:
        """Ends the server. May be repeated."""
        self._native.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
