"""Worker processes, and the shared memory that batches go through.

Memory is bounded: two batches a worker are under way; four where functions are quick, which end sooner than a
process that sleeps is woken. What goes in lies in the engine's memory, and counts
against its limit, as far as the engine has it to spare, the rest in slabs; what comes out in slabs. Besides,
the training loop may hold _HELD results without a copy. What it holds more is its own copy.
"""

from __future__ import annotations

import os
import select
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.data.batch import Batch
from headrace.errors import UserCodeError
from headrace.loader.mapping.executor import Ahead
from headrace.loader.mapping.failure import Failure
from headrace.loader.mapping.functions import pack
from headrace.loader.mapping.messages import MOST_PLACE_BYTES, OF_ENGINE, Reply, Task
from headrace.loader.mapping.meter import Meter
from headrace.loader.mapping.outcome import Outcome, received
from headrace.loader.mapping.process import WorkerProcess
from headrace.loader.mapping.rows import About
from headrace.loader.mapping.slab import Slab
from headrace.loader.mapping.steps import Plan
from headrace.loader.mapping.wire import Place, SlabWriter, read, write

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace import _native
    from headrace.loader.loader import Loader

__all__ = ["Pool", "room_of"]

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()

_HELD = 4
_DEATHS = 3
"""So many times a batch may end the process that works on it."""


_NOWHERE = Place(0, 0, 0, 0)
_QUICK_NS = 100_000
"""Functions that take less are quick. Waking a process costs 5 to 50 us."""


def room_of(workers: int, is_quick: bool = False) -> int:
    """Batches under way at most."""
    return (4 if is_quick else 2) * workers


class _Slabs:
    """Slabs by number: those that are free, the one used last first, since its pages are warm."""

    def __init__(self) -> None:
        self.by_number: dict[int, Slab] = {}
        self.free: deque[int] = deque()

    def take(self) -> int:
        try:
            return self.free.pop()
        except IndexError:
            number = len(self.by_number)
            self.by_number[number] = Slab.create()
            return number

    def close(self) -> None:
        for slab in self.by_number.values():
            slab.close()


class Pool:
    """Works on batches in processes. One thread at a time.

    What it delivers of a batch that is no array is made anew; arrays view shared memory, which is used again
    when the last of a batch is gone.
    """

    def __init__(self, plan: Plan, count: int, kind: type[Batch], meter: Meter) -> None:
        self._kind, self._meter = kind, meter
        self._workers: list[WorkerProcess] = []
        self._poll, self._by_fd = select.poll(), dict[int, WorkerProcess]()
        self._sources, self._targets = _Slabs(), _Slabs()
        self._held: dict[int, weakref.ref[Any]] = {}  # Target slabs that the training loop has arrays of.
        self._next_task = 0
        self._batches: dict[int, _native.TakenBatch] = {}  # In the engine's memory, by task.
        self._replies: dict[int, tuple[Task, Reply | Failure]] = {}
        self._dropped: set[int] = set()
        self._deaths: dict[int, int] = {}  # By task.
        self._failed_starts = 0
        self._plan_fd = os.memfd_create("headrace-plan", os.MFD_CLOEXEC)
        self._room, self._is_filling = room_of(count), True
        self._is_quick, self._mean_ns = False, 2 * _QUICK_NS
        data = pack(plan)
        with open(self._plan_fd, "wb", closefd=False) as file:
            file.write(data)
        self._end = weakref.finalize(
            self, _end, self._workers, self._sources, self._targets, self._plan_fd, os.getpid()
        )
        _pools.add(self)
        for _ in range(count):
            self._workers.append(WorkerProcess(self._plan_fd))
            self._watch(self._workers[-1])

    def wants(self, under_way: int) -> bool:
        """See Executor. Where functions are quick, takes batches by the half of its room, so that it does not
        wake a process for each."""
        if under_way >= self._room:
            self._is_filling = False
        elif 2 * under_way <= self._room or not self._is_quick:
            self._is_filling = True
        return self._is_filling

    def submit(self, loader: Loader) -> Ahead | None:
        """See Executor."""
        may_hold = loader._share(self._room)
        taken = loader._take()
        if taken is None:
            return None
        batch = taken.place() if len(self._batches) < may_hold else None
        if batch is not None and len(batch) <= MOST_PLACE_BYTES:
            source, place = OF_ENGINE, _NOWHERE
        else:
            source, place, batch = *self._copied(loader._native.open(taken)), b""
        number, self._next_task = self._next_task, self._next_task + 1
        task = Task(number, source, self._targets.take(), place, False, False, batch)
        if source == OF_ENGINE:
            self._batches[number] = taken
        self._least_busy().send(task, self._fds)
        return Ahead(number, loader._native.state_later(), taken.ids, taken.epoch, taken.index)

    def _least_busy(self) -> WorkerProcess:
        found, least = self._workers[0], len(self._workers[0].tasks)
        for worker in self._workers:
            if len(worker.tasks) < least:
                found, least = worker, len(worker.tasks)
        return found

    def _copied(self, batch: Batch) -> tuple[int, Place]:
        """A slab that has the batch as a parcel."""
        source = self._sources.take()
        return source, write((dict(batch), *About.of(batch)), SlabWriter(self._sources.by_number[source]))

    def _fds(self, task: Task) -> tuple[int, int]:
        """Of the memory that the batch lies in, and that for what becomes of it."""
        if task.source == OF_ENGINE:
            return self._batches[task.number].fd, self._targets.by_number[task.target].fd
        return self._sources.by_number[task.source].fd, self._targets.by_number[task.target].fd

    def is_done(self, number: int) -> bool:
        """See Executor."""
        return number in self._replies

    def wait(self, number: int, seconds: float | None) -> bool:
        """Waits for a task, at most so long; whether it is done. Raises UserCodeError where no worker can be
        started."""
        if number not in self._replies:
            self._take_replies(seconds)
        return number in self._replies

    def result(self, number: int) -> Outcome:
        """What became of a task; waits for it. Raises UserCodeError as :meth:`wait` does."""
        while not self.wait(number, None):
            pass
        task, reply = self._replies.pop(number)
        if isinstance(reply, Failure):
            self._targets.free.append(task.target)
            return reply
        return self._read(task.target, reply)

    def _read(self, target: int, reply: Reply) -> Outcome:
        slab = self._targets.by_number[target]
        slab.reserve(reply.place.end)
        whole = slab.whole()
        if len(self._held) >= _HELD:
            whole = whole[: reply.place.end].copy()
        outcome = received(read(whole, reply.place), self._kind)
        if whole.base is not None:
            self._hold(target, whole)
        else:
            self._targets.free.append(target)
        return outcome

    def _hold(self, target: int, whole: npt.NDArray[np.uint8]) -> None:
        """Keeps the slab until no array is made of it any more. The callback may run in any thread."""
        held, free = self._held, self._targets.free

        def release(_: Any) -> None:
            held.pop(target, None)
            free.append(target)

        held[target] = weakref.ref(whole, release)

    def _watch(self, worker: WorkerProcess) -> None:
        self._by_fd[worker.fileno()] = worker
        self._poll.register(worker, select.POLLIN)

    def _take_replies(self, seconds: float | None) -> None:
        """Waits for packets, at most so long, and takes one of each worker that has any. Ctrl-C ends the
        wait."""
        for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            worker = self._by_fd[fd]
            task = worker.tasks[0] if worker.tasks else None
            try:
                reply = worker.receive()
            except EOFError:
                self._revive(worker)
                continue
            if reply is not None:
                assert task is not None
                self._book(worker, task, reply)

    def _book(self, worker: WorkerProcess, task: Task, reply: Reply) -> None:
        if reply.is_source_kept:
            self._sources.by_number[task.source].close()
            self._sources.by_number[task.source] = Slab.create()
            for each in self._workers:
                each.forget_source(task.source)
        self._meter.function_seconds += 1e-9 * reply.busy_ns
        self._mean_ns += (reply.busy_ns - self._mean_ns) // 8
        if (self._mean_ns < _QUICK_NS) != self._is_quick:
            self._is_quick = not self._is_quick
            self._room = room_of(len(self._workers), self._is_quick)
        self._finish(task, reply)

    def _finish(self, task: Task, reply: Reply | Failure) -> None:
        if task.source == OF_ENGINE:
            del self._batches[task.number]  # The memory is the engine's again.
        else:
            self._sources.free.append(task.source)
        self._deaths.pop(task.number, None)
        if task.number in self._dropped:
            self._dropped.discard(task.number)
            self._targets.free.append(task.target)
        else:
            self._replies[task.number] = task, reply

    def _revive(self, worker: WorkerProcess) -> None:
        """Replaces a process that has ended. The batch that it worked on counts its deaths; one that it had
        not begun is not to blame."""
        how = worker.ended()
        self._poll.unregister(worker)
        del self._by_fd[worker.fileno()]
        if not worker.is_ready:
            self._failed_starts += 1
            if worker.problem or self._failed_starts >= _DEATHS:
                raise UserCodeError(
                    f"a worker process cannot load the functions:\n{worker.problem}"
                    if worker.problem
                    else f"{_DEATHS} worker processes ended while they started; the last with {how}"
                )
        elif worker.tasks:
            self._blame(worker, how)
        self._meter.worker_restarts += 1
        worker.restart(self._fds)
        self._watch(worker)

    def _blame(self, worker: WorkerProcess, how: str) -> None:
        task = worker.tasks[0]
        deaths = self._deaths[task.number] = self._deaths.get(task.number, 0) + 1
        if deaths < _DEATHS:
            return
        worker.tasks.popleft()
        summary = f"{deaths} worker processes ended over this batch, the last with {how}"
        self._finish(task, Failure(None, summary, "", None, None))

    def drop(self) -> None:
        """Forgets all tasks; their results will not be asked for."""
        for task, _ in self._replies.values():
            self._targets.free.append(task.target)
        self._replies.clear()
        self._dropped.update(task.number for worker in self._workers for task in worker.tasks)

    def forget(self) -> None:
        """In a forked child: everything is the parent's."""
        self._end.detach()
        for worker in self._workers:
            worker.forget()

    def close(self) -> None:
        """Ends the processes at once. Results stay valid. May be repeated."""
        self._end()
        self._batches.clear()


def _end(
    workers: list[WorkerProcess], sources: _Slabs, targets: _Slabs, plan_fd: int, owner_pid: int
) -> None:
    """What is left to do of a pool that is closed or gone."""
    if os.getpid() != owner_pid:
        return
    for worker in workers:
        worker.close()
    sources.close()
    targets.close()
    os.close(plan_fd)


def _forget_all() -> None:
    """In a forked child: it must not keep the parent's workers from seeing the parent's end."""
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)
