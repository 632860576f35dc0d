"""A worker of a DataLoader, with what it gets from the process that reads for it."""

from __future__ import annotations

import json
import os
import socket
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info

from headrace.data.batch import Batch
from headrace.errors import InvalidArgumentError
from headrace.loader.mapping.chain import Bad, Chain
from headrace.loader.mapping.failure import Failure
from headrace.loader.mapping.rows import About, make_batch
from headrace.loader.mapping.slab import map_privately
from headrace.loader.mapping.steps import Plan
from headrace.loader.mapping.wire import Place, read
from headrace.loader.relay.messages import failure_of, receive, send

__all__ = ["Job", "Remote"]

_GONE = "the process that reads for this DataLoader worker has closed the loader, or ended"
_STATE_VERSION = 1
_MOST_BAD, _MOST_LETTERS = 40, 500  # A packet has room for them, at six bytes a letter.


class Job(NamedTuple):
    """What a worker makes of the batches of a loader."""

    plan: Plan | None
    """Functions; None: there are none."""
    convert: Callable[[Any], Any]
    """What is delivered of a batch, or of what the functions made of it."""
    url: str
    """Of the dataset, for messages."""


class _Part:
    """Iterator of a worker's part of one loop. An error comes again and again."""

    def __init__(self, remote: Remote, loop: int) -> None:
        self._remote, self._loop = remote, loop
        self._end: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._end is None:
            try:
                return self._remote.take(self._loop)
            except Exception as error:
                self._end = error.with_traceback(None)
                raise
        raise self._end


class Remote(IterableDataset[Any]):
    """The dataset of a worker: this worker's part of each loop. One thread at a time.

    Its state is that of the worker alone, as torchdata's StatefulDataLoader keeps it; all of them together
    say where the loop goes on.
    """

    def __init__(self, connection: socket.socket, job: Job) -> None:
        self._connection, self._job = connection, job
        self._chain: Chain | None = None
        self._fds: dict[int, int] = {}  # Of slabs, by number.
        self._used: dict[
            int, weakref.ref[Any] | None
        ] = {}  # Slabs of ours; None: nothing is left of the batch.
        self._bad: list[Bad] = []  # Not told yet.
        self._next, self._state = 0, ""  # Where the worker stands, see Start.
        self._is_placed = False

    def __iter__(self) -> Iterator[Any]:
        if self._chain is None and self._job.plan is not None:
            self._chain = Chain(self._job.plan, seeds_globals=True)
        start = [self._next, self._state] if self._is_placed else None
        self._is_placed = False
        self._send({"begin": start})
        while "begun" not in (reply := self._receive()):
            pass  # Of a loop that was left.
        if start is None:
            self._next, self._state = _own_place()[0], reply["state"] or ""
        return _Part(self, reply["begun"])

    def take(self, loop: int) -> Any:
        """What comes next in a loop. Raises StopIteration at its end."""
        self._tell()
        self._send({"free": self._returned()})
        while (message := self._receive())["of"] != loop:
            pass
        if "end" in message:
            raise StopIteration
        if "error" in message:
            raise failure_of(message).error(f"reading {self._job.url}")
        try:
            value = self._made(message)
        except Exception as error:
            self._send({"failed": f"another worker has failed: {error!r:.2000}"})
            raise
        self._next, self._state = message["number"] + _own_place()[1], message["state"]
        return value

    def _made(self, message: dict[str, Any]) -> Any:
        number, place = message["slab"], Place(*message["place"])
        whole = map_privately(self._fds[number], place.end)
        self._used[number] = weakref.ref(whole)
        columns, *about = read(whole, place)
        batch = make_batch(Batch, columns, About(*about))
        del whole, columns, about
        return self._job.convert(batch if self._chain is None else self._run(batch))

    def _run(self, batch: Batch) -> Any:
        assert self._chain is not None
        what = f"batch {batch.index} of epoch {batch.epoch} of {self._job.url}"
        try:
            done = self._chain.run(batch)
        except Exception as error:
            failure = Failure.of(error)
            steps = (
                self._chain.names
                if failure.step is None
                else self._chain.names[failure.step : failure.step + 1]
            )
            sample = "" if failure.sample is None else f"sample {failure.sample}, in "
            raised = failure.error(f"{', '.join(steps)} of {sample}{what}")
        else:
            self._bad += done.bad
            return done.value
        raise raised

    def _send(self, message: dict[str, Any]) -> None:
        try:
            send(self._connection, message)
        except OSError:
            raise InvalidArgumentError(_GONE) from None

    def _receive(self) -> dict[str, Any]:
        try:
            message, fds = receive(self._connection)
        except EOFError:
            raise InvalidArgumentError(_GONE) from None
        if "slab" in message:
            number = message["slab"]
            self._used[number] = None
            if fds:
                self._fds[number] = fds[0]
                os.set_inheritable(fds[0], False)
        return message

    def _returned(self) -> list[int]:
        """Slabs that nothing lies in any more. They are not ours then."""
        free = [number for number, used in self._used.items() if used is None or used() is None]
        for number in free:
            del self._used[number]
        return free

    def _tell(self) -> None:
        bad, self._bad = self._bad, []
        for begin in range(0, len(bad), _MOST_BAD):
            part = bad[begin : begin + _MOST_BAD]
            self._send({"bad": [(each.sample, each.message[:_MOST_LETTERS]) for each in part]})

    def state_dict(self) -> dict[str, Any]:
        worker, workers = _own_place()
        return {
            "version": _STATE_VERSION,
            "worker": worker,
            "workers": workers,
            "next": self._next,
            "state": json.loads(self._state) if self._state else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises InvalidArgumentError for what is no state of this worker among as many."""
        mine = _own_place()
        if state.get("version") != _STATE_VERSION or (state.get("worker"), state.get("workers")) != mine:
            raise InvalidArgumentError(
                f"this is no state of worker {mine[0]} of {mine[1]} of a DataLoader over a "
                "headrace.torch.Loader: load a state that was saved with the same num_workers, or the "
                "loader's own: loader.load_state_dict(state)"
            )
        if state["state"] is None:
            return  # Of a loop that could not begin.
        self._next, self._state, self._is_placed = int(state["next"]), json.dumps(state["state"]), True


def _own_place() -> tuple[int, int]:
    """Number of this worker, and how many there are."""
    info = get_worker_info()
    assert info is not None
    return info.id, info.num_workers
