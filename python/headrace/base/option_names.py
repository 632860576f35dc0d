"""Names of keyword arguments, and what to say about one that does not exist."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from headrace.errors import InvalidArgumentError

__all__ = ["OptionNames", "named_options", "names_before"]

T = TypeVar("T")


def named_options(function: Callable[..., Any]) -> Sequence[str]:
    """Keyword arguments of a function that have defaults."""
    return sorted(getattr(function, "__kwdefaults__", None) or ())


class OptionNames(NamedTuple):
    """The options of something that users call."""

    owner: str
    """How messages name it."""
    groups: Mapping[str, Iterable[str]]
    """The names, by what they are about; "" is the owner's own group, which comes first."""
    elsewhere: Mapping[str, str]
    """Names that others have for the same thing, or of the same library elsewhere: what to write instead."""

    def check(self, given: Iterable[str]) -> None:
        """Raises InvalidArgumentError for a name that is none of these: with what to write instead, else with
        all that there are."""
        known = {name for names in self.groups.values() for name in names}
        for name in given:
            if name not in known:
                raise InvalidArgumentError(f"{self.owner} has no option {name!r}{self._advice(name, known)}")

    def _advice(self, name: str, known: set[str]) -> str:
        if name in self.elsewhere:
            return f": {self.elsewhere[name]}"
        import difflib  # Only where something is wrong.

        close = difflib.get_close_matches(name, sorted({*known, *self.elsewhere}), 1, 0.7)
        if close and close[0] in known:
            return f": did you mean {close[0]}? {self._listed(1)}"
        if close:
            return f" (nor {close[0]!r}: {self.elsewhere[close[0]]}). {self._listed(1)}"
        return f". {self._listed(len(self.groups))}"

    def _listed(self, count: int) -> str:
        """The names of the first ``count`` groups."""
        lists = [
            f"{f'of {about}: ' if about else 'Its own options are '}{', '.join(sorted(names))}"
            for about, names in list(self.groups.items())[:count]
        ]
        return "; ".join(lists)


def names_before(needed: str, names: OptionNames, *positional: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: a call without the argument ``needed`` is about names that do not exist first, as one
    of them may be meant for it. What is right but incomplete is Python's TypeError."""

    def decorate(kind: type[T]) -> type[T]:
        own = kind.__init__

        @functools.wraps(own)
        def new(called: type[T], *_: Any, **options: Any) -> T:
            if needed not in options and called.__init__ is own:  # Derived classes have options of theirs.
                names.check(name for name in options if name not in positional)
            return object.__new__(called)

        kind.__new__ = new  # type: ignore[assignment]
        return kind

    return decorate
