"""A loader with the user's functions behind it.

Batches are taken from the loader ahead of the training loop, so the loader's own position says too much.
Beside each batch that is under way is kept what the engine's state was behind it; the state of a mapped
loader is that of the last batch that was delivered. Where the loader has to know (another position, other
weights, a loop over the loader itself), what is under way is forgotten and it goes back to that state.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base import live
from headrace.base.metrics import stats_of
from headrace.data.batch import BadSample, Batch
from headrace.errors import CancelledError, InvalidArgumentError
from headrace.loader.epoch import Epoch
from headrace.loader.facade import Facade
from headrace.loader.mapping.chain import Bad, Done
from headrace.loader.mapping.executor import Ahead, Executor
from headrace.loader.mapping.failure import Failure
from headrace.loader.mapping.inline import Inline, Threads
from headrace.loader.mapping.mappable import Mappable, Where
from headrace.loader.mapping.meter import Meter
from headrace.loader.mapping.outcome import Outcome
from headrace.loader.mapping.pool import Pool, room_of
from headrace.loader.mapping.steps import Plan, Step
from headrace.loader.mapping.whereabouts import whereabouts

if TYPE_CHECKING:
    from headrace import _native
    from headrace.base.metrics import Metric
    from headrace.loader.loader import Loader

__all__ = ["MappedLoader"]

_MOST_BAD = 1000
# Between two looks at the loader while a worker is waited for. A look costs some microseconds.
_SLICE_SECONDS = 0.002


class _Standing(NamedTuple):
    """Where the loader stood."""

    state: _native.LoaderState
    is_placed: bool = False
    """See :class:`headrace.Loader`."""


class MappedLoader(Mappable["MappedLoader"], Facade):
    """What :meth:`headrace.Loader.map`, ``filter`` and ``collate`` return: the loader's batches, in its
    order, after the functions.

    Up to two batches a worker are taken from the loader ahead, four where functions take less than 0.1 ms.
    Loops, ``len()``, the state, epochs, weights and closing are the loader's: see :class:`headrace.Loader`.
    The state counts what the training loop received, and is a state of the loader without functions too.
    ``len()``, ``batches_left`` and ``sample_ids()`` know nothing of filters: they have what those leave out,
    too. An error of a function comes in the place of its batch, again and again until the position is
    changed; with the loader's ``on_bad_sample="replace"`` the nearest sample of the batch that worked stands
    in, masked, and ``bad_samples`` has the other.

    One thread at a time moves the position, others wait.
    """

    _loader: Loader

    def __init__(
        self,
        loader: Loader,
        steps: tuple[Step, ...],
        place: Where,
        batch_type: type[Batch] = Batch,
        widens: bool = False,
        bfloat16_dtype: Any = None,
    ) -> None:
        self._loader, self._steps, self._place = loader, steps, place
        self._batch_type, self._widens, self._bfloat16_dtype = batch_type, widens, bfloat16_dtype
        self._lock = threading.RLock()
        self._executor: Executor | None = None
        self._ahead: deque[Ahead] = deque()
        self._outcome_ahead: Outcome | None = None  # Of the first of those ahead, if it was asked for.
        self._state: _Standing | None = None  # Before the first of those ahead.
        self._before: _Standing | None = None  # Before the batch that was delivered last.
        self._engine: _native.Loader | None = None  # That the executor was made for.
        self._source_error: Exception | None = None  # Comes behind those ahead.
        self._failure: tuple[int, BaseException] | None = None  # Of the first one ahead, by its task.
        self._is_torn = False  # Something was interrupted in the middle.
        self._is_stopped = False  # The loader is closed, or is being closed by another thread.
        self._bad: list[Bad] = []
        self._meter = Meter()
        self._has_warned = False
        self._owner_pid = os.getpid()
        live.register(self)

    def __reduce__(self) -> Any:
        """The loader, with the position behind what was delivered, and the functions."""
        return MappedLoader, (self._loader, self._steps, self._place, *self._forms())

    def _mapped(self, step: Step, place: Where) -> MappedLoader:
        steps = (*self._steps, step)
        return MappedLoader(self._loader, steps, self._place.joined(place), *self._forms())

    def _forms(self) -> tuple[type[Batch], bool, Any]:
        """What functions see."""
        return self._batch_type, self._widens, self._bfloat16_dtype

    @property
    def _may_skip(self) -> bool:
        """Whether a filter may leave a batch without samples, which is not delivered then."""
        return any(step.kind == "filter" and step.holes == "compact" for step in self._steps)

    def _plan(self) -> Plan:
        options = self._loader._options
        assert options.seed is not None
        return Plan(
            self._steps,
            options.seed,
            self._batch_type,
            options.on_bad_sample == "replace",
            self._loader._bfloat16_columns,
            self._bfloat16_dtype,
            self._widens,
            self._loader._native.columns(),
            options.for_engine()["to_arrow"],
        )

    def _start_executor(self) -> Executor:
        workers, where = self._place.resolved()
        self._engine = self._loader._native
        if workers == 0:
            return Inline(self._plan(), where == "process", self._meter)
        if where == "thread":
            return Threads(self._plan(), workers, self._meter)
        return Pool(self._plan(), workers, Batch, self._meter)

    def _check_owner(self) -> None:
        if os.getpid() != self._owner_pid:
            raise InvalidArgumentError(
                "the mapped loader was made before a fork(): open a loader in the child, or use the spawn "
                "method"
            )

    def __iter__(self) -> Iterator[Any]:
        """From the position to the end of the epoch, as :meth:`headrace.Loader.__iter__`: after a loop that
        was left early the rest of its epoch, from the first batch that was not delivered; after one that came
        to its end, the next epoch. :meth:`reset` goes back to the first batch."""
        self._check_owner()
        with self._lock:
            self._mend()
            if not self._ahead:
                workers, where = self._place.resolved()
                if workers and where == "process":
                    self._loader._share(room_of(workers))
                iter(self._loader)
        return Epoch(self._next)

    def _next(self, convert: Callable[[Any], Any] | None = None) -> Any:
        """See :meth:`Loader._next`."""
        self._check_owner()
        before = None
        try:
            with self._lock:
                self._mend()
                self._claim()
                found = self._found()
                before = self._before
            if isinstance(found, BaseException):
                raise found
            if found is None:
                return None
            return found.value if convert is None else convert(found.value)
        except BaseException:
            self._unread(before)
            raise

    def _found(self) -> Done | BaseException | None:
        """As :meth:`_advance`. Where the loader is closed meanwhile, what that takes away is no error of its
        own."""
        was_stopped, self._is_torn = self._is_stopped, True
        try:
            found = self._advance()
            self._is_torn = False
        except Exception as error:
            if was_stopped or not self._is_stopped:
                raise
            found = error
        # Whether it was stopped comes first: behind a call an interrupt may come, and a batch is on its way.
        if self._is_stopped and not was_stopped and isinstance(found, Exception):
            raise CancelledError("the loader was closed while a batch was waited for") from found
        return found

    def _unread(self, before: _Standing | None) -> None:
        """Goes back to ``before``, where that is what the last batch was delivered from: the loop could not
        have it, so it comes again."""
        if before is None:
            return
        with self._lock:
            if self._before is before and self._loader._reader is self:
                self._state, self._before = before, None
                self._go_back()

    def _advance(self) -> Done | BaseException | None:
        """What comes next: a batch, an error to raise, or None at the end of the epoch."""
        while True:
            self._fill()
            if not self._ahead:
                failed, self._source_error = self._source_error, None
                return failed
            head = self._ahead[0]
            if self._failure is not None and self._failure[0] == head.task:
                return self._failure[1]
            outcome = self._outcome(head)
            if isinstance(outcome, Failure):
                error = outcome.error(self._describe(head, outcome))
                self._failure = head.task, error
                return error
            self._warn(outcome.bad, depth=6)  # Where that is made an error, the batch comes again.
            self._note(outcome)
            state = head.state
            if not outcome.is_empty:
                if self._may_skip:
                    state = self._skip_empty(state)
                # Last: then it counts as delivered.
                self._before, self._state = self._state, _Standing(state)
                return outcome
            assert self._state is not None
            self._state = _Standing(state, self._state.is_placed)

    def _note(self, done: Done) -> None:
        """The first one ahead is done, and under way no more."""
        self._ahead.popleft()
        self._outcome_ahead = None
        self._list(done.bad)
        self._meter.replaced_samples += len(done.bad)
        if done.is_empty:
            self._meter.empty_batches += 1
        else:
            self._meter.batches += 1

    def _skip_empty(self, state: _native.LoaderState) -> _native.LoaderState:
        """The state behind those that come next and are empty: what is delivered before them is known to be
        the last of its epoch, if it is."""
        while not self._loader._has_ended or self._ahead:
            self._fill()
            if not self._ahead:
                break
            head = self._ahead[0]
            outcome = self._outcome(head)
            if isinstance(outcome, Failure) or not outcome.is_empty:
                break
            self._warn(outcome.bad, depth=7)
            self._note(outcome)
            state = head.state
        return state

    def _outcome(self, head: Ahead) -> Outcome:
        """What became of the first one ahead; waits for it."""
        if self._outcome_ahead is None:
            start = time.monotonic()
            self._wait(head.task)
            assert self._executor is not None
            self._outcome_ahead = self._executor.result(head.task)
            self._meter.waited(time.monotonic() - start, lambda: self._describe(head, None))
        return self._outcome_ahead

    def _claim(self) -> None:
        """Makes this the one that takes batches ahead, and notes where the loader stands."""
        loader = self._loader
        self._before = None
        if loader._reader is not self:  # Else it stands where this one knows.
            loader._recall()
            if self._engine is not loader._native:
                self._end_executor()  # Its workers know the columns of another.
            self._state = _Standing(loader._native.state_later(), loader._was_placed)
            loader._reader = self
        loader._history.beside = self._meter.waits
        if loader._progress is not None:
            loader._progress.beside = self._meter.waits

    def _fill(self) -> None:
        """Takes batches from the loader until enough are under way. Waits for it only where none is."""
        loader = self._loader
        if self._executor is None:
            if self._is_stopped:
                raise InvalidArgumentError("the loader is closed")
            self._executor = self._start_executor()
        while self._may_take():
            native = loader._native
            if self._ahead and not native.is_ready:
                return
            loader._before = None
            try:
                ahead = self._executor.submit(loader)
            except Exception as error:
                if loader._before is not None:
                    raise  # It has left the loader, and is not under way: all that is under way begins anew.
                self._source_error = error
                return
            if ahead is None:
                return
            self._ahead.append(ahead)

    def _may_take(self) -> bool:
        """Whether the loader has more for the workers, now or later."""
        assert self._executor is not None
        if self._source_error is not None or not self._executor.wants(len(self._ahead)):
            return False
        # Asked once more, it would go into the next epoch before the loop has had what is under way.
        return not self._ahead or not self._loader._native.has_taken_all

    def _wait(self, task: int) -> None:
        """Until a task is done; meanwhile gives the workers what the loader brings."""
        executor = self._executor
        assert executor is not None
        while not executor.is_done(task):
            if not executor.wait(task, _SLICE_SECONDS if self._may_take() else None):
                self._fill()

    def _mend(self) -> None:
        if self._is_torn:
            self._rewind()

    def _rewind(self) -> None:
        """Forgets what is under way: the loader stands behind the last batch that was delivered."""
        with self._lock:
            if self._is_torn and self._executor is not None:
                self._executor.close()
                self._executor = None
            if self._is_ahead:
                self._go_back()
            self._is_torn = False

    def _go_back(self) -> None:
        if self._executor is not None:
            self._executor.drop()
        self._ahead.clear()
        self._outcome_ahead = None
        self._source_error = self._failure = None
        if not self.closed:
            assert self._state is not None
            self._loader._native.load_state(self._state.state.text())
            self._loader._was_placed = self._state.is_placed

    def _describe(self, head: Ahead, failure: Failure | None) -> str:
        """What was done, to which sample, for messages."""
        batch = f"batch {head.number} of epoch {head.epoch}"
        names = ", ".join(step.name for step in self._steps)
        if failure is not None and failure.step is not None:
            names = self._steps[failure.step].name
        if failure is None or failure.sample is None:
            ids = memoryview(head.ids).cast("q").tolist()
            shown = ", ".join(map(str, ids[:20])) + (", ..." if len(ids) > 20 else "")
            return f"{names} of {batch} of {self._loader._dataset.url} (samples {shown})"
        return f"{names} of sample {failure.sample} {whereabouts(self._loader, failure.sample)}, in {batch}"

    def _book(self, bad: list[Bad]) -> None:
        """What workers of a DataLoader have replaced."""
        self._list(bad)
        self._meter.replaced_samples += len(bad)
        self._warn(bad, depth=6)

    def _list(self, bad: list[Bad]) -> None:
        self._bad += bad[: _MOST_BAD - len(self._bad)]

    def _warn(self, bad: list[Bad], depth: int) -> None:
        """:param depth: of the calls from the training loop's line, which the warning names, to here."""
        if self._has_warned or not bad:
            return
        self._has_warned = True
        warnings.warn(
            f"{self._loader._dataset.url}: {bad[0].message}. Samples whose function fails are replaced by "
            "others of their batch, masked; batch.replaced and bad_samples name them. This is said once.",
            RuntimeWarning,
            stacklevel=depth,
        )

    @property
    def batches_left(self) -> int:
        """Batches from the position to the end of the epoch, those included that a filter empties."""
        with self._lock:
            if not self._ahead:
                return self._loader.batches_left
            native = self._loader._native
            return len(self._ahead) + (0 if native.has_taken_all else native.batches_left)

    @property
    def epoch(self) -> int:
        """Epoch of the position, from 0."""
        return int(self.state_dict()["epoch"])

    @property
    def _is_ahead(self) -> bool:
        """Whether the loader stands behind what was delivered."""
        return bool(self._ahead) or self._is_torn

    @property
    def _has_ended(self) -> bool:
        return not self._ahead and self._loader._has_ended

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`headrace.Loader.state_dict`: counts what the training loop received from here."""
        if self._is_ahead:
            assert self._state is not None
            state: dict[str, Any] = json.loads(self._state.state.text())
            return state
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`headrace.Loader.load_state_dict`; a state of the loader without functions will do."""
        with self._lock:
            self._rewind()
            self._loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """See :meth:`headrace.Loader.set_epoch`."""
        with self._lock:
            self._rewind()
            self._loader.set_epoch(epoch)

    def reset(self, epoch: int | None = None) -> None:
        """See :meth:`headrace.Loader.reset`."""
        with self._lock:
            self._rewind()
            self._loader.reset(epoch)

    def set_weights(self, weights: Mapping[str, float], at_step: int | None = None) -> int:
        """See :meth:`headrace.Loader.set_weights`."""
        with self._lock:
            self._rewind()
            return self._loader.set_weights(weights, at_step)

    def add_source(
        self, name: str, source: Any, weights: Mapping[str, float], at_step: int | None = None
    ) -> int:
        """See :meth:`headrace.Loader.add_source`."""
        with self._lock:
            self._rewind()
            return self._loader.add_source(name, source, weights, at_step)

    @property
    def bad_samples(self) -> list[BadSample]:
        """Those of the loader, and those whose functions failed and were replaced; the first 1,000 of
        each."""
        return [*self._loader.bad_samples, *(BadSample(bad.sample, 1, bad.message) for bad in self._bad)]

    def stats(self) -> dict[str, Any]:
        """See :meth:`headrace.Loader.stats`; with what the functions did, and the waits for them."""
        return stats_of(self.metrics())

    def metrics(self) -> Sequence[Metric]:
        """See :meth:`headrace.Loader.metrics`; with what the functions did, and the waits for them."""
        workers = 0 if self._executor is None else self._place.resolved()[0]
        return self._meter.added_to(self._loader.metrics(), workers)

    # What torch's and other's loops ask of a loader.

    @property
    def _native(self) -> Any:
        return self._loader._native

    @property
    def _dataset(self) -> Any:
        return self._loader._dataset

    @property
    def _global_batch(self) -> int:
        return self._loader._global_batch

    @property
    def _is_placed(self) -> bool:
        if self._is_ahead:
            assert self._state is not None
            return self._state.is_placed
        return self._loader._is_placed

    def _stands_at(self, batch: int) -> bool:
        with self._lock:
            self._rewind()
            return self._loader._stands_at(batch)

    def _start_at(self, batch: int) -> None:
        if batch and self._may_skip:
            raise InvalidArgumentError(
                'filter(holes="compact") leaves batches out, so the number of those that a loop has had does '
                'not say where it goes on: use holes="mask", or skip none, and load_state_dict() says where'
            )
        with self._lock:
            self._rewind()
            self._loader._start_at(batch)

    def close(self) -> None:
        """Ends the workers at once, and closes the loader. Batches in use stay valid. May be repeated."""
        self._stop()
        self._loader.close()

    def _stop(self) -> None:
        """See Reader."""
        self._is_stopped = True
        self._end_executor()

    def _end_executor(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None and os.getpid() == self._owner_pid:
            executor.close()

    def __repr__(self) -> str:
        return f"MappedLoader({self._loader!r}, {', '.join(step.name for step in self._steps)})"
