"""What a target holds of a pack besides its shards. Plan, records and index are the engine's: see
``include/headrace/target_record.h``. Here is what identifies a plan, the order of a shard and its record, and
notes that workers leave beside the records (``on_ray.py``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.errors import NotFoundError
from headrace.store.store import list_pages

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["PackTarget", "content_digest"]

PLAN = ".hrpack.json"
WORK = ".hrpack/"
"""What lies below goes when the pack is finished."""


def dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def content_digest(data: Buffer) -> str:
    """Of a shard's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class PackTarget(_native.TargetRecord):
    """One target and the plan that it is for: no URL but the source's without user, password and query, no
    path of this machine, no keys."""

    def __init__(self, store: _native.Store, plan: Mapping[str, Any]) -> None:
        digest = content_digest(dumps(plan).encode())
        text = dumps({**plan, "digest": digest, "version": 2})
        super().__init__(store, digest, text, plan["format"], bool(plan["compression"]))
        self._store, self._plan, self._is_begun = store, text, False

    def close(self) -> None:
        """Ends what is under way."""
        self._store.close()

    def replace_part(self, number: int, facts: dict[str, Any], data: Buffer) -> None:
        """put_part() over another shard of that number: its record goes first, for it must never stand beside
        ours."""
        self.forget(number)
        self.put_part(number, facts, data)

    def put_part(self, number: int, facts: dict[str, Any], data: Buffer) -> None:
        """The shard, then its record: a record without its shard never is. A shard without bytes is its
        record alone. ChangedError: until the first shard lay there, another pack took the target."""
        if not self._is_begun:
            self.check_plan()
        if facts["bytes"]:
            self._store.put(facts["name"], data, False)
        if not self._is_begun:
            self.check_plan()
        self._is_begun = True
        self.record(number, facts)

    def differs_only_in(self, name: str) -> bool:
        """Whether the plan that lies in the target has the same options but this one."""
        theirs, ours = self.read_note(PLAN), json.loads(self._plan)
        differing = {key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)}
        return name in theirs and differing == {name, "digest"}

    def read_note(self, key: str) -> dict[str, Any]:
        """Nothing when it is not there or is no JSON."""
        try:
            note: dict[str, Any] = json.loads(self._store.get(key))
        except (NotFoundError, ValueError):
            return {}
        return note

    def notes(self, prefix: str) -> list[str]:
        """Keys."""
        try:
            return [info.key for objects, _ in list_pages(self._store, prefix, "") for info in objects]
        except NotFoundError:
            return []

    def put_note(self, key: str, note: Mapping[str, Any], *, if_absent: bool = False) -> None:
        """With ``if_absent``: ChangedError when there is such an object."""
        self._store.put(key, dumps(note).encode(), if_absent)

    def remove_note(self, key: str) -> None:
        self._store.remove(key)
