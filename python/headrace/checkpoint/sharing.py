"""Reading what several ranks of a job want from the store once: by one of them, who hands it to the others.

Data files are cut into stripes. Each rank tells which stripes it wants blocks of; of those that several want,
each is read by one of these ranks, the one with the least so far. Readers are told which blocks others want,
read their stripes in order, prove them, and hand them on in rounds, in which all ranks take part: so a rank
that has failed is known to all in the next round, and nobody waits for it.

Blocks of encrypted files are decrypted by who reads them, under the salt of that file and proved by their
tags, and handed on in the clear: once for all, and between processes that all have the key. Who takes them
proves them by their sums, which are of the bytes before they were encrypted, from an index that it has proved
itself.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import width_of
from headrace.checkpoint.blocks import BlockMap, Ranges, cut, merged, within
from headrace.checkpoint.exchange import Bytes, Exchange
from headrace.checkpoint.group import Group
from headrace.checkpoint.landing import LANDING_BYTES
from headrace.checkpoint.loading import Boxes, Reads, ReadTotals
from headrace.checkpoint.manifest import Manifest
from headrace.errors import CorruptError, InvalidArgumentError, UnavailableError
from headrace.store.urls import local_path

__all__ = [
    "Mode",
    "OtherRankError",
    "SharedReads",
    "Stripe",
    "check_share_reads",
    "is_shared",
    "readers_of",
    "rounds_of",
]

_log = logging.getLogger("headrace.checkpoint")

Mode: TypeAlias = Literal["auto", "always", "never"]
Stripe: TypeAlias = tuple[int, int]
"""Number of the file, and of the stripe in it."""

_BLOCK = _native.checkpoint_sum_block_bytes()
_STRIPE_BLOCKS = 512  # 8 MiB; a power of two.
_WINDOW_STRIPES = 8  # That are read together, and as many ahead.
_ROUND_BYTES = 64 << 20  # That a rank takes from all others in one round.
_RUN_BYTES = 64 << 20  # Of arrays that follow one another and are read in the same round.
_LEAST_STRIPES = 2  # Below that it is not worth a process group.


def check_share_reads(mode: str) -> None:
    """Raises InvalidArgumentError."""
    if mode not in ("auto", "always", "never"):
        raise InvalidArgumentError(f"share_reads={mode!r}: expected 'auto', 'always' or 'never'")


def is_shared(mode: Mode, url: str) -> bool:
    """Whether ranks share what they read there. What a node has read of a directory, its page cache has for
    all its ranks."""
    return mode == "always" or (mode == "auto" and local_path(url) is None)


class OtherRankError(Exception):
    """Another rank cannot load; it says why."""


class _Share(NamedTuple):
    """Who reads a stripe, and who wants some of it, the reader among them."""

    reader: int
    ranks: list[int]


def readers_of(wanted: Sequence[Mapping[int, Sequence[Sequence[int]]]]) -> dict[Stripe, _Share]:
    """Of the stripes that several ranks want. ``wanted``: of each rank, by file: [first, end) of stripes. The
    same on all ranks."""
    ranks: dict[Stripe, list[int]] = defaultdict(list)
    for rank, files in enumerate(wanted):
        for file, ranges in files.items():
            for first, end in ranges:
                for number in range(first, end):
                    ranks[file, number].append(rank)
    load = [0] * len(wanted)
    for having in ranks.values():
        if len(having) == 1:
            load[having[0]] += 1
    shares = {}
    for stripe in sorted(ranks):
        if len(ranks[stripe]) > 1:
            reader = min(ranks[stripe], key=load.__getitem__)
            load[reader] += 1
            shares[stripe] = _Share(reader, ranks[stripe])
    return shares


def rounds_of(manifest: Manifest, count: int) -> list[set[int]]:
    """The arrays, dealt out to so many rounds by runs, so that each has about as much of whatever a rank
    wants: parts of all arrays, or all of some that follow one another. The same on all ranks."""
    rounds: list[set[int]] = [set() for _ in range(max(1, count))]
    turn = run = 0
    for number, array in enumerate(manifest.arrays):
        rounds[turn].add(number)
        run += math.prod(array.shape) * width_of(array.dtype)
        if run >= _RUN_BYTES:
            turn, run = (turn + 1) % len(rounds), 0
    return [each for each in rounds if each] or [set()]


def _content(manifest: Manifest) -> int:
    """The same where files and blocks have the same numbers and sums: also of copies elsewhere."""
    sums = [file.index_crc32c for file in manifest.files]
    return _native.crc32c(np.array(sums, np.int64).tobytes())


class _File:
    """What this rank wants of one data file."""

    def __init__(self, boxes: Boxes, file: int) -> None:
        self.key = boxes.keys[file]
        self.url = f"{boxes.place.url}/{self.key}"
        self.map = BlockMap(*boxes.named[file])
        self.rows = boxes.rows[file]
        self.native = _native.CheckpointBoxes(self.rows, boxes.place.key is not None)
        self.firsts = boxes.first_blocks[file]
        self.needed = [
            np.frombuffer(some, np.int64).reshape(-1, 2) + first
            for some, first in zip(self.native.needed_blocks(), self.firsts, strict=True)
        ]
        """Of each row, blocks of the file."""
        self.all = merged(np.concatenate(self.needed))

    def stripes(self) -> list[list[int]]:
        found = np.stack([self.all[:, 0] // _STRIPE_BLOCKS, -(-self.all[:, 1] // _STRIPE_BLOCKS)], axis=1)
        return merged(found).tolist()  # type: ignore[no-any-return]

    def rest(self, shared: set[int]) -> tuple[list[Any], list[bytes]]:
        """What Place.read() takes to read what is in none of the shared stripes."""
        rows, only, others = [], [], np.array(sorted(shared))
        for row, needed, first in zip(self.rows, self.needed, self.firsts, strict=True):
            some = cut(needed, _STRIPE_BLOCKS)
            alone = some[~np.isin(some[:, 0] // _STRIPE_BLOCKS, others)] - first
            if len(alone):
                rows.append(row)
                only.append(merged(alone).tobytes())
        return rows, only


class SharedReads(Reads):
    """One load of one rank. All ranks call read(), after plan_rounds() as often as that says; or give_up()
    where they cannot.

    :param memory: bytes that reading ahead may take, about.
    """

    def __init__(self, group: Group, exchange: Exchange, mode: Mode, memory: int) -> None:
        self._group, self._exchange, self._mode = group, exchange, mode
        self._window = int(np.clip(memory // 4 // (_STRIPE_BLOCKS * _BLOCK), 1, _WINDOW_STRIPES))
        self.may_read_early = False
        self._tells = 1  # That others wait for, of this rank.
        self._is_open: bool | None = None

    def plan_rounds(self, manifest: Manifest, staged_bytes: int) -> Sequence[Collection[int]]:
        """About as many rounds as the rank needs that stages most: all ranks call read() in each. Raises as
        read()."""
        said = self._tell("", {}, staged_bytes=staged_bytes)
        rounds = rounds_of(manifest, -(-max(told["staged_bytes"] for told in said) // LANDING_BYTES))
        self._tells = len(rounds)
        return rounds

    def read(self, boxes: Boxes) -> ReadTotals:
        """Raises OtherRankError where another rank cannot, CorruptError, UnavailableError (of the exchange),
        and what the store raises; of each, all ranks raise one."""
        files = {file: _File(boxes, file) for file in sorted(boxes.rows)}
        stripes = {str(number): file.stripes() for number, file in files.items()}
        said = self._tell("", stripes, _content(boxes.manifest))
        try:
            rounds = self._share(boxes, files, said)
        except BaseException:  # All ranks raise one.
            self._tells = 0
            raise
        return boxes.read() if rounds is None else rounds.read_rest()

    def _share(self, boxes: Boxes, files: Mapping[int, _File], said: list[Any]) -> _Rounds | None:
        """Reads what ranks share; None: nothing. An error here is one on all ranks."""
        if len({told["content"] for told in said}) > 1:
            raise CorruptError(
                f"{boxes.place.url}: ranks find different checkpoints of step {boxes.manifest.step}, this "
                f"one that of save {boxes.manifest.save}; a directory of local= may have one of another job"
            )
        shares = readers_of([{int(file): each for file, each in told["files"].items()} for told in said])
        least = _LEAST_STRIPES if self._mode == "auto" else 1
        if len(shares) < least or not self._open():
            return None
        try:
            rounds = _Rounds(boxes, files, shares, self._group, self._exchange, self._window)
            rounds.run()
        except BaseException:
            self._exchange.close()
            raise
        return rounds

    def give_up(self, error: Exception) -> None:
        """Where this rank cannot read: tells the others, unless they know, or have read all."""
        if self._tells > 0:
            with suppress(OtherRankError):
                self._tell(f"{type(error).__name__}: {error}", {})

    def _tell(self, error: str, files: dict[str, Any], content: int = 0, staged_bytes: int = 0) -> list[Any]:
        self._tells -= 1
        told = {"error": error, "files": files, "content": content, "staged_bytes": staged_bytes}
        said = self._group.gather("what to load", told)
        if any(each["error"] for each in said):
            self._tells = 0
            raise OtherRankError
        return said

    def _open(self) -> bool:
        """False: ranks cannot hand anything to one another, and each reads for itself."""
        if self._is_open is None:
            self._is_open = self._open_together()
        return self._is_open

    def _open_together(self) -> bool:
        error = ""
        try:
            self._exchange.open()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        said = self._group.gather("sharing what is read", error)
        failed = [(rank, text) for rank, text in enumerate(said) if text]
        if not failed:
            return True
        self._exchange.close()
        why = f"rank {failed[0][0]}: no process group (gloo) to hand on what is read: {failed[0][1]}"
        if self._mode == "always":
            raise UnavailableError(f"{why}; share_reads='never' does without")
        _log.warning("%s; each rank reads all that it needs", why)
        return False


class _Rounds:
    """Reads, hands on and takes what is shared."""

    def __init__(
        self,
        boxes: Boxes,
        files: Mapping[int, _File],
        shares: Mapping[Stripe, _Share],
        group: Group,
        exchange: Exchange,
        window: int,
    ) -> None:
        self._boxes, self._files, self._shares, self._exchange = boxes, files, shares, exchange
        self._rank, self._window = group.rank, window
        self._stripes: list[list[Stripe]] = [[] for _ in range(group.world_size)]  # By reader.
        for stripe, share in shares.items():
            self._stripes[share.reader].append(stripe)
        most = int(np.clip(_ROUND_BYTES // group.world_size // _BLOCK, 1, _STRIPE_BLOCKS))
        # Blocks that a reader hands on in a round: all or some of a stripe.
        self._slice = 1 << most.bit_length() - 1
        self._wanted: dict[Stripe, list[Ranges]] = {}  # Of the stripes that this rank reads, as in ranks.
        self._runs = self._by_slice()
        self._requests = self._bytes = 0

    def run(self) -> None:
        self._ask()
        slices = _STRIPE_BLOCKS // self._slice
        error: Exception | None = None
        with ThreadPoolExecutor(1, "headrace-checkpoint-read") as worker:
            ahead = _Ahead(self._read_stripes, worker, self._stripes[self._rank], self._window)
            for number in range(max(map(len, self._stripes))):
                held = None
                if error is None:
                    try:
                        held = ahead.take(number)
                    except Exception as raised:
                        error = raised
                for part in range(slices):
                    if self._exchange.any(error is not None):
                        raise error or OtherRankError
                    taken = self._hand_on(number, part, held)
                    try:
                        self._put(taken)
                    except Exception as raised:
                        error = raised
            if self._exchange.any(error is not None):
                raise error or OtherRankError

    def read_rest(self) -> ReadTotals:
        """What nobody else wants."""
        for number, file in self._files.items():
            shared = {stripe for where, stripe in self._shares if where == number}
            rows, only = file.rest(shared)
            if rows:
                self._count(self._boxes.place.read(file.key, rows, only))
        return ReadTotals(self._requests, self._bytes)

    def _by_slice(self) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
        """(row, first, end) of the blocks that this rank wants, by file and slice of it."""
        runs: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for number, file in self._files.items():
            for row, needed in enumerate(file.needed):
                for first, end in cut(needed, self._slice).tolist():
                    if (number, first // _STRIPE_BLOCKS) in self._shares:
                        runs[number, first // self._slice].append((row, first, end))
        return runs

    def _ask(self) -> None:
        """Tells readers which blocks this rank wants of their stripes, and takes what others tell it."""
        asked: list[list[Ranges]] = [[] for _ in self._stripes]
        for (file, stripe), share in self._shares.items():
            if self._rank in share.ranks:
                begin = stripe * _STRIPE_BLOCKS
                mine = within(self._files[file].all, begin, begin + _STRIPE_BLOCKS)
                asked[share.reader] += [np.array([[len(mine), 0]]), mine]
        parts = [np.concatenate(some).astype(np.int64).tobytes() if some else b"" for some in asked]
        told = [np.frombuffer(part, np.int64).reshape(-1, 2) for part in self._exchange.swap(parts)]
        at = [0] * len(told)
        for key in self._stripes[self._rank]:
            self._wanted[key] = []
            for rank in self._shares[key].ranks:
                first = at[rank] + 1
                at[rank] = first + int(told[rank][first - 1, 0])
                self._wanted[key].append(told[rank][first : at[rank]])

    def _read_stripes(self, stripes: Sequence[Stripe], memory: Bytes) -> None:
        """All that anybody wants of them, a row of ``memory`` for each."""
        rows: dict[int, list[Any]] = defaultdict(list)
        only: dict[int, list[bytes]] = defaultdict(list)
        for key, to in zip(stripes, memory, strict=False):
            file, stripe = key
            wanted = merged(np.concatenate(self._wanted[key]))
            some, blocks = self._files[file].map.reads(wanted, stripe * _STRIPE_BLOCKS, to.ctypes.data)
            rows[file] += some
            only[file] += blocks
        for file in rows:
            self._count(self._boxes.place.read(self._files[file].key, rows[file], only[file]))

    def _count(self, totals: tuple[int, int]) -> None:
        self._requests, self._bytes = self._requests + totals[0], self._bytes + totals[1]

    def _hand_on(self, number: int, part: int, held: Bytes | None) -> list[_Taken]:
        """Hands on a slice of the stripe that this rank has read, and takes those of others."""
        taken, receives = [], []
        sends: list[tuple[int, Bytes]] = []
        for reader, stripes in enumerate(self._stripes):
            if number >= len(stripes) or self._rank not in self._shares[stripes[number]].ranks:
                continue
            file, stripe = stripes[number]
            blocks, begin = self._files[file].map, stripe * _STRIPE_BLOCKS
            first = begin + part * self._slice
            mine = within(self._files[file].all, first, first + self._slice)
            if reader == self._rank:
                assert held is not None
                starts = blocks.bytes_before(mine[:, 0]) - blocks.bytes_before(begin)
                taken.append(_Taken(file, first // self._slice, mine, starts, held))
                sends = self._packed(stripes[number], first, held)
            elif len(mine):
                lengths = blocks.lengths(mine)
                got = np.empty(int(lengths.sum()), np.uint8)
                receives.append((reader, got))
                taken.append(_Taken(file, first // self._slice, mine, np.cumsum(lengths) - lengths, got))
        self._exchange.pass_on(sends, receives)
        return taken

    def _packed(self, key: Stripe, first: int, held: Bytes) -> list[tuple[int, Bytes]]:
        """What each of the other ranks wants of a slice."""
        file, stripe = key
        blocks = self._files[file].map
        start = int(blocks.bytes_before(stripe * _STRIPE_BLOCKS))
        sends = []
        for rank, wanted in zip(self._shares[key].ranks, self._wanted[key], strict=True):
            some = within(wanted, first, first + self._slice)
            if rank != self._rank and len(some):
                bounds = (blocks.bytes_before(some) - start).tolist()
                parts = [held[begin:end] for begin, end in bounds]
                sends.append((rank, parts[0] if len(parts) == 1 else np.concatenate(parts)))
        return sends

    def _put(self, taken: list[_Taken]) -> None:
        """Proves what was taken, and puts it where it belongs."""
        for each in taken:
            runs = self._runs.get((each.file, each.slice))
            if not runs:
                continue
            file = self._files[each.file]
            row, first, end = np.array(runs, np.int64).T
            which = np.searchsorted(each.ranges[:, 0], first, "right") - 1
            before = file.map.bytes_before(first)
            address = each.starts[which] + before - file.map.bytes_before(each.ranges[which, 0])
            held = [
                row,
                first - np.array(file.firsts)[row],
                file.map.bytes_before(end) - before,
                address + each.data.ctypes.data,
            ]
            file.native.copy_blocks(file.url, np.stack(held, axis=1).astype(np.uint64))


class _Taken(NamedTuple):
    """Blocks of a slice that this rank wants, in memory."""

    file: int
    slice: int
    ranges: Ranges
    starts: Any
    """Of each range, in ``data``."""
    data: Bytes


class _Ahead:
    """The stripes that this rank reads, some at once, and as many ahead."""

    def __init__(
        self,
        read: Callable[[Sequence[Stripe], Bytes], None],
        worker: Executor,
        stripes: Sequence[Stripe],
        window: int,
    ) -> None:
        self._read, self._worker, self._stripes, self._window = read, worker, stripes, window
        self._spare: list[Bytes] = []
        self._held = self._filling = np.empty((0, 0), np.uint8)
        self._pending = self._start(0)

    def take(self, number: int) -> Bytes | None:
        """That stripe; None: there are fewer. By rising numbers; one is gone with the next."""
        if number >= len(self._stripes):
            return None
        if number % self._window == 0:
            self._pending.result()
            if self._held.size:
                self._spare.append(self._held)
            self._held = self._filling
            self._pending = self._start(number + self._window)
        stripe: Bytes = self._held[number % self._window]
        return stripe

    def _start(self, number: int) -> Future[None]:
        some = self._stripes[number : number + self._window]
        shape = min(self._window, len(self._stripes)), _STRIPE_BLOCKS * _BLOCK
        self._filling = self._spare.pop() if self._spare else np.empty(shape if some else (0, 0), np.uint8)
        return self._worker.submit(self._read, some, self._filling)
