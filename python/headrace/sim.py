"""The S3 simulator: an S3 server over a directory, with seeded misbehaviour. For tests, and to see how a job
would fare."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from headrace import _native
from headrace.base import live
from headrace.errors import InvalidArgumentError

__all__ = ["Server", "profiles"]


def _behaviour_json(fields: Mapping[str, float]) -> str:
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):  # which JSON has no word for
            raise InvalidArgumentError(f"simulator behaviour: {name} must be a finite number, not {value}")
    return json.dumps(dict(fields))


def profiles() -> list[str]:
    """Names for ``Server(profile=...)``; docs/simulator.md has their numbers."""
    return _native.SimServer.profile_names()


class Server(live.Closing):
    """Serves ``directory``, whose first-level folders are buckets, until closed.

    :param profile: one of :func:`profiles` (docs/simulator.md).
    :param behaviour: changes the profile's numbers: ``first_byte_p50_ms``, ``throttle_rate``, ``reset_rate``,
        ...
    :param port: 0 picks a free one.
    :param bearer_token: accepted from clients of Google's XML API.
    :param addresses: how many loopback addresses to listen on, from ``host`` upwards.
    :param tls: serve https; ``ca_path`` is then the certificate that clients must trust.
    :param certificate: a PEM to serve https with instead of one made for it; ``private_key`` is its key.
    :param redirect_reads: answer reads at the first address with 307 to another one.
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
        bearer_token: str = "",
        addresses: int = 1,
        tls: bool = False,
        certificate: str | os.PathLike[str] = "",
        private_key: str | os.PathLike[str] = "",
        redirect_reads: bool = False,
        count_repeats: bool = False,
    ) -> None:
        options: dict[str, Any] = {
            "host": host,
            "port": port,
            "profile": profile,
            "seed": seed,
            "threads": threads,
            "require_signature": require_signature,
            "access_key": access_key,
            "secret_key": secret_key,
            "session_token": session_token,
            "region": region,
            "bearer_token": bearer_token,
            "addresses": addresses,
            "tls": tls,
            "certificate": os.fspath(certificate),
            "private_key": os.fspath(private_key),
            "redirect_reads": redirect_reads,
            "count_repeats": count_repeats,
        }
        if behaviour is not None:
            options["behaviour"] = _behaviour_json(behaviour)
        self._native = _native.SimServer(os.fspath(directory), options)
        self.access_key, self.secret_key, self.session_token, self.region = (
            access_key,
            secret_key,
            session_token,
            region,
        )
        self.port: int = self._native.port
        self.endpoint: str = self._native.endpoint
        self.addresses: list[str] = self._native.addresses
        self.ca_path: str = self._native.ca_path
        live.register(self)

    def environment(self) -> dict[str, str]:
        """The variables that point any S3 client of a child process here."""
        variables = {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }
        if self.ca_path:
            variables |= {"AWS_CA_BUNDLE": self.ca_path}
        return variables | ({"AWS_SESSION_TOKEN": self.session_token} if self.session_token else {})

    def stats(self) -> dict[str, Any]:
        """Requests by kind and status, bytes, per object; the same as ``GET /_headrace/stats``."""
        stats: dict[str, Any] = json.loads(self._native.stats_json())
        return stats

    def set_behaviour(self, **fields: float) -> None:
        """Changes these numbers from the next request on."""
        self._native.set_behaviour(_behaviour_json(fields))

    def advance(self, seconds: float) -> None:
        """Moves the simulator's clock ahead: whatever waits, expires or grows with time does so at once."""
        self._native.advance(round(seconds * 1000))

    def expire_credentials(self) -> None:
        """From now on the session token, and present Express sessions, are expired."""
        self._native.expire_credentials()

    def touch(self, bucket: str, key: str) -> None:
        """Gives the object a new version with the same bytes."""
        self._native.touch(bucket, key)

    def close(self) -> None:
        """Ends the server. May be repeated."""
        self._native.stop()
