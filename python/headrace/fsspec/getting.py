"""Which local file each object becomes that ``get()`` brings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fsspec.implementations.local import make_path_posix, trailing_sep
from fsspec.utils import other_paths

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace.fsspec.filesystem import HeadraceFileSystem


async def pairs(
    fs: HeadraceFileSystem, rpath: Any, lpath: Any, *, recursive: bool, maxdepth: int | None
) -> tuple[list[str], list[str]]:
    """Paths of objects, and a local path for each, as fsspec's ``get()`` names them.

    InvalidArgumentError: the name of an object would lead out of ``lpath``.
    """
    is_one = isinstance(rpath, str)
    is_folder = is_one and trailing_sep(rpath)  # _strip_protocol() takes the slash away
    rpath = fs._strip_protocol(rpath)
    found = await fs._expand_path(rpath, recursive=recursive, maxdepth=maxdepth)
    if is_one and (not recursive or maxdepth is not None):
        found = [one for one in found if not await fs._isdir(one)]
        if not found:
            return [], []
    root = make_path_posix(lpath)
    is_pattern = is_one and await fs.in_thread(lambda: fs.is_pattern(rpath))
    into = trailing_sep(root) or os.path.isdir(root)
    goes_inside = is_one and (len(found) == 1 if is_pattern else into and not is_folder)
    names = [fs._local_name(one) for one in found]
    targets = other_paths(names, root, exists=goes_inside, flatten=not is_one)
    for one, target in zip(found, targets, strict=True):
        if ".." in target[len(root.rstrip("/")) :].split("/"):
            raise InvalidArgumentError(
                f'{one}: ".." in its name leads out of {root}; nothing was copied; get_file() copies it by '
                "itself"
            )
    return found, targets
