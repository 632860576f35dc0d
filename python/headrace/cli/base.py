"""What commands share that need no library beside the package: quick to import."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TextIO

from headrace import _native
from headrace.base.live import Closing
from headrace.cli.declare import Where
from headrace.errors import CancelledError, HeadraceError, InvalidArgumentError, NotFoundError
from headrace.store import urls
from headrace.store.repositories import split_repository
from headrace.store.settings import ObjectSettings
from headrace.store.store import Store
from headrace.store.tiers import CACHE_OPTIONS
from headrace.store.urls import take_sas, without_secrets

CANCELLED = 130


def print_json(value: Any) -> None:
    import json

    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def escaped(text: str) -> str:
    """Without what a terminal would obey instead of show: control characters (C0, DEL, C1), marks that turn
    the direction of writing, line separators; bytes of keys that are not UTF-8 as ``\\xff``."""
    if text.isprintable():
        return text
    return "".join(_escape(c) if not c.isprintable() and c != " " else c for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # PEP 383: a byte that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(text: str) -> str:
    """A name for stdout: escaped on a terminal; as it is, byte for byte, where a program reads. What the
    stream's encoding cannot say is escaped, too: another character in its place would make another name."""
    text = escaped(text) if sys.stdout.isatty() else text
    if text.isascii() or sys.stdout.encoding.lower() in ("utf-8", "utf8"):
        return text
    return "".join(c if "\udc80" <= c <= "\udcff" else _in_encoding(c) for c in text)


def _in_encoding(character: str) -> str:
    encoding = sys.stdout.encoding
    return character.encode(encoding, "backslashreplace").decode(encoding)


def note(message: str) -> None:
    """One line on stderr."""
    text = together.label + " ".join(without_secrets(message).split())
    sys.stderr.write(f"headrace: {escaped(text) if sys.stderr.isatty() else text}\n")


def fail(message: str) -> int:
    """The same, of a failure; returns the exit code."""
    note(message)
    return 1


def refuse_folder(store: Store, key: str, missing: NotFoundError, advice: str) -> None:
    """Raises a NotFoundError with the advice where what is missing is the folder of others."""
    below = key.rstrip("/") + "/"
    try:
        found = next(iter(store.list(below, recursive=False)), None)
    except HeadraceError:
        return
    if found is not None:
        raise NotFoundError(f"{store.url}/{key} is no object but a folder: {advice}") from missing


def confirm(question: str) -> None:
    """Asks on the terminal; anything but yes ends the command as failed."""
    sys.stderr.write(f"{escaped(without_secrets(question))} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):  # Ctrl-D
        sys.stderr.write("\n")
    if answer.strip().lower() not in ("y", "yes"):
        raise CancelledError("not confirmed: nothing more is deleted")


def drop_output() -> None:
    """What is still in stdout's buffer goes nowhere: Python would try again to write it, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def reader_left() -> int:
    """The reader of our output left (`| head`): no error of ours."""
    drop_output()
    return 0


def guard(call: Callable[[], Any]) -> int:
    """Runs a command. 0: done, 1: failed, 130: Ctrl-C. Never lets a traceback out."""
    try:
        result = call()
        return result if isinstance(result, int) else 0
    except HeadraceError as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return CANCELLED
    except BrokenPipeError:
        return reader_left()
    except OSError as error:
        return fail(f"{error.filename or 'the output'}: {error.strerror or error}")
    except Exception as error:
        if os.environ.get("HEADRACE_DEBUG"):
            raise
        return fail(
            f"internal error: {type(error).__name__}: {error}; please report it (HEADRACE_DEBUG=1 shows "
            "where)"
        )


@contextmanager
def told_when_stopped(what: str) -> Iterator[None]:
    """Around what Ctrl-C may end: says what is true then."""
    try:
        yield
    except KeyboardInterrupt:
        fail(f"stopped; {what}")
        raise


def need_url(url: str) -> str:
    """The URL. Raises InvalidArgumentError for an empty one: as a path it would be the working directory, or
    the root, and `rm -r "$UNSET"` would delete it. And for a mistyped one, while all of it is at hand."""
    if not url:
        raise InvalidArgumentError("an empty URL; is a variable not set? The working directory is .")
    _native.check_store_url(url)
    return url


def is_local(url: str) -> bool:
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> str:
    """The path of a local URL. Raises InvalidArgumentError for a file URL that names another machine."""
    path = urls.local_path(url)
    return url if path is None else path


def local_file(text: str, name: str) -> str:
    """The path of what must be a local file; ``name`` is the option to blame. Raises InvalidArgumentError for
    a URL, which as a path would be a directory below the working one."""
    if not is_local(text):
        raise InvalidArgumentError(
            f"{name} {without_secrets(text)}: a local file is meant; to bring it to a store: headrace cp "
            "FILE URL"
        )
    return local_path(text)


_BLOB_HOSTS = (".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net")
"""Ends of the names of hosts at which a container is the first part of the path."""


def is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def split_url(url: str) -> tuple[str, str]:
    """(root, key): the bucket and the key in it, or the directory and the name of a file.

    A local directory is its own root; a trailing slash always means a directory. The query of a web URL goes
    with the root, which sends it with every request; keys of web URLs are escaped, as in every URL.
    """
    if is_local(need_url(url)):
        path = local_path(url)
        if path.endswith("/") or os.path.isdir(path):
            return path.rstrip("/") or "/", ""
        head, name = os.path.split(path)
        return head or ".", name
    url, sas = take_sas(url)
    scheme, _, rest = url.partition("://")
    if is_web(url):
        return _split_web(url)
    if scheme == "hf":
        return split_repository(rest)
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise InvalidArgumentError(f"{url}: no bucket; expected {scheme}://bucket/key")
    if scheme in ("az", "azure"):  # account/container/key
        container, _, key = key.partition("/")
        if not container:
            raise InvalidArgumentError(f"{url}: no container; expected {scheme}://account/container/key")
        bucket += "/" + container
    return f"{scheme}://{bucket}{sas}", key


def _split_web(url: str) -> tuple[str, str]:
    from urllib.parse import unquote

    scheme, _, rest = url.partition("://")
    rest, question, query = rest.partition("?")
    host, _, key = rest.partition("/")
    if not host:
        raise InvalidArgumentError(f"{url}: no host; expected {scheme}://host/path")
    if host.endswith(_BLOB_HOSTS):
        container, _, key = key.partition("/")
        host += f"/{container}"
    return f"{scheme}://{host}{question}{query}", unquote(key)


def wildcard(url: str) -> _native.Glob | None:
    """The pattern in a source; a local name that exists is meant as it is, and in web URLs a question mark is
    none."""
    url, _ = take_sas(url)
    if (
        is_web(url)
        or not any(c in url for c in "*?[{")
        or (is_local(url) and os.path.exists(local_path(url)))
    ):
        return None
    return _native.Glob(url)


def refuse_pattern(target: str, *, has_raw: bool = False) -> None:
    """Raises InvalidArgumentError for a target that is spelled as a pattern: it would become a name with
    these marks. What of a local path is there is meant as it is, and a question mark that begins the query of
    a web URL, or of Azure's, is none."""
    plain, _ = take_sas(target)
    if is_web(plain):
        plain = plain.partition("?")[0]
    new = _not_there(local_path(plain)) if is_local(plain) else plain
    marks = "".join(mark for mark in "*?[" if mark in new)
    if not marks:
        return
    if has_raw:
        advice = "with --raw they are part of the name"
    elif is_local(plain):
        advice = "a directory of this name must be there already"
    else:
        advice = "for this name write to another, then: headrace mv -r --raw"
    raise InvalidArgumentError(
        f"{without_secrets(target)}: a target is one place, and {' '.join(marks)} stand in patterns; {advice}"
    )


def _not_there(path: str) -> str:
    """The last parts of a path, from the first that does not exist on."""
    new = ""
    while path and not os.path.lexists(path):
        path, _, name = path.rstrip("/").rpartition("/")
        new = f"{name}/{new}"
    return new


def split_wildcard(url: str, glob: _native.Glob) -> tuple[str, str, str]:
    """(root, directory in it before the first wildcard, pattern of keys)."""
    url, sas = take_sas(url)
    before = glob.prefix[: glob.prefix.rfind("/") + 1]
    if is_local(need_url(url)):
        directory = local_path(before) or "."
        return directory.rstrip("/") or "/", "", url[len(before) :]
    if not before.partition("://")[2]:
        raise InvalidArgumentError(f"{url}: a wildcard cannot stand in the name of the bucket")
    root, directory = split_url(before + sas)
    return root, directory, directory + url[len(before) :]


class Together(threading.local):
    """Commands that run beside each other in one process (`headrace run`): what the one of this thread has in
    common with the others."""

    stores: Shared | None = None
    label = ""
    """Names the command in messages."""


together = Together()


class Shared:
    """Stores of several commands, and whether they are to stop."""

    def __init__(self, count: int) -> None:
        self.count = count
        """How many run at a time."""
        self.is_stopped = threading.Event()
        self.output = threading.RLock()
        """Of who writes to stdout, past Python or as SharedOutput."""
        self._lock = threading.Lock()
        self._open: dict[str, Store] = {}

    def open(self, root: str, memory: int | str, options: dict[str, Any]) -> Store:
        name = f"{root} {memory} {sorted(options.items())}"
        with self._lock:
            if name not in self._open:
                self._open[name] = Store(root, memory=memory, **options)
            return self._open[name]

    def close(self) -> None:
        for store in self._open.values():
            store.close()


class SharedOutput:
    """stdout while several commands run: what one writes at a time stays in one piece, and lines do not come
    between the bytes of an object."""

    def __init__(self, output: TextIO, lock: threading.RLock) -> None:
        self._output, self._lock = output, lock

    def write(self, text: str) -> int:
        with self._lock:
            return self._output.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        with self._lock:
            self._output.writelines(lines)

    def flush(self) -> None:
        with self._lock:
            self._output.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


def stop_if_asked() -> None:
    """Ends the command of this thread when all are to stop."""
    if together.stores is not None and together.stores.is_stopped.is_set():
        raise KeyboardInterrupt


@contextmanager
def data_on_stdout() -> Iterator[None]:
    """Around what writes data to descriptor 1, past Python: one command at a time."""
    with together.stores.output if together.stores is not None else nullcontext():
        stop_if_asked()
        sys.stdout.flush()
        try:
            yield
        except CancelledError:
            raise BrokenPipeError from None


class Stores(Closing):
    """The stores of one command, one a root, closed together."""

    def __init__(self, where: Where, memory: int | str = "256MiB", **options: Any) -> None:
        self.options: dict[str, Any] = {**where.as_dict(), **options}
        self._memory = memory
        self._open: dict[str, Store] = {}
        self._written: dict[str, Store] = {}

    def open(self, root: str) -> Store:
        return self._opened(self._open, root)

    def open_to_write(self, root: str, settings: ObjectSettings) -> Store:
        """A store that writes with these settings: another than open() gives when there are any."""
        return self._opened(self._written, root, settings=settings) if settings else self.open(root)

    def _opened(self, stores: dict[str, Store], root: str, **options: Any) -> Store:
        if root not in stores:
            self._check_endpoint(root)
            options |= self.options_of(root)
            if is_local(root):  # Copies read and write them in place, which a store with a cache is not.
                options |= dict.fromkeys(CACHE_OPTIONS)
            shared = together.stores
            stores[root] = (
                Store(root, memory=self._memory, **options)
                if shared is None
                else shared.open(root, self._memory, options)
            )
        return stores[root]

    def options_of(self, root: str) -> dict[str, Any]:
        return self.options

    def _check_endpoint(self, root: str) -> None:
        """One endpoint cannot be that of two services; one of them would see the other's credentials."""
        schemes = {
            r.partition("://")[0]
            for r in (*self._open, *self._written, root)
            if not is_local(r) and not is_web(r)
        } - {"memory"}
        if self.options["endpoint"] and len(schemes) > 1:
            raise InvalidArgumentError(
                f"--endpoint with {' and '.join(sorted(schemes))} URLs: it would be used for both; set the "
                "endpoints in the environment"
            )

    def split(self, url: str) -> tuple[Store, str]:
        root, key = split_url(url)
        return self.open(root), key

    def close(self) -> None:
        if together.stores is None:
            for store in (*self._open.values(), *self._written.values()):
                store.close()
