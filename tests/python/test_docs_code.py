"""Code in the documentation: Python compiles and uses what there is, commands and their options exist, and
links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from doc_pages import PAGES, ROOT, Code, anchors, code_blocks, code_spans, links

from headrace.loader.options import LoaderOptions

# Packages of others that blocks import are not looked into; these of ours need one that may not be there.
OPTIONAL = {
    "headrace.torch": "torch",
    "headrace.jax": "jax",
    "headrace.fsspec": "fsspec",
    "headrace.checkpoint.torch_checkpointing": "torch_checkpointing",
    "headrace.checkpoint.torchtitan": "torchtitan",
}
DATA = "headrace fingerprint "
"""What begins like a command and is none."""
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]


def is_of_the_past(name: str) -> bool:
    """Design notes and the list of changes say what was."""
    return name.startswith("docs/design/") or name == "CHANGELOG.md"


def find(name: str) -> Any:
    """What a dotted name of ours stands for. Raises AttributeError or ImportError."""
    for module, package in OPTIONAL.items():
        if name.startswith(module) and importlib.util.find_spec(package) is None:
            return None
    first, *rest = name.split(".")
    found: Any = importlib.import_module(first)
    path = first
    for part in rest:
        path += f".{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            if not inspect.ismodule(found):
                raise
            found = importlib.import_module(path)
    return found


def imported(tree: ast.AST) -> dict[str, str]:
    """The full name of each name that a block imports from us; ``hr`` is always known."""
    names = {"hr": "headrace", "headrace": "headrace"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "headrace":
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """The full name of an expression; empty when it is none of ours."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return owner and f"{owner}.{node.attr}"
    return ""


def accepted(function: Any) -> set[str] | None:
    """Names of a call's keyword arguments; None: any."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD and p.name not in ("options", "unknown") for p in parameters.values()):
        return None
    names = set(parameters)
    return names | set(LoaderOptions.__annotations__) if "options" in names else names


def mistakes(code: Code) -> Iterator[str]:
    tree = ast.parse(code.text)
    names = imported(tree)
    for full in names.values():
        find(full)
    for node in ast.walk(tree):
        name = dotted(node, names) if isinstance(node, ast.Attribute) else ""
        if name:
            find(name)
        called = dotted(node.func, names) if isinstance(node, ast.Call) else ""
        known = accepted(find(called)) if called and find(called) is not None else None
        if known is not None:
            assert isinstance(node, ast.Call)
            given = {keyword.arg for keyword in node.keywords if keyword.arg}
            yield from (f"{called} has no argument {name}" for name in sorted(given - known))


@pytest.mark.parametrize("name", NAMES)
def test_python_compiles_and_uses_what_there_is(name: str) -> None:
    for code in code_blocks(ROOT / name, "python"):
        try:
            wrong = list(mistakes(code))
        except (SyntaxError, AttributeError, ImportError) as error:
            wrong = [str(error)]
        assert not wrong, f"{code}: {wrong}"


@pytest.mark.parametrize("name", [name for name in NAMES if not is_of_the_past(name)])
def test_expressions_use_what_there_is(name: str) -> None:
    wrong = []
    for code in [*code_spans(ROOT / name, "hr."), *code_spans(ROOT / name, "headrace.")]:
        if code.text.startswith("headrace.") and "(" not in code.text:
            continue  # A logger, or a name in a file.
        # `Stream(repeat=, choose=)` names arguments and no values.
        complete = re.sub(r"(\w=)(?=[,)])", r"\1...", code.text)
        try:
            wrong += [f"{code}: {problem}" for problem in mistakes(code._replace(text=complete))]
        except SyntaxError:  # With words behind it, say.
            continue
        except (AttributeError, ImportError) as error:
            wrong.append(f"{code}: {error}")
    assert not wrong


def commands_of(text: str) -> Iterator[list[str]]:
    """Words of each command of a block that begins with ``headrace``, ``make``, or a program of ours."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        command: list[str] = []
        for word in [*words, ";"]:
            if word in (";", "|", "&", "&&", "||", "\\"):
                yield command
                command = []
            else:
                command.append(word)


@pytest.fixture(scope="module")
def app() -> Any:
    typer = pytest.importorskip("typer")
    from headrace.cli.commands import app

    return typer.main.get_command(app)


def wrong_options(command: Any, words: list[str]) -> Iterator[str]:
    """Options that a command of headrace does not have."""
    rest = list(words)
    while hasattr(command, "commands"):
        while rest and rest[0].startswith("-"):
            rest.pop(0)
        if not rest or not re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            return  # `headrace COMMAND --help`
        if rest[0] not in command.commands:
            yield f"there is no command {rest[0]}"
            return
        command = command.commands[rest.pop(0)]
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        flag = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*|-[a-zA-Z]", flag) and flag not in known | {"--help"}:
            yield f"{command.name} has no option {flag}"


def wrong_command(words: list[str], app: Any) -> Iterator[str]:
    """What does not exist of a command line."""
    while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
        words = words[1:]
    if not words:
        return
    if words[0] == "headrace":
        yield from wrong_options(app, words[1:])
    elif words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+)(?= |:)", (ROOT / "Makefile").read_text(), re.M)) | {"tsan"}
        yield from (
            f"make has no target {word}" for word in words[1:] if word.isalpha() and word not in targets
        )
    for word in words:
        if re.match(r"(examples|tools|bench|tests|demo)/\S+$", word) and not (ROOT / word).exists():
            yield f"there is no {word}"


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_their_options_exist(name: str, app: Any) -> None:
    blocks = list(code_blocks(ROOT / name, "sh", "console", "bash"))
    wrong = [
        f"{code}: {problem}"
        for code in blocks
        for words in commands_of(code.text)
        for problem in wrong_command(words, app)
    ]
    if not is_of_the_past(name):
        for code in code_spans(ROOT / name, "headrace "):
            problems = wrong_options(app, code.text.split()[1:])
            wrong += [f"{code}: {problem}" for problem in problems if not code.text.startswith(DATA)]
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    wrong = []
    for line, target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        is_there = file.exists() and file.is_relative_to(ROOT)
        if not is_there or (anchor and file.parent.name != "api" and anchor not in anchors(file)):
            wrong.append(f"{name}:{line}: {target}")
    assert not wrong


def test_the_reference_names_what_there_is() -> None:
    """And has all that is public of the package itself."""
    named = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        named |= set(re.findall(r"^::: (\S+)", page.read_text(), re.M))
    for name in named:
        find(name)
    errors = set(importlib.import_module("headrace.errors").__all__)
    public = set(importlib.import_module("headrace").__all__) - errors - {"__version__"}
    assert not {name for name in public if f"headrace.{name}" not in named}


def test_every_page_is_in_the_navigation() -> None:
    said = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if (ROOT / "docs") in page.parents]
    assert not [page for page in pages if not page.startswith("design/") and f"- {page}\n" not in said]
