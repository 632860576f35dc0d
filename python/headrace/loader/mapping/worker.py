"""A worker process: takes batches from shared memory, runs the user's functions, puts results there.

Started by process.py with nothing but a socket and a file descriptor with the plan. It ignores Ctrl-C, and
ends when its socket does, or (PR_SET_PDEATHSIG) with the thread that started it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import sys
import time
import traceback
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.data.batch import Batch
from headrace.errors import InvalidArgumentError
from headrace.loader.mapping.chain import Chain, Done
from headrace.loader.mapping.failure import Failure
from headrace.loader.mapping.messages import MOST_BYTES, OF_ENGINE, READY, Reply, Task
from headrace.loader.mapping.outcome import sent
from headrace.loader.mapping.rows import About, make_batch
from headrace.loader.mapping.slab import Slab, map_privately
from headrace.loader.mapping.steps import Plan
from headrace.loader.mapping.wire import Place, SlabWriter, read, write

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _load(plan_fd: int) -> Plan:
    plan: Plan = pickle.loads(map_privately(plan_fd, os.fstat(plan_fd).st_size).data)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(1)
    return plan


def _open_parcel(whole: npt.NDArray[np.uint8], place: Place) -> Batch:
    columns, *about = read(whole, place)
    return make_batch(Batch, columns, About(*about))


class _Worker:
    """Slabs by number, and the chain."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._chain = Chain(plan, seeds_globals=True, allocate=self._allocate)
        self._reader = _native.BatchReader(plan.columns, Batch, plan.to_arrow)
        self._sources: dict[int, int] = {}  # File descriptors.
        self._targets: dict[int, Slab] = {}
        self._writer: SlabWriter | None = None
        self._busy_ns = 0  # Of the last batch.

    def _allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        assert self._writer is not None
        return self._writer.empty(shape, dtype)

    def learn(self, task: Task, fds: list[int]) -> None:
        """Takes the file descriptors that came with a task."""
        if task.has_new_source:
            if task.source in self._sources:
                os.close(self._sources[task.source])
            self._sources[task.source] = fds.pop(0)
        if task.has_new_target:
            self._targets[task.target] = Slab(fds.pop(0))

    def do(self, task: Task) -> Reply:
        slab = self._targets[task.target]
        slab.reserve(1)
        self._writer = SlabWriter(slab)
        try:
            if task.source == OF_ENGINE:
                place, is_kept = self._do_of_engine(task), False
            else:
                place, is_kept = self._do_parcel(task)
        finally:
            self._writer = None
        return Reply(task.number, is_kept, self._busy_ns, place)

    def _do_of_engine(self, task: Task) -> Place:
        fd = self._sources[OF_ENGINE]
        place = self._run(lambda: self._reader.open(fd, task.batch))
        self._reader.end()
        return place

    def _do_parcel(self, task: Task) -> tuple[Place, bool]:
        whole = map_privately(self._sources[task.source], task.place.end)
        is_held = weakref.ref(whole)
        opened = partial(_open_parcel, whole, task.place)
        del whole
        place = self._run(opened)
        del opened
        return place, is_held() is not None

    def _run(self, opened: Callable[[], Batch]) -> Place:
        assert self._writer is not None
        start = time.perf_counter_ns()
        try:
            done = self._chain.run(opened())
            self._busy_ns = time.perf_counter_ns() - start
            return self._written(done)
        except Exception as error:
            self._busy_ns = time.perf_counter_ns() - start
            failure = Failure.sent(error)
        # Out here the exception is gone, whose traceback holds the batch.
        return write(sent(failure), self._writer)

    def _written(self, done: Done) -> Place:
        assert self._writer is not None
        try:
            return write(sent(done), self._writer, self._plan.is_torch)
        except (pickle.PicklingError, AttributeError) as error:
            names = ", ".join(self._chain.names)
            raise InvalidArgumentError(
                f"what {names} returns cannot be sent from a worker process ({error}): "
                "a class of the main program, or of a function, is one of the worker's own. Move it to a "
                "module that can be imported, return dicts or tuples, or use workers=0"
            ) from error


def _serve(connection: socket.socket, worker: _Worker) -> None:
    while True:
        data, fds, _, _ = socket.recv_fds(connection, MOST_BYTES, 2)
        if not data:
            return
        task = Task.unpacked(data)
        worker.learn(task, fds)
        connection.send(worker.do(task).packed())


def main(socket_fd: int, plan_fd: int, parent: int, dies_with_thread: bool) -> None:
    """Serves until the other side of the socket is gone. Never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if dies_with_thread:
        die_with(parent)
    for fd in (socket_fd, plan_fd):
        os.set_inheritable(fd, False)
    connection = socket.socket(fileno=socket_fd)
    try:
        worker = _Worker(_load(plan_fd))
    except Exception:
        connection.send(traceback.format_exc()[-MOST_BYTES:].encode()[-MOST_BYTES:])
        os._exit(1)
    try:
        connection.send(READY)
        _serve(connection, worker)
    except ConnectionError:
        pass  # The training loop's process has gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
