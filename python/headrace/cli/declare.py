"""How commands declare their arguments: once, in their signatures, for both parsers.

``recursive: Annotated[bool, option("--recursive", "-r", help="...")] = False``. What several commands share
is a set of options (`OptionSet`), declared the same way: a parameter ``where: Where`` stands for all of its
fields. The quick parser (``quick.py``) reads these by itself; the command-line library, which is slow to
import, is told by ``library.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace.sources.options import DatasetOptions

__all__ = [
    "Argument",
    "Chosen",
    "DataWhere",
    "DryRun",
    "Endpoint",
    "FileFields",
    "Json",
    "Memory",
    "Names",
    "Option",
    "OptionSet",
    "Parameter",
    "VersionId",
    "Where",
    "argument",
    "call",
    "option",
    "option_sets",
    "parameters",
    "without_aliases",
]


class Option(NamedTuple):
    """An option. A flag turns its default around."""

    flags: tuple[str, ...]
    help: str
    metavar: str | None
    least: float | None
    """Of a number."""
    most: float
    """The same."""
    panel: str | None
    """Under which heading the help shows it."""
    aliases: tuple[str, ...]
    """Its names in other clients: understood, and not shown, for they would leave the help no room."""
    may_be_empty: bool
    """An empty text means something."""


class Argument(NamedTuple):
    """What stands without a dash. Of a list there must be ``least``."""

    metavar: str
    help: str
    least: int


def option(
    *flags: str,
    help: str,
    metavar: str | None = None,
    least: float | None = None,
    most: float = (1 << 31) - 1,
    panel: str | None = None,
    aliases: tuple[str, ...] = (),
    may_be_empty: bool = False,
) -> Option:
    _ALIASES.update(dict.fromkeys(aliases, flags[0]))
    return Option(flags, help, metavar, least, most, panel, aliases, may_be_empty)


_ALIASES: dict[str, str] = {}


def without_aliases(words: Sequence[str], flags: Container[str]) -> list[str]:
    """The words of a command that has these flags, its options by the names that the help shows. What it has
    under no name stays as it was typed, for the message."""
    end = words.index("--") if "--" in words else len(words)
    return [*(_without_alias(word, flags) for word in words[:end]), *words[end:]]


def _without_alias(word: str, flags: Container[str]) -> str:
    name, equals, value = word.partition("=")
    if _ALIASES.get(name) in flags:
        return _ALIASES[name] + equals + value
    # Elsewhere -h is -H; alone it asks for help.
    is_group = len(word) > 2 and word[0] == "-" != word[1] and "-H" in flags and "-h" not in flags
    if is_group and all(f"-{letter}" in flags for letter in word[1:].replace("h", "H")):
        return word.replace("h", "H")
    return word


def argument(metavar: str, help: str, least: int = 1) -> Argument:
    return Argument(metavar, help, least)


class OptionSet:
    """Options that commands share: the fields of a subclass, whose defaults are those of the options."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def check(self) -> None:
        """Raises InvalidArgumentError for values that cannot be meant."""

    def as_dict(self) -> dict[str, Any]:
        """The value of each by name, defaults too."""
        return {row.name: getattr(self, row.name) for row in parameters(type(self))}


class Parameter(NamedTuple):
    """One argument or option of a command."""

    name: str
    kind: Any
    """Its type: bool, int, float, str, or list of str; without None."""
    annotation: Any
    default: Any
    """None also where there is none."""
    given: Option | Argument


def parameters(declaration: Callable[..., Any] | type[OptionSet]) -> list[Parameter]:
    """Those that a command or a set declares by what is here, in their order, with those of its sets."""
    given: Any = declaration
    return _parameters(given)


@cache
def _parameters(declaration: Any) -> list[Parameter]:
    defaults = _defaults(declaration)
    found = []
    for name, hint in get_type_hints(declaration, include_extras=True).items():
        if _is_set(hint):
            found += parameters(hint)
            continue
        for annotation in (hint, *get_args(hint)):  # Python 3.10 puts Optional around what defaults to None.
            metadata = getattr(annotation, "__metadata__", (None,))
            if isinstance(metadata[0], Option | Argument):
                base = get_args(annotation)[0]
                kinds = [kind for kind in get_args(base) if kind is not type(None)]
                kind = base if base in (bool, int, float, str) or get_origin(base) is list else kinds[0]
                found.append(Parameter(name, kind, annotation, defaults.get(name), metadata[0]))
                break
    return found


def option_sets(function: Callable[..., Any]) -> dict[str, type[OptionSet]]:
    """The sets that a command takes, by the names of its parameters."""
    return {name: hint for name, hint in get_type_hints(function).items() if _is_set(hint)}


def call(function: Callable[..., Any], words: list[Any], options: dict[str, Any]) -> Any:
    """Calls a command with options by name; those of a set go into it."""
    rest = dict(options)
    for row in parameters(function):
        _check(row, rest.get(row.name))
    for name, kind in option_sets(function).items():
        fields = {row.name for row in parameters(kind)} & rest.keys()
        rest[name] = kind(**{field: rest.pop(field) for field in fields})
        rest[name].check()
    return function(*words, **rest)


def _check(row: Parameter, value: Any) -> None:
    """Raises InvalidArgumentError for a text that is empty, as of a variable that is not set, and for a
    number that no command can mean."""
    given = row.given
    if not isinstance(given, Option) or value is None or value == row.default:
        return
    if row.kind is int and value > given.most:
        raise InvalidArgumentError(f"{given.flags[0]} {value}: at most {given.most}")
    is_empty = value == "" or (isinstance(value, list) and "" in value)
    if is_empty and not given.may_be_empty:
        raise InvalidArgumentError(f"{given.flags[0]} is empty; is a variable not set?")


def _is_set(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, OptionSet)


def _defaults(declaration: Any) -> dict[str, Any]:
    if isinstance(declaration, type):
        return {name: getattr(declaration, name) for name in get_type_hints(declaration)}
    names = declaration.__code__.co_varnames[: declaration.__code__.co_argcount]
    values = declaration.__defaults__ or ()
    last = zip(names[len(names) - len(values) :], values, strict=True)
    return {**dict(last), **(declaration.__kwdefaults__ or {})}


class Endpoint(OptionSet):
    """How stores are reached."""

    endpoint: Annotated[
        str | None,
        option(
            "--endpoint",
            metavar="URL",
            help="S3 endpoint, such as http://127.0.0.1:9000.",
            panel="Store",
            aliases=("--endpoint-url",),
        ),
    ] = None
    region: Annotated[str | None, option("--region", help="Region, such as eu-central-1.", panel="Store")] = (
        None
    )
    anonymous: Annotated[
        bool,
        option(
            "--anonymous",
            help="Send requests unsigned, for public buckets.",
            panel="Store",
            aliases=("--no-sign-request",),
        ),
    ] = False
    ca_bundle: Annotated[
        str | None,
        option(
            "--ca-bundle",
            metavar="FILE",
            help="Certificate authorities (PEM) that the server's certificate is checked against.",
            panel="Store",
        ),
    ] = None
    tls_verify: Annotated[
        bool,
        option(
            "--no-verify-tls",
            help="Accept any certificate: for tests against throw-away servers.",
            panel="Store",
            aliases=("--no-verify-ssl",),
        ),
    ] = True


class Where(Endpoint):
    """How the stores of a command are reached."""

    profile: Annotated[
        str | None,
        option(
            "--profile",
            metavar="NAME",
            help="Profile of the AWS configuration, instead of AWS_PROFILE and keys in variables.",
            panel="Store",
        ),
    ] = None
    timeout: Annotated[
        float | None,
        option(
            "--timeout",
            metavar="SECONDS",
            least=0.001,
            help="One request, all its attempts together; default 60.",
            panel="Store",
        ),
    ] = None
    requester_pays: Annotated[
        bool,
        option(
            "--requester-pays",
            help="S3 and Google Cloud: this account pays for the requests, as some buckets want it.",
            panel="Store",
        ),
    ] = False


class DataWhere(Where):
    """And where their requests are written down, and what they bring is kept."""

    access_log: Annotated[
        str | None,
        option(
            "--access-log",
            metavar="FILE",
            help="Append a line for every request to a store; default: HEADRACE_ACCESS_LOG.",
            panel="Store",
            may_be_empty=True,
        ),
    ] = None
    cache: Annotated[
        list[str] | None,
        option(
            "--cache",
            metavar="PLACE",
            help=(
                "Keep what is read there, and read it from there: a directory, memcached://host,host or "
                "s3://bucket/prefix?endpoint=URL. Several: the nearest first."
            ),
            panel="Store",
            may_be_empty=True,
        ),
    ] = None
    cache_limit: Annotated[
        str | None,
        option(
            "--cache-limit", metavar="SIZE", help="Most that the cache may take, such as 2TB.", panel="Store"
        ),
    ] = None
    cache_key: Annotated[
        str | None,
        option(
            "--cache-key",
            metavar="SOURCE",
            help="Encrypt the cache's directory: file:PATH, env:NAME or command:PROGRAM name the key.",
            panel="Store",
        ),
    ] = None
    cache_share: Annotated[
        str | None,
        option(
            "--cache-share",
            metavar="group",
            help="Make a new directory of the cache for its group, too.",
            panel="Store",
        ),
    ] = None


class FileFields(OptionSet):
    """What a dataset of files has beside their bytes."""

    labels: Annotated[
        str,
        option(
            "--labels",
            metavar="folder",
            help="Files: a column `label` for the folder right below the URL (packed to WebDataset: .cls).",
        ),
    ] = ""
    manifest: Annotated[
        str,
        option(
            "--manifest",
            metavar="KEY",
            help="Files: JSON lines or CSV below the URL that name the files and their fields.",
        ),
    ] = ""

    def given(self) -> DatasetOptions:
        """Those that say something."""
        return {name: value for name, value in self.as_dict().items() if value}  # type: ignore[return-value]


class Chosen(OptionSet):
    """Which of the objects below a URL."""

    include: Annotated[
        list[str] | None,
        option(
            "--include",
            metavar="PATTERN",
            help=(
                "Only names that match; may be repeated. With a / all of the name below the URL is compared, "
                "else its last part."
            ),
            panel="Names",
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        option(
            "--exclude",
            metavar="PATTERN",
            help="Not the names that match; may be repeated; wins over --include.",
            panel="Names",
        ),
    ] = None

    def check(self) -> None:
        for flag, patterns in (("--include", self.include), ("--exclude", self.exclude)):
            for pattern in patterns or ():
                _refuse_hopeless(flag, pattern)


class Names(Chosen):
    """Which of the objects that a URL or pattern names."""

    raw: Annotated[
        bool,
        option(
            "--raw",
            help=(
                "No patterns: `*`, `?`, `[` and `{` in URLs mean themselves, and one that ends in / is an "
                "object."
            ),
            panel="Names",
        ),
    ] = False


def _refuse_hopeless(flag: str, pattern: str) -> None:
    """Raises InvalidArgumentError for a pattern that would leave out nothing, and so lose what it was to
    keep."""
    if pattern.startswith(("./", "../")):
        raise InvalidArgumentError(f"{flag} {pattern} matches nothing: names begin below the URL, without ./")
    directory = pattern.rstrip("/")
    if directory != pattern and directory.strip("*/"):
        raise InvalidArgumentError(f"{flag} {pattern} matches nothing that is in it: write {directory}/**")


VersionId = Annotated[
    str | None,
    option("--version-id", metavar="ID", help="This version of the one object, not its newest."),
]
Memory = Annotated[str, option("--memory", help="Limit of the memory for data.", panel="Store")]
Concurrency = Annotated[
    int,
    option(
        "--concurrency",
        least=1,
        metavar="N",
        help="Most requests in flight; how many there are is found by measuring.",
    ),
]
Json = Annotated[bool, option("--json", help="Print JSON on stdout instead of text.")]
DryRun = Annotated[
    bool, option("--dry-run", help="Say what would be done; change nothing.", aliases=("--dryrun",))
]
