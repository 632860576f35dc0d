"""Stands in for mosaicml-streaming: ``streaming.X`` is ``headrace.compat.streaming.X``.

What the tests only use to look at results (``HELPERS``) comes from the installed mosaicml-streaming, under
the same name.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

HELPERS = (
    "streaming.base.storage",
    "streaming.base.shared",
    "streaming.base.constant",
    "streaming.base.compression",
)
HERE = Path(__file__).resolve().parent.parent


def _original() -> Path:
    elsewhere = [path for path in sys.path if Path(path or ".").resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("streaming", elsewhere)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


class _Redirect(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if not name.startswith("streaming."):
            return None
        if name.startswith(HELPERS):
            return importlib.machinery.PathFinder.find_spec(
                name, [str(_original().joinpath(*name.split(".")[1:-1]))]
            )
        if importlib.util.find_spec(f"headrace.compat.{name}") is None:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):  # type: ignore[no-untyped-def]
        return importlib.import_module(f"headrace.compat.{spec.name}")

    def exec_module(self, module) -> None:  # type: ignore[no-untyped-def]
        pass


sys.meta_path.insert(0, _Redirect())
sys.modules[__name__] = importlib.import_module("headrace.compat.streaming")
