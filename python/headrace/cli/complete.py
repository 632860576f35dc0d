"""Completion in shells: `headrace completion bash` prints what a shell has to read, which then asks
`headrace __complete WORDS...` for each word."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

from headrace import _native
from headrace.cli.base import Stores, split_url
from headrace.cli.declare import Option, Where, argument, parameters
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.store.store import profile_environment

__all__ = ["ASK", "answer", "completion"]

ASK = "__complete"
TIMEOUT_SECONDS = 3.0

_BASH = """\
_headrace() {
    local line=${COMP_LINE:0:COMP_POINT} cur found colon
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[${#words[@]}-1]}
    COMPREPLY=()
    while IFS= read -r found; do
        [[ $found == */ ]] && compopt -o nospace
        COMPREPLY+=("$(printf %q "$found")")
    done < <(headrace __complete "${words[@]:1}" 2>/dev/null)
    # Readline takes what comes after a colon for the word.
    if [[ $COMP_WORDBREAKS == *:* ]]; then
        colon=${cur%"${cur##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$colon"}")
    fi
}
complete -o default -F _headrace headrace
"""
_ZSH = """\
#compdef headrace
_headrace() {
    local found
    local -a whole open
    for found in "${(@f)$(headrace __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -z $found ]] && continue
        [[ $found == */ ]] && open+=("$found") || whole+=("$found")
    done
    (( $#whole + $#open )) || { _files; return }
    compadd -a whole
    compadd -S '' -a open
}
compdef _headrace headrace
"""
_FISH = """\
complete -c headrace -a '(headrace __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(
    shell: Annotated[str, argument(metavar="bash|zsh|fish", help="Whose script.")],
) -> int:
    """Print a script that completes commands, options, buckets and keys.

    Examples:

    * `source <(headrace completion bash)` — in ~/.bashrc

    * `source <(headrace completion zsh)` — in ~/.zshrc, after compinit

    * `headrace completion fish > ~/.config/fish/completions/headrace.fish`
    """
    if shell not in _SCRIPTS:
        raise InvalidArgumentError(f"{shell}: there are {', '.join(_SCRIPTS)}")
    sys.stdout.write(_SCRIPTS[shell])
    return 0


def answer(words: list[str], load_commands: Callable[[], Any]) -> int:
    """Prints what the last of the words may become, one a line; nothing for what is a file's name, or where
    something fails: nobody can read errors there.

    :param load_commands: gives the command-line library's tree of commands, which is slow to import.
    """
    *before, word = words or [""]
    try:
        found = (
            _names_in_store(before, word) if "://" in word else _of_commands(load_commands(), before, word)
        )
    except (HeadraceError, OSError):
        return 1
    sys.stdout.writelines(f"{each}\n" for each in found if each.startswith(word) and each.isprintable())
    return 0


def _of_commands(command: Any, before: list[str], word: str) -> list[str]:
    for each in before:
        command = getattr(command, "commands", {}).get(each, command)
    if word.startswith("-"):
        return [flag for row in command.params if not getattr(row, "hidden", False) for flag in _flags(row)]
    return [name for name, each in getattr(command, "commands", {}).items() if not each.hidden]


def _flags(parameter: Any) -> list[str]:
    flags = [*parameter.opts, *parameter.secondary_opts]
    return [flag for flag in flags if flag.startswith("--")]


def _given(words: list[str]) -> dict[str, Any]:
    """The options about stores on the command line."""
    flags = {
        flag: row for row in parameters(Where) if isinstance(row.given, Option) for flag in row.given.flags
    }
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        row = flags.get(name)
        if row is None:
            continue
        if row.kind is bool:
            given[row.name] = not row.default
        elif row.kind is str:
            given[row.name] = value if equals else next(rest, "")
    return given


def _names_in_store(before: list[str], word: str) -> list[str]:
    given = {**_given(before), "timeout": TIMEOUT_SECONDS}
    scheme, _, rest = word.partition("://")
    owner = f"{scheme}://{rest.rpartition('/')[0]}"
    if _native.is_bucket_owner(owner):
        environment = profile_environment(given.pop("profile", None))
        return [f"{url}/" for url, _ in _native.list_buckets(owner, given, environment)]
    root, prefix = split_url(word)
    with Stores(Where(**given)) as stores:
        objects, prefixes, _ = stores.open(root)._native.list_page(prefix, "/", "")
    return [f"{root}/{key}" for key in sorted([*prefixes, *(info.key for info in objects)])]
