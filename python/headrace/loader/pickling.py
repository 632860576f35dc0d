"""Loaders in pickles: into which they go, and how they come out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace.errors import ChangedError, InvalidArgumentError

if TYPE_CHECKING:
    from headrace.base.recipe import Recipe

__all__ = ["check_receiver", "reopen_loader"]

_EACH_ALL = (
    "a loader within the dataset of a DataLoader would deliver all its batches in each worker: give a "
    "headrace.torch.Loader itself to the DataLoader, DataLoader(loader, batch_size=None, num_workers=...), "
    "iterate it without one, or read samples of a headrace.Dataset"
)
_NO_CHECKPOINT = (
    "a checkpoint holds loader.state_dict(), or in Fabric's save() the loader itself, and not a loader or a "
    "DataLoader around one: torch.load() would not read that"
)


def check_receiver() -> None:
    """Raises InvalidArgumentError where the one who pickles a loader would make something wrong of it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == "torch.serialization":
            raise InvalidArgumentError(_NO_CHECKPOINT)
        is_starting = frame.f_code.co_name == "__init__" and module.startswith(
            ("torch.utils.data.", "torchdata.")
        )
        if is_starting and hasattr(frame.f_locals.get("self"), "_num_workers"):
            raise InvalidArgumentError(_EACH_ALL)
        frame = frame.f_back


def reopen_loader(recipe: Recipe, state: Mapping[str, Any] | None, is_placed: bool, fingerprint: str) -> Any:
    """The loader of a pickle, open, at its position. Raises ChangedError where other data lies there."""
    loader = recipe.run()
    try:
        found = loader._dataset.fingerprint
        if found != fingerprint:
            raise ChangedError(
                f"{loader._dataset.url}: the fingerprint is {found}, and was {fingerprint} when this was "
                "pickled: other data lies there"
            )
        if state is not None:
            loader.load_state_dict(state)
        loader._was_placed = is_placed
    except BaseException:
        loader.close()
        raise
    return loader
