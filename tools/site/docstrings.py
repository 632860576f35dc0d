"""An extension of griffe (mkdocs.yml). Docstrings name others as Sphinx does (:class:`X`, :func:`y`): the
site shows them as code, and as links to what the pages of docs/api/ document. Keyword arguments that come by
``**options: Unpack[SomeOptions]`` get the types that they have there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

PAIR = re.compile(r"^:param (\w+), (\w+):", re.M)
API = Path(__file__).resolve().parents[2] / "docs" / "api"
ROLE = re.compile(r":(?:class|func|meth|attr|exc|mod):`~?([^`]+)`")
DOCUMENTED = {name for page in API.glob("*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)}


def as_link(match: re.Match[str]) -> str:
    name = match[1]
    full = name if name.startswith("headrace.") else f"headrace.{name}"
    owner = full.rpartition(".")[0]
    is_known = full in DOCUMENTED or (owner in DOCUMENTED and not owner.endswith("Options"))
    return f"[`{name}`][{full}]" if is_known else f"`{name}`"


def walk(obj: griffe.Object) -> Iterator[griffe.Object]:
    yield obj
    for member in obj.members.values():
        if not member.is_alias:
            yield from walk(member)


def option_types(classes: dict[str, griffe.Class], name: str) -> dict[str, str]:
    """Types of the keys of a TypedDict and its bases."""
    found: dict[str, str] = {}
    for base in classes[name].bases:
        if str(base) in classes:
            found |= option_types(classes, str(base))
    return found | {key: str(value.annotation) for key, value in classes[name].attributes.items()}


def parameters_of(obj: griffe.Object) -> griffe.Parameters | None:
    """Of a function, or of a class that is made by calling it."""
    function = obj.members.get("__init__") if obj.is_class else obj
    return function.parameters if isinstance(function, griffe.Function) else None


class Docstrings(griffe.Extension):
    """Rewrites the docstrings of all objects."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        objects = [obj for obj in walk(pkg) if obj.docstring]
        classes = {obj.name: obj for obj in walk(pkg) if obj.is_class and obj.name.endswith("Options")}
        for obj in objects:
            assert obj.docstring
            text = PAIR.sub(r":param \1: see \2.\n:param \2:", ROLE.sub(as_link, obj.docstring.value))
            obj.docstring.value = re.sub(r"^(?=:param)", self.types(obj, classes), text, count=1, flags=re.M)

    def types(self, obj: griffe.Object, classes: dict[str, Any]) -> str:
        """Lines with the types of what the docstring explains and the signature does not name.
        ``**options: Any`` are some of a Loader's."""
        assert obj.docstring
        parameters = parameters_of(obj) or ()
        if not any(parameter.name == "options" for parameter in parameters):
            return ""
        unpacked = re.search(r"Unpack\[(\w+)\]", " ".join(str(p.annotation) for p in parameters))
        types = option_types(classes, unpacked[1] if unpacked else "LoaderOptions")
        explained = re.findall(r"^:param ([\w, ]+):", obj.docstring.value, re.M)
        names = {name.strip() for names in explained for name in names.split(",")} & set(types)
        return "".join(f":type {name}: {types[name]}\n" for name in sorted(names))
