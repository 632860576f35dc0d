"""What the ranks of a job tell one another: small JSON through the job's key-value store.

No collectives: a rank that has died is then a key that does not come, and the error names it.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

from headrace.base.ranks import Rank, find_rank, jax_rank, torch_rank
from headrace.checkpoint.exchange import Exchange, TorchExchange
from headrace.errors import DeadlineError, InvalidArgumentError

__all__ = ["Group", "KeyValues", "find_group"]

_POLL_SECONDS = 0.005
_PIECE = 1 << 20
"""Characters, of JSON and so of ASCII."""
_ANSWER_MS = 60_000
"""In which jax.distributed answers what it has."""
_numbers = itertools.count()


class KeyValues(Protocol):
    """What is used of torch's stores (TCPStore, FileStore, HashStore)."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def delete_key(self, key: str) -> bool: ...


class Group:
    """The ranks that save and load together. Calls come in the same order on each of them.

    :param values: shared by all; None where there is one rank.
    :param timeout: seconds that a rank may be late.
    :param exchange: by which they hand bytes to one another; None: they cannot.
    """

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        values: KeyValues | None = None,
        timeout: float = 600.0,
        exchange: Exchange | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise InvalidArgumentError(f"rank={rank} of world_size={world_size}")
        if world_size > 1 and values is None:
            raise InvalidArgumentError("several ranks need a store to tell one another what they have saved")
        self.rank, self.world_size, self.timeout = rank, world_size, timeout
        self.exchange = exchange
        self._values = values
        self._rounds: dict[str, int] = {}
        self._said: dict[str, list[str]] = defaultdict(list)

    def gather(self, what: str, value: Any, of: str = "") -> list[Any]:
        """What each rank says, by rank; ``value`` is JSON. Raises DeadlineError, naming those that said
        nothing in time.

        :param of: what it is said of, once, such as a save's id: ranks of which one has given up a save would
            else take what others say of it for what they say of the next. Default: rounds are counted.
        """
        if self._values is None:
            return [value]
        keys = self._keys(what, of)
        self._values.set(keys[self.rank], json.dumps(value))
        return [json.loads(text) for text in self._wait(what, keys)]

    def broadcast(self, what: str, value: Any) -> Any:
        """What rank 0 says, on all ranks."""
        return self.gather(what, value if self.rank == 0 else None)[0]

    def _keys(self, what: str, of: str) -> list[str]:
        """Of a round. This rank's of two rounds before is deleted: nobody reads it any more, since everybody
        has spoken in the one between, or has failed."""
        assert self._values is not None
        if not of:
            number = self._rounds[what] = self._rounds.get(what, -1) + 1
            of = str(number)
        keys = [f"{what}/{of}/{rank}" for rank in range(self.world_size)]
        said = self._said[what]
        said.append(keys[self.rank])
        if len(said) > 2:
            self._values.delete_key(said.pop(0))
        return keys

    def _wait(self, what: str, keys: Sequence[str]) -> list[bytes]:
        assert self._values is not None
        deadline = time.monotonic() + self.timeout
        while not self._values.check(list(keys)):
            if time.monotonic() > deadline:
                missing = [key.rpartition("/")[2] for key in keys if not self._values.check([key])]
                raise DeadlineError(
                    f"checkpoint: {what}: rank {', '.join(missing)} of {self.world_size} said nothing for "
                    f"{self.timeout:g} s; it may have died, or not have called save() or load()"
                )
            time.sleep(_POLL_SECONDS)
        return [self._values.get(key) for key in keys]


def find_group(timeout: float) -> Group:
    """That of torch.distributed or jax.distributed where it is initialised; else this process alone. Raises
    InvalidArgumentError for one of several processes that have no way to agree."""
    if here := torch_rank():
        return _group_of(here, _TorchKeys(), timeout, TorchExchange(timeout))
    if here := jax_rank():
        return _group_of(here, _JaxKeys(), timeout)
    started = find_rank()
    if started.world_size > 1:
        raise InvalidArgumentError(
            f"this is rank {started.rank} of {started.world_size}, which have to agree on checkpoints: call "
            "torch.distributed.init_process_group() or jax.distributed.initialize() before, or give "
            "Checkpointer(group=...)"
        )
    return Group(timeout=timeout)


def _group_of(here: Rank, keys: KeyValues, timeout: float, exchange: Exchange | None = None) -> Group:
    if here.world_size == 1:
        return Group(timeout=timeout)
    return Group(here.rank, here.world_size, keys, timeout, exchange)


def _next_prefix() -> str:
    """Of the next group's keys. Groups are numbered when they say something first, which all ranks do
    together: one that a single rank has opened, to look, says nothing and takes no number."""
    return f"headrace/checkpoint/{next(_numbers)}"


class _JaxKeys:
    """Keys of one group in the key-value store of jax.distributed. Values go there in pieces, as a message of
    gRPC has 4 MiB at most, and are there when their number of pieces is."""

    @cached_property
    def _prefix(self) -> str:
        return _next_prefix()

    @property
    def _client(self) -> Any:
        return sys.modules["jax._src.distributed"].global_state.client

    def set(self, key: str, value: str) -> None:
        pieces = [value[at : at + _PIECE] for at in range(0, len(value), _PIECE)]
        for number, piece in enumerate(pieces):
            self._client.key_value_set(f"{self._prefix}/piece/{key}/{number}", piece)
        self._client.key_value_set(f"{self._prefix}/count/{key}", str(len(pieces)))

    def get(self, key: str) -> bytes:
        count = int(self._get(f"{self._prefix}/count/{key}"))
        return "".join(self._get(f"{self._prefix}/piece/{key}/{n}") for n in range(count)).encode()

    def _get(self, key: str) -> str:
        value: str = self._client.blocking_key_value_get(key, _ANSWER_MS)
        return value

    def check(self, keys: list[str]) -> bool:
        wanted = {f"{self._prefix}/count/{key}" for key in keys}
        folders = {key.rpartition("/")[0] for key in wanted}
        there = (name for folder in folders for name, _ in self._client.key_value_dir_get(f"{folder}/"))
        return wanted <= set(there)

    def delete_key(self, key: str) -> bool:
        self._client.key_value_delete(f"{self._prefix}/count/{key}")
        self._client.key_value_delete(f"{self._prefix}/piece/{key}/")
        return True


class _TorchKeys:
    """Keys of one group in the store of torch.distributed."""

    @cached_property
    def _store(self) -> Any:
        from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

        return PrefixStore(_next_prefix(), _get_default_store())

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return bytes(self._store.get(key))

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))

    def delete_key(self, key: str) -> bool:
        return bool(self._store.delete_key(key))
