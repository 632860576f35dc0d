"""One save: what this rank writes, and how all ranks together make a checkpoint of it.

The steps, in this order, each of which must have succeeded before the next: stage (copy), data file, index,
report to rank 0, manifest, LATEST. Rank 0 asks who else saves here while it writes its index. A rank that
fails says so in its report, and every rank's save fails.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import pickle
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from headrace.checkpoint.arrays import Array, describe
from headrace.checkpoint.data_file import DataFileWriter, NewPiece, SaveOptions
from headrace.checkpoint.fence_check import FenceCheck
from headrace.checkpoint.group import Group
from headrace.checkpoint.keys import SaveId
from headrace.checkpoint.manifest import DataFile, Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.plan import Had, Plan, had, make_plan
from headrace.checkpoint.reuse import Base, Comparison, Reuse
from headrace.checkpoint.told import raise_first, told
from headrace.checkpoint.tree import DICTS, Node, copied_metadata, flatten
from headrace.checkpoint.values import ValueWatch
from headrace.errors import ChangedError, HeadraceError, InvalidArgumentError, UnavailableError

__all__ = ["Planner", "Saving", "bytes_to_write"]

_log = logging.getLogger("headrace.checkpoint")


_CHOICE = (
    ". Of what may differ, as running statistics of BatchNorm under DDP do, Checkpointer(differing='first') "
    "saves that of the first rank"
)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


class Planner:
    """Plans saves, and keeps the plan while nobody's state changes its structure."""

    def __init__(self, group: Group, *, takes_first: bool | None = None) -> None:
        """``takes_first``: of an array that ranks have with different values that of the first is saved; else
        it is an error. None: nobody can choose."""
        self._group, self._takes_first = group, takes_first
        self._structure = ""
        self._plan, self._made_in = Plan([]), ""

    def plan(self, arrays: Mapping[str, Array], save: str) -> Plan:
        """Raises InvalidArgumentError where ranks contradict one another; on all of them."""
        mine = had(list(arrays.values()))
        structure = _digest(mine)
        whole = {name: each for name, each in arrays.items() if each.is_whole}
        samples = {} if self._group.world_size == 1 else {name: each.sample() for name, each in whole.items()}
        # A rank that gave a save up may have an older plan than the others.
        known = self._made_in if structure == self._structure else ""
        said = self._group.gather("plan", {"known": known, "samples": _digest(samples)}, save)
        if not known or any(each["known"] != known for each in said):
            self._plan, self._made_in = make_plan(self._all(mine, save)), save
            self._structure = structure
        if len({each["samples"] for each in said}) > 1:
            return self._of_first(self._group.gather("samples", samples, save))
        return self._plan

    def _of_first(self, said: list[dict[str, str]]) -> Plan:
        """The plan, with arrays that differ written by the first rank that has them."""
        first: dict[str, tuple[int, str]] = {}
        odd: dict[str, int] = {}
        for rank, samples in enumerate(said):
            for name, sample in samples.items():
                owner, expected = first.setdefault(name, (rank, sample))
                if sample == expected:
                    continue
                if not self._takes_first:
                    choice = "" if self._takes_first is None else _CHOICE
                    raise InvalidArgumentError(
                        f"{name}: ranks {owner} and {rank} have different values of it, and one would be "
                        "lost. What belongs to one rank alone is saved under a name of its own, for example "
                        f"state[f'rank{{rank}}']{choice}"
                    )
                odd[name] = owner
        return Plan(
            [
                each._replace(chunks=tuple((chunk, odd[each.name]) for chunk, _ in each.chunks))
                if each.name in odd
                else each
                for each in self._plan.arrays
            ]
        )

    def _all(self, mine: Had, save: str) -> list[Had]:
        """What each rank has. Of ranks with the same arrays one lists them."""
        told = self._group.gather("layouts", [_digest(mine.arrays), mine.layouts], save)
        first: dict[str, int] = {}
        for rank, (digest, _) in enumerate(told):
            first.setdefault(digest, rank)
        lists = mine.arrays if self._group.rank in first.values() else None
        arrays = self._group.gather("arrays", lists, save)
        return [Had(arrays[first[digest]], layouts) for digest, layouts in told]


def bytes_to_write(state: Any, allow_pickle: bool, world_size: int) -> int:
    """About how much a rank writes of a state: of what it has whole, its share. Raises as :class:`Saving`."""
    arrays = [describe(name, value) for name, value in flatten(state, allow_pickle)[1].items()]
    return sum(each.nbytes // (world_size if each.is_whole else 1) for each in arrays)


class Saving:
    """One save of one rank."""

    def __init__(
        self,
        place: Place,
        group: Group,
        fence: int,
        planner: Planner,
        step: int,
        state: Callable[[], Any],
        metadata: Mapping[str, Any] | None,
        options: SaveOptions,
        watch: ValueWatch,
        reuse: Reuse | None = None,
    ) -> None:
        """Plans. ``reuse``: pieces of what was saved last are not written again. Raises what ``state``
        raises, and InvalidArgumentError for a state that has no place in a checkpoint; what one rank raises,
        all do, and so they go on together."""
        self._place, self._group, self._fence, self._options = place, group, fence, options
        self.step, self._watch = step, watch
        error, tree, arrays, notes = None, None, {}, {}
        try:
            tree, found = flatten(state(), options.allow_pickle)
            arrays = {name: describe(name, value) for name, value in found.items()}
            notes = copied_metadata(metadata)
        except Exception as raised:
            if group.world_size == 1:
                raise
            error = raised
        self._reuse, self._held = reuse, None
        # What replaces another builds upon nothing: if that went meanwhile, both would be lost.
        if reuse is not None and options.overwrite:
            reuse.begin_replacing(step)
        elif reuse is not None:
            self._held = reuse.hold(step)
        try:
            self._agree(error, tree, arrays, notes, planner)
        except BaseException:
            self._release()
            raise

    def _agree(
        self,
        error: Exception | None,
        tree: Node,
        arrays: dict[str, Array],
        metadata: Mapping[str, Any],
        planner: Planner,
    ) -> None:
        """With the other ranks, on what is saved and who writes what."""
        group, step, reuse = self._group, self.step, self._reuse
        known = self._held
        save = str(SaveId.new(self._fence, step, is_shared=reuse is not None))
        base = "" if known is None else known.save
        failure = {"error": ""} if error is None else told(error, names_kind=False)
        said = group.gather("state", {**failure, "save": save, "step": step, "base": base})
        if error is not None and not isinstance(error, HeadraceError):
            raise error
        raise_first("its state cannot be saved", said, InvalidArgumentError)
        if any(each["step"] != step for each in said):
            raise InvalidArgumentError(f"ranks save different steps: {[each['step'] for each in said]}")
        self.save = said[0]["save"]
        self._tree, self._metadata, self._arrays = _merged(group, tree, self.save), metadata, arrays
        self._plan = planner.plan(arrays, self.save)
        pieces = [self._piece(*numbers) for numbers in self._plan.of_rank(group.rank)]
        # All build upon what rank 0 says; a rank that has heard of another save writes everything.
        self._base = known if known is not None and known.save == said[0]["base"] else None
        comparison = None
        if reuse is not None:
            comparison = Comparison(reuse.fingerprint_key, {} if self._base is None else self._base.pieces)
        self._file = DataFileWriter(self._place, self.save, group.rank, pieces, self._options, comparison)
        self._fence_check = FenceCheck(self._place, self._fence)
        self._may_be_there = False  # Whether a manifest may name what was written.
        self._version = ""  # Of the manifest; on rank 0.

    def _piece(self, array_number: int, chunk_number: int) -> NewPiece:
        planned = self._plan.arrays[array_number]
        box, _ = planned.chunks[chunk_number]
        return NewPiece(
            array_number, chunk_number, planned.name, planned.dtype, box, len(planned.chunks) == 1
        )

    def stage(self) -> None:
        """Copies what this rank writes; when it returns, the state may change. Blocks where the memory for it
        is used up until parts have left."""
        arrays = (self._arrays[piece.name] for piece in self._file.pieces)
        self._file.stage(
            [
                array.row_major(array.chunks.index(piece.box))
                for array, piece in zip(arrays, self._file.pieces, strict=True)
            ]
        )
        self._arrays = {}

    def finish(self) -> Manifest:
        """Makes a checkpoint of it, with all ranks. Raises on every rank what went wrong on any. Then what
        was written is deleted, unless a manifest may name it: an answer can be lost, and what is behind it
        not."""
        try:
            return self._finish()
        finally:
            self._release()

    def _finish(self) -> Manifest:
        failure: Exception | None = None
        try:
            self._file.finish_data()
            if self._group.rank == 0 and self._options.is_fenced:
                self._fence_check.begin()
            file = self._file.finish_index()
            odd = self._watch.look(self._file.values())
            if odd and self._options.values == "error":
                raise InvalidArgumentError(f"{odd}; values='warn' saves it all the same")
            report = {"error": "", "file": list(file), "odd": odd}
        except Exception as error:
            failure = error
            report = {**told(error), "file": [], "odd": ""}
        said = self._group.gather("report", report, self.save)
        manifest: Manifest | None = None
        outcome: dict[str, Any] = {"error": "", "may_be_there": False}
        try:
            if failure is not None and self._group.world_size == 1:
                raise failure
            raise_first("it could not write its part", said)
            manifest = self._manifest([DataFile.of(each["file"]) for each in said])
            if self._group.rank == 0:
                self._warn_of_values([each["odd"] for each in said])
                self._commit(manifest)
        except Exception as error:
            outcome = {**told(error, names_kind=False), "may_be_there": self._may_be_there}
            if self._group.world_size == 1:
                if not self._may_be_there:
                    self._file.discard()
                raise
        said = self._group.gather("outcome", outcome, self.save)
        if any(each["error"] for each in said):
            if not any(each["may_be_there"] for each in said):
                self._file.discard()
            raise_first("the save failed", said)
        assert manifest is not None
        self._renew_base()
        return manifest

    def _renew_base(self) -> None:
        if self._reuse is None:
            return
        # Without a version, since the answer was lost, nobody could tell later whether it is still there.
        is_known = self._group.rank != 0 or self._version != ""
        base = Base(self.step, self.save, self._version, self._file.written())
        self._reuse.renew(base if is_known else None)

    def _release(self) -> None:
        if self._reuse is not None and self._options.overwrite:
            self._reuse.end_replacing(self.step)
        elif self._reuse is not None:
            self._reuse.release(self._held)
        self._held = None

    def fail(self, error: Exception) -> None:
        """Where this rank could not even stage: tells the others."""
        self._release()
        self._group.gather("report", {**told(error), "file": [], "odd": ""}, self.save)
        outcome = {**told(error, names_kind=False), "may_be_there": False}
        self._group.gather("outcome", outcome, self.save)
        self._file.discard()

    def _warn_of_values(self, odd: list[str]) -> None:
        for rank, text in enumerate(odd):
            if text:
                by = f", rank {rank}" if len(odd) > 1 else ""
                _log.warning("checkpoint of step %d%s: %s", self.step, by, text)

    def _manifest(self, files: list[DataFile]) -> Manifest:
        for rank, file in enumerate(files):
            planned = len(self._plan.of_rank(rank))
            if file.pieces != planned:
                raise UnavailableError(
                    f"rank {rank} has written {file.pieces} pieces of {planned} that were planned"
                )
        created = datetime.fromtimestamp(time.time(), timezone.utc).isoformat(timespec="seconds")
        return Manifest(
            self.step,
            self.save,
            len(files),
            created,
            self._metadata,
            self._tree,
            self._plan.arrays,
            files,
            self._fence,
            self._options.compression,
            self._options.number,
            self._options.overwrite,
        )

    def _gives_way(self) -> bool:
        """Whether what has the step may be replaced without a word: what an earlier job has left on the disk
        of this one. Whether the URL has another is asked when this is brought over."""
        if self._options.is_fenced:
            return False
        there = self._place.readable(self.step)
        return there is None or there.job != self._fence

    def _commit(self, manifest: Manifest) -> None:
        if self._options.is_fenced:
            self._fence_check.end()
        self._may_be_there = True
        try:
            self._version = self._place.publish(
                manifest,
                overwrite=self._options.overwrite or self._gives_way(),
                check=self._options.check,
                fence=self._fence if self._options.is_fenced else None,
                base=self._base if manifest.earlier else None,
            )
        except HeadraceError as error:
            if self._reuse is not None:
                self._reuse.renew(None)
            if isinstance(error, ChangedError):
                self._may_be_there = False
            raise


def _merged(group: Group, tree: Node, save: str) -> Node:
    """The tree of all ranks: dicts may have other keys on other ranks (pipeline stages). Raises
    InvalidArgumentError where ranks have different values under one key."""
    if len(set(group.gather("tree digest", _digest(tree), save))) == 1:
        return tree
    trees = group.gather("tree", tree, save)
    merged = trees[0]
    for rank, other in enumerate(trees[1:], 1):
        merged = _merge(merged, other, (), rank)
    return merged


def _merge(one: Node, other: Node, path: tuple[str, ...], rank: int) -> Node:
    if one == other and type(one) is type(other):
        return one
    for kind in DICTS:
        if isinstance(one, dict) and isinstance(other, dict) and kind in one and kind in other:
            rest = list(other[kind])
            out = []
            for key, value in one[kind]:
                same = [pair for pair in rest if pair[0] == key and type(pair[0]) is type(key)]
                rest = [pair for pair in rest if pair not in same]
                out.append([key, _merge(value, same[0][1], (*path, str(key)), rank) if same else value])
            return {kind: out + rest}
    if _pickled(one) is not None and _pickled(other) is not None and _are_equal(one, other):
        return one  # Of sets the bytes differ from process to process.
    where = "state" + "".join(f"[{key!r}]" for key in path)
    raise InvalidArgumentError(
        f"{where} is {_text_of(one)} on a rank before and {_text_of(other)} on rank {rank}: one would be "
        "lost. What belongs to one rank alone is saved under a name of its own, for example "
        "state[f'rank{rank}']"
    )


def _pickled(node: Node) -> str | None:
    return node.get("pickle") if isinstance(node, dict) else None


def _are_equal(one: Node, other: Node) -> bool:
    """Of two pickles, which this job's ranks have made of their own states."""
    first, second = (pickle.loads(base64.b64decode(node["pickle"])) for node in (one, other))
    try:
        return type(first) is type(second) and bool(first == second)
    except (TypeError, ValueError):  # Values that know no equality.
        return False


def _text_of(node: Node) -> str:
    text = _pickled(node)
    if text is None:
        return f"{json.dumps(node):.60}"
    return f"a pickled {type(pickle.loads(base64.b64decode(text))).__qualname__}"
