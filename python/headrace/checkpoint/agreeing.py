"""What ranks that load together agree on: that all have read one and the same save, or that all have
failed."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.checkpoint.group import Group
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.sharing import OtherRankError
from headrace.checkpoint.told import error_of, told
from headrace.errors import CorruptError, HeadraceError, NotFoundError

__all__ = ["Attempt", "Failure", "failure_of"]


class Attempt(NamedTuple):
    """What came of it when a rank read a step."""

    error: Exception | None
    manifest: Manifest | None
    """None: it could not be read."""
    state: Any = None

    @property
    def save(self) -> str:
        return "" if self.manifest is None else self.manifest.save


class Failure(NamedTuple):
    """Of all ranks together; on all of them the same, but that an error of this rank goes before those of
    others."""

    why: Exception
    falls_back: bool
    """Whether an earlier checkpoint is tried."""
    was_replaced: bool
    """Whether the step was saved anew meanwhile, so that it may be whole when it is read again."""
    was_deleted: bool
    """Whether the step is gone by now, which says nothing of what it was."""


def failure_of(group: Group, place: Place, step: int, attempt: Attempt) -> Failure | None:
    """None: every rank has read the same save. Raises as Group.gather()."""
    own = None if isinstance(attempt.error, OtherRankError) else attempt.error
    said = group.gather(
        "load",
        {
            **({"error": ""} if own is None else told(own)),
            "falls_back": own is None or isinstance(own, (CorruptError, NotFoundError)),
            "save": attempt.save,
        },
    )
    differ = len({each["save"] for each in said} - {""}) > 1
    failed = [(rank, each) for rank, each in enumerate(said) if each["error"]]
    if failed:
        falls_back = all(each["falls_back"] for each in said)
        rank, first = failed[0]
        why = own or error_of(first, f"rank {rank}: {first['error']}")
        became = _what_became(group, place, step, attempt) if falls_back else ""
        return Failure(why, falls_back, differ or became == "replaced", became == "deleted")
    if differ and not _have_one_content(group, attempt):
        return Failure(_differing(place, step, [each["save"] for each in said]), True, True, False)
    return None


def _have_one_content(group: Group, attempt: Attempt) -> bool:
    """Of a checkpoint that lies on a disk and at the URL one may be a copy under another id."""
    assert attempt.manifest is not None
    return len(set(group.gather("what was loaded", attempt.manifest.content))) == 1


def _what_became(group: Group, place: Place, step: int, attempt: Attempt) -> str:
    """Of the step that rank 0 has tried: it was "replaced" by another save, or "deleted"; "": neither."""
    became = ""
    if group.rank == 0:
        try:
            became = "" if attempt.save in ("", place.manifest(step).save) else "replaced"
        except NotFoundError:
            became = "deleted"
        except HeadraceError:  # It is as broken as it was.
            pass
    return str(group.broadcast("what became of it", became))


def _differing(place: Place, step: int, saves: list[str]) -> CorruptError:
    first = {save: saves.index(save) for save in saves}
    found = ", ".join(f"{save} on rank {rank}" for save, rank in list(first.items())[:3])
    return CorruptError(
        f"{place.url}: ranks find different saves of step {step} ({found}): it is being replaced "
        "(overwrite=True), or a directory of local= has one of another job"
    )
