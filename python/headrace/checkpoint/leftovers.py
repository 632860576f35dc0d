"""What saves have left that never became a checkpoint, or whose checkpoint is gone."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from headrace.checkpoint.keys import SaveId, fence_key, save_of
from headrace.checkpoint.place import GRACE_SECONDS, Place
from headrace.errors import HeadraceError, NotFoundError

__all__ = ["Leftover", "Sweeper", "delete_leftover", "find_leftovers", "sweep"]

_log = logging.getLogger("headrace.checkpoint")


class Leftover(NamedTuple):
    """Files of a save that no checkpoint names, and uploads of some."""

    save: str
    step: int
    objects: int
    bytes: int
    newest: float | None
    """When the last of them was written, seconds since 1970 by the store's clock; None: it does not tell."""
    goes: bool
    """Whether nobody can need them any more."""
    why: str


def find_leftovers(
    place: Place, older_than: float | None = None, *, now: float | None = None
) -> list[Leftover]:
    """By name.

    What a job has left that another one has followed goes, once that one is GRACE_SECONDS old: the
    older one cannot commit any more. The job that came last may still be saving: of its files those go that
    are ``older_than`` seconds old (None: none).

    :param now: seconds since 1970; default: this machine's clock, which is compared with the store's.
    """
    now = time.time() if now is None else now
    found: dict[str, list[tuple[int, int | None]]] = {}
    for info in place.objects("saves/"):
        found.setdefault(save_of(info.key), []).append((info.size, info.modified))
    for key, _, started in place.uploads():
        found.setdefault(save_of(key), []).append((0, started))
    # Listed before: what was committed meanwhile is named.
    needs = place.needs()
    named = needs.saves | set(map(save_of, needs.keys))
    highest = place.highest_fence()
    age = now - _time_of_fence(place, highest)
    out = []
    for save, files in sorted(found.items()):
        parsed = SaveId.parse(save)
        if parsed is None or save in named:
            continue
        times = [at for _, at in files if at is not None]
        newest = float(max(times)) if len(times) == len(files) else None
        goes, why = _verdict(
            parsed, needs.broken, (highest, age), older_than, None if newest is None else now - newest
        )
        out.append(Leftover(save, parsed.step, len(files), sum(size for size, _ in files), newest, goes, why))
    return out


class Sweeper:
    """Deletes what earlier jobs have left, beside the one that took a fence: at once what jobs have left that
    another one had followed GRACE_SECONDS before, so that short jobs sweep, too; so long after it began the
    rest.

    :param sweep: deletes what jobs below a number have left.
    :param settled: asks for the number below which that may be done at once: see Place.settled_fence().
    """

    def __init__(self, sweep: Callable[[int], None], settled: Callable[[int], int], fence: int) -> None:
        self._sweep, self._settled, self._fence = sweep, settled, fence
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-checkpoint-sweep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            settled = self._settled(self._fence)
        except HeadraceError as error:
            _warn(error)
            settled = 0
        if settled:
            self._sweep(settled)
        if not self._ended.wait(GRACE_SECONDS):
            self._sweep(self._fence)

    def close(self) -> None:
        """When a sweep under way has ended."""
        self._ended.set()
        self._thread.join()


def sweep(place: Place, fence: int) -> None:
    """Deletes what jobs before that of ``fence`` have left, GRACE_SECONDS after it began. What fails is a
    warning of the log: the next job tries again."""
    try:
        for save in place.orphans(fence):
            count = place.delete_unfinished(save)
            _log.info("deleted what an unfinished save had left: %s, %d bytes", save, count)
    except HeadraceError as error:
        _warn(error)


def _warn(error: HeadraceError) -> None:
    _log.warning("what unfinished saves have left could not be deleted: %s", error)


def _verdict(
    save: SaveId, broken: set[int], last: tuple[int, float], older_than: float | None, idle: float | None
) -> tuple[bool, str]:
    highest, age = last
    if save.step in broken:
        return False, "may be what the broken manifest of that step names"
    if save.is_shared and broken:
        return False, f"may be what the broken manifest of step {min(broken)} refers to"
    if save.fence < highest and age >= GRACE_SECONDS:
        return True, "of a job that another one has followed"
    if older_than is not None and idle is not None and idle >= older_than:
        return True, f"nothing was written to it for {idle / 3600:.1f} h"
    if save.fence < highest:
        return False, f"another job has followed only {max(0.0, age) / 60:.0f} minutes ago"
    return False, "may be under way"


def _time_of_fence(place: Place, number: int) -> float:
    """When the job that came last began: the store's word, else the job's own; "now" when neither tells."""
    if number == 0:
        return time.time()
    try:
        modified = place.store.head(fence_key(number)).modified
        return float(
            modified if modified is not None else json.loads(place.store.get(fence_key(number)))["time"]
        )
    except (NotFoundError, ValueError, KeyError, TypeError):
        return time.time()


def delete_leftover(place: Place, leftover: Leftover) -> int:
    """Deletes its files, unless there is a checkpoint of it now, or one that refers to it. Returns their
    bytes."""
    try:
        if place.manifest(leftover.step).save == leftover.save:
            return 0
    except NotFoundError:
        pass
    parsed = SaveId.parse(leftover.save)
    if parsed is not None and parsed.is_shared:
        # Looked for once more: a list of many manifests that was made before may have missed one that came
        # beside the end of what it refers to.
        needs = place.needs()
        if needs.broken or leftover.save in needs.saves | set(map(save_of, needs.keys)):
            return 0
    return place.delete_unfinished(leftover.save)
