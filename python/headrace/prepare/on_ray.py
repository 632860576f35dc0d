"""Conversions on a Ray cluster: parts are claimed in the object store, so any number of drivers and machines
may join in or die."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.data.dataset import Dataset
from headrace.errors import ChangedError, HeadraceError, UnsupportedError
from headrace.prepare.job import Job, PartMaker
from headrace.prepare.target import WORK, PackTarget
from headrace.store.store import StoreOptions, open_native

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Claims", "Places", "run_on_ray"]

MOST_CRASHES = 100
"""Workers that may die before a conversion gives up: then it is what the parts do to them."""


class Places(NamedTuple):
    """What a process of another machine opens. Unlike a plan it may hold credentials: it is never written
    down."""

    source: str
    target: str
    choices: dict[str, Any]
    """Of what is below the source: its objects, labels and so on."""
    reading: dict[str, Any]
    writing: StoreOptions
    folder: str
    """Where modules of the caller lie, for machines that have it as well."""


class Claims:
    """Who makes which part. One owner a process.

    ``claims/NNNNNN.K`` names the owner of attempt K and is written only when it is not there: one of several
    takers wins. ``owners/OWNER`` counts up while the owner lives. An owner that was told dead, or whose count
    has not moved for ``lease`` seconds of the observer's own clock, has lost its parts: the next taker writes
    attempt K + 1. An owner that was only slow then writes the same bytes once more. Once the conversion is
    finished nothing is left of claims and beats that came late.
    """

    def __init__(
        self, place: PackTarget, owner: str, lease: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._place, self._owner, self._lease, self._clock = place, owner, lease, clock
        self._seen: dict[str, tuple[Any, float]] = {}
        self._beats = 0
        self._is_over = False

    def is_over(self) -> bool:
        """True: the conversion is finished."""
        self._is_over = self._is_over or self._place.is_finished()
        return self._is_over

    def beat(self) -> None:
        """Says that this owner lives. More often than every lease."""
        if self.is_over():
            return
        self._beats += 1
        key = f"{WORK}owners/{self._owner}"
        self._place.put_note(key, {"beat": self._beats, "pid": os.getpid()})
        if self.is_over():
            self._place.remove_note(key)

    def bury(self, owner: str) -> None:
        """Says that an owner is dead: for those who know, so that nobody waits."""
        self._place.put_note(f"{WORK}owners/{owner}", {"dead": True})

    def take(self, number: int) -> bool:
        """True: this owner is to make the part."""
        if self._is_over:
            return False
        prefix = f"{WORK}claims/{number:06d}."
        attempts = sorted(int(key.removeprefix(prefix)) for key in self._place.notes(prefix))
        if attempts:
            holder = self._place.read_note(f"{prefix}{attempts[-1]}").get("owner")
            if holder != self._owner and self.is_alive(str(holder)):
                return False
            if number in self._place.recorded():
                return False
        key = f"{prefix}{attempts[-1] + 1 if attempts else 0}"
        try:
            self._place.put_note(key, {"owner": self._owner}, if_absent=True)
        except ChangedError:
            # Another one's, or ours when the answer to our first attempt was lost.
            if self._place.read_note(key).get("owner") != self._owner:
                return False
        if self.is_over():
            # The records may have been removed before ours came.
            self._place.remove_note(key)
            return False
        return True

    def is_alive(self, owner: str) -> bool:
        record = self._place.read_note(f"{WORK}owners/{owner}")
        if record.get("dead"):
            return False
        beat, now = record.get("beat"), self._clock()
        seen = self._seen.get(owner)
        if seen is None or seen[0] != beat:
            self._seen[owner] = (beat, now)
            return True
        return now - seen[1] < self._lease


class SharedTarget(PackTarget):
    """The target of a worker that may have been taken for dead: the others finish, and readers may be
    there."""

    def put_part(self, number: int, facts: dict[str, Any], data: Buffer) -> None:
        if self.is_finished():
            return
        super().put_part(number, facts, data)
        if self.is_finished():
            self.forget(number)


@contextmanager
def _heartbeat(claims: Claims, lease: float) -> Iterator[threading.Event]:
    """Beats on a thread of its own until the end of the block."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(lease / 4):
            try:
                claims.beat()
            except HeadraceError:
                continue  # The next beat may get through; if none does, the parts are made elsewhere.

    claims.beat()
    thread = threading.Thread(target=run, name="headrace-heartbeat", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def work(
    spec: dict[str, Any], wanted: Collection[int], owner: str, lease: float, memory: int, places: Places
) -> int:
    """Makes parts until all that are wanted are made. Runs in a process of the cluster; returns how many it
    made."""
    job, made = Job(spec), 0
    with ExitStack() as stack:
        dataset = stack.enter_context(
            Dataset(
                places.source, format=spec["source_format"], memory=memory, **places.choices, **places.reading
            )
        )
        if dataset._native.version_fingerprint != spec["fingerprint"]:
            raise ChangedError(f"{dataset.url} is not what it was when the conversion began")
        store = open_native(places.target, memory, **places.writing)
        stack.callback(store.close)
        place = SharedTarget(store, job.spec)
        claims = Claims(place, owner, lease)
        stop = stack.enter_context(_heartbeat(claims, lease))
        maker = PartMaker(job, dataset, dataset._store, place, places.folder)
        first = int(uuid.UUID(owner.partition("-")[0]).int + int(owner.partition("-")[2])) % job.part_count
        while True:
            done = set(place.recorded())
            missing = sorted((n for n in wanted if n not in done), key=lambda n: (n - first) % job.part_count)
            if not missing or claims.is_over():
                return made
            before = made
            for number in missing:
                if claims.take(number):
                    maker.make(number)
                    made += 1
            if made == before:
                # The rest is being made by others: look again for their end, or their death.
                stop.wait(min(lease / 4, 1.0))


def run_on_ray(
    job: Job,
    place: PackTarget,
    done: dict[int, dict[str, Any]],
    *,
    workers: int,
    lease: float,
    memory: int,
    places: Places,
    report: Callable[[int, int, int], None] | None,
) -> dict[int, dict[str, Any]]:
    """Makes what is missing; returns the facts of all parts. A worker that dies is replaced and its part made
    anew."""
    try:
        import ray
    except ImportError:
        raise UnsupportedError("ray=True needs the package ray: pip install ray") from None
    missing = [number for number in range(job.part_count) if number not in done]
    if not missing:
        return done
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)  # RAY_ADDRESS, else a cluster on this machine.
    cores = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
    count = max(
        1, min(workers or int(cores), len(missing))
    )  # A cluster may say that it has no core, or half of one.
    remote = ray.remote(max_retries=0)(work)
    driver = uuid.uuid4().hex
    undertaker = Claims(place, driver, lease)
    tasks: dict[Any, str] = {}
    launched = 0

    def launch() -> None:
        nonlocal launched
        owner = f"{driver}-{launched}"
        launched += 1
        tasks[remote.remote(job.spec, missing, owner, lease, memory, places)] = owner

    try:
        for _ in range(count):
            launch()
        while tasks:
            ready, _ = ray.wait(list(tasks), timeout=0.5)
            for task in ready:
                owner = tasks.pop(task)
                try:
                    ray.get(task)
                except ray.exceptions.RayTaskError as error:
                    raise error.as_instanceof_cause() from None  # type: ignore[no-untyped-call]
                except ray.exceptions.RayError as error:
                    undertaker.bury(owner)
                    if launched - count >= MOST_CRASHES:
                        raise HeadraceError(f"{MOST_CRASHES} workers died; the last: {error}") from error
                    launch()
            if report is not None:
                report(len(place.recorded()), job.part_count, 0)
    except BaseException:
        for task in tasks:
            ray.cancel(task, force=True)
        raise
    return place.done()
