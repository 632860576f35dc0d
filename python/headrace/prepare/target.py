"""What a target holds of a pack: the plan, records of finished parts, the index. Shared by writers and
conversions.

Objects, below the target:

* ``.hrpack.json``: the plan (no URL but the source's without user, password and query, no path of this
  machine, no keys); stays;
* ``.hrpack/done/NNNNNN.json``: facts of each finished part; goes when the pack is finished;
* ``.hrpack/run.json``: of samples of a program: who writes now; likewise;
* ``.hrpack/claims/...``, ``.hrpack/owners/...``: of conversions on several machines (``on_ray.py``);
  likewise;
* ``.hrpack.done.json``: the facts of all parts; says that the pack is finished.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.errors import ChangedError, CorruptError, InvalidArgumentError, NotFoundError
from headrace.store.store import RangeResult, list_pages
from headrace.store.urls import local_path

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["PackTarget", "content_digest", "index_objects"]

PLAN = ".hrpack.json"
FINISHED = ".hrpack.done.json"
WORK = ".hrpack/"
DONE = WORK + "done/"
RUN = WORK + "run.json"

READS = 32
"""Records read at once."""


def done_key(number: int) -> str:
    """Record of a finished part."""
    return f"{DONE}{number:06d}.json"


def number_of(key: str) -> int:
    """The part of a done_key(); -1: of nobody's."""
    digits = key.removeprefix(DONE).removesuffix(".json")
    return int(digits) if digits.isdecimal() else -1


def dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def content_digest(data: Buffer) -> str:
    """Of a shard's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class PackTarget:
    """One target and the plan that it is for."""

    def __init__(self, store: _native.Store, plan: Mapping[str, Any]) -> None:
        self._store = store
        self._plan = dict(plan)
        self.digest = hashlib.blake2b(dumps(self._plan).encode(), digest_size=16).hexdigest()

    def close(self) -> None:
        """Ends what is under way."""
        self._store.close()

    def read(self, key: str) -> Any:
        """A JSON object of ours; None when it is not there or is no JSON."""
        try:
            return json.loads(self._store.get(key))
        except (NotFoundError, ValueError):
            return None

    def sizes(self, prefix: str) -> dict[str, int]:
        """Sizes by key."""
        out: dict[str, int] = {}
        try:
            for objects, _ in list_pages(self._store, prefix, ""):
                out.update((info.key, info.size) for info in objects)
        except NotFoundError:
            pass
        return out

    def load(self) -> None:
        """Leaves the plan there. A target that holds something else raises InvalidArgumentError and stays as
        it is."""
        record = self.read(PLAN)
        if record is not None:
            if record.get("digest") == self.digest:
                return
            raise InvalidArgumentError(
                f"{self._store.url} holds a pack of another source or other options; choose another target or empty it"
            )
        for prefix in ("index.json", "shard", "chunk-", "part-"):
            if found := next(iter(self.sizes(prefix)), None):
                raise InvalidArgumentError(
                    f"{self._store.url} already holds {found}, which is not from a pack; choose another target or empty it"
                )
        try:
            self.put_json(PLAN, {**self._plan, "digest": self.digest, "version": 2}, if_absent=True)
        except ChangedError:
            # Somebody else began between our two looks: fine when it is the same pack.
            if (self.read(PLAN) or {}).get("digest") != self.digest:
                raise InvalidArgumentError(
                    f"{self._store.url}: another pack began there at the same time"
                ) from None

    def begin_write(self) -> dict[int, dict[str, Any]]:
        """load() for samples that nobody can compare with those of an earlier write: a finished dataset is
        left alone.

        Returns done() of a write that broke off.
        """
        self.load()
        if self.is_finished():
            raise InvalidArgumentError(
                f"{self._store.url} already holds a finished dataset; choose another target or empty it"
            )
        self._run = uuid.uuid4().hex
        self.put_json(RUN, {"run": self._run})
        # Of a write that broke off at its very end: nobody shall read our shards by it.
        self.remove(self.sizes("index.json"))
        there = self.sizes("")
        done = self._done_of(there)
        self._forget_others(there, done)
        return done

    def check_run(self) -> None:
        """After begin_write(): ChangedError when another write began at this target since."""
        if (self.read(RUN) or {}).get("run") != self._run:
            raise ChangedError(
                f"{self._store.url}: another write began there; this one ends, as only one can be"
            )

    def finish_write(
        self, facts: Sequence[Mapping[str, Any]], indexes: Mapping[str, str], name_of: Callable[[int], str]
    ) -> None:
        """finish() of what begin_write() began. ChangedError: the shards are not all ours."""
        if self.finished() != list(facts):  # Else this is our own end once more.
            self.check_run()
            done = self.done()
            for number, part in enumerate(facts):
                if done.get(number) != part:
                    raise ChangedError(
                        f"{self._store.url}: {part['name']} was written by another write at the same time; write again, one at a time"
                    )
        self.finish(facts, indexes, name_of)

    def is_finished(self) -> bool:
        """True: somebody said that all is there."""
        try:
            self._store.head(FINISHED)
        except NotFoundError:
            return False
        return True

    def reopen(self) -> dict[int, dict[str, Any]]:
        """Before parts are made: done(), and what the target says is done is exactly that.

        Records without their shards go, and so does the word that all is there: it would send workers home.
        Killed anywhere, it may be repeated.
        """
        there, is_finished = self.sizes(""), self.is_finished()
        done = self._done_of(there)
        self._forget_others(there, done)
        if is_finished:
            for number, facts in done.items():
                self.put_json(done_key(number), {"digest": self.digest, "facts": facts})
            self.remove([FINISHED])
        return done

    def _forget_others(self, there: Iterable[str], done: Mapping[int, Any]) -> None:
        """Removes the records of parts that are not done: they would vouch for any shard of that size."""
        self.remove(key for key in there if key.startswith(DONE) and number_of(key) not in done)

    def finished(self) -> list[dict[str, Any]] | None:
        """Facts of all parts of a finished pack whose shards are all there; else None."""
        record = self.read(FINISHED)
        if not isinstance(record, dict) or record.get("digest") != self.digest:
            return None
        parts: list[dict[str, Any]] = record["parts"]
        there = self.sizes("")
        return parts if all(there.get(part["name"]) == part["bytes"] for part in parts) else None

    def done(self) -> dict[int, dict[str, Any]]:
        """Facts of the parts that are finished, shard and record."""
        return self._done_of(self.sizes(""))

    def _done_of(self, there: Mapping[str, int]) -> dict[int, dict[str, Any]]:
        finished = self.read(FINISHED)
        if isinstance(finished, dict) and finished.get("digest") == self.digest:
            return {
                i: part
                for i, part in enumerate(finished["parts"])
                if there.get(part["name"]) == part["bytes"]
            }
        out = {}
        for key, record in self._read_many(
            {key: size for key, size in there.items() if key.startswith(DONE)}
        ):
            if (
                isinstance(record, dict)
                and record.get("digest") == self.digest
                and there.get(record["facts"]["name"]) == record["facts"]["bytes"]
            ):
                out[number_of(key)] = record["facts"]
        return out

    def _read_many(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
        """read() of many, with their sizes; those that are gone or being replaced are left out."""
        reader = _native.RangeReader(
            self._store, [(key, 0, size) for key, size in sizes.items() if size > 0], RangeResult, READS
        )
        while True:
            try:
                result = next(reader)
                yield result.key, json.loads(bytes(result.data))
            except StopIteration:
                return
            except (NotFoundError, CorruptError, ValueError):
                continue

    def done_numbers(self) -> set[int]:
        """Parts with a record: one listing, no reads."""
        return {number_of(key) for key in self.sizes(DONE)}

    def put_json(self, key: str, value: Any, *, if_absent: bool = False) -> None:
        """With ``if_absent``: ChangedError when there is such an object."""
        self._store.put(key, dumps(value).encode(), if_absent)

    def replace_part(self, number: int, facts: Mapping[str, Any], data: Buffer) -> None:
        """put_part() over another shard of that number: its record goes first, for it must never stand beside
        ours."""
        self.remove([done_key(number)])
        self.put_part(number, facts, data)

    def put_part(self, number: int, facts: Mapping[str, Any], data: Buffer) -> None:
        """The shard, then its record: a record without its shard never is."""
        self._store.put(facts["name"], data, False)
        self.put_json(done_key(number), {"digest": self.digest, "facts": facts})

    def remove(self, keys: Iterable[str]) -> None:
        """Objects that are gone already are fine."""
        if (names := list(keys)) == []:
            return
        for _, error in self._store.remove_many(names):
            if not isinstance(error, NotFoundError):
                raise error

    def finish(
        self, facts: Sequence[Mapping[str, Any]], indexes: Mapping[str, str], name_of: Callable[[int], str]
    ) -> None:
        """Removes shards beyond ours (a longer write broke off here), writes the index, says that all is
        there, then removes the records."""
        self.remove([key for key in self.sizes("") if is_beyond(key, len(facts), name_of)])
        for key, text in indexes.items():
            self._store.put(key, text.encode(), False)
        self.put_json(FINISHED, {"digest": self.digest, "parts": list(facts)})
        self.remove(self.sizes(WORK))
        self._remove_folders()

    def _remove_folders(self) -> None:
        """Those of WORK, empty now, where the target is local: an object store has none."""
        root = local_path(self._store.url)
        if root is None:
            return
        for folder, _, _ in os.walk(os.path.join(root, WORK), topdown=False):
            with contextlib.suppress(OSError):  # Somebody else removed it, or began anew in it.
                os.rmdir(folder)


def is_beyond(key: str, count: int, name_of: Callable[[int], str]) -> bool:
    """True for the name of a shard numbered `count` or more."""
    # 18 digits: what fits 64 bits.
    return any(
        int(digits) >= count and name_of(int(digits)) == key for digits in re.findall(r"[0-9]{1,18}", key)
    )


def index_objects(format: str, config_json: str, facts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Text of the index by key; nothing for formats without one. LitData: the facts say ``content``, a digest
    of each chunk."""
    config = json.loads(config_json)
    if format == "mds":
        return {"index.json": dumps({"shards": [_mds_entry(config, part) for part in facts], "version": 2})}
    if format == "litdata":
        config["compression"] = config["compression"] and "zstd"  # The level is not part of the name.
        chunks = [
            {"chunk_bytes": p["raw_bytes"], "chunk_size": p["samples"], "dim": None, "filename": p["name"]}
            for p in facts
        ]
        # litdata names its cache by this: it must change with the data, and not otherwise.
        digest = hashlib.blake2b(
            dumps([part["content"] for part in facts]).encode(), digest_size=5
        ).hexdigest()
        updated_at = str(float(int(digest, 16)))
        return {"index.json": dumps({"chunks": chunks, "config": config, "updated_at": updated_at})}
    return {}


def _mds_entry(config: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    def file(name: str, size: int, digest: str) -> dict[str, Any]:
        return {"basename": name, "bytes": size, "hashes": dict.fromkeys(config["hashes"], digest)}

    is_zipped = config["compression"] is not None
    raw_name = part["name"].removesuffix(".zstd")
    return {
        **config,
        "samples": part["samples"],
        "raw_data": file(raw_name, part["raw_bytes"], part["raw_hash"]),
        "zip_data": file(part["name"], part["bytes"], part["zip_hash"]) if is_zipped else None,
    }
