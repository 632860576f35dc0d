"""The package itself: stubs, version, what it exports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace import _native, errors


def signatures(path: Path) -> set[str]:
    """Functions and methods of a stub with their argument names."""
    found = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef):
                arguments = [a.arg for a in child.args.posonlyargs + child.args.args + child.args.kwonlyargs]
                found.add(f"{prefix}{child.name}({', '.join(arguments)})")

    visit(ast.parse(path.read_text()), "")
    return found


def test_the_stub_matches_the_extension(tmp_path: Path) -> None:
    pytest.importorskip("nanobind.stubgen")
    fresh = tmp_path / "fresh.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "headrace._native", "-o", str(fresh)],
        check=True,
    )
    checked_in = Path(hr.__file__).parent / "_native.pyi"
    assert signatures(checked_in) == signatures(fresh)


def test_exports_exist_and_the_version_is_the_engines() -> None:
    assert all(hasattr(hr, name) for name in hr.__all__)
    assert hr.__version__ == _native.__version__


@pytest.mark.parametrize(
    ("name", "builtin", "code", "retryable"),
    [
        ("NotFoundError", FileNotFoundError, "not_found", False),
        ("DeadlineError", TimeoutError, "deadline", False),
        ("InvalidArgumentError", ValueError, "invalid_argument", False),
        ("CorruptError", IOError, "corrupt", False),
        ("DeniedError", PermissionError, "denied", False),
        ("ChangedError", Exception, "changed", False),
        ("UnavailableError", ConnectionError, "unavailable", True),
        ("ThrottledError", ConnectionError, "throttled", True),
        ("ExhaustedError", MemoryError, "exhausted", False),
        ("UnsupportedError", NotImplementedError, "unsupported", False),
        ("CancelledError", Exception, "cancelled", False),
        ("InternalError", RuntimeError, "internal", False),
        ("UserCodeError", RuntimeError, "user_code", False),
    ],
)
def test_errors_are_also_the_builtins_that_users_expect(
    name: str, builtin: type[Exception], code: str, retryable: bool
) -> None:
    error = getattr(errors, name)("what happened")
    assert isinstance(error, (hr.HeadraceError, builtin))
    assert isinstance(error, builtin)
    assert (error.code, error.retryable, error.key, str(error)) == (code, retryable, None, "what happened")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, headrace; print(sorted({'torch', 'rich', 'typer', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def run_alone(code: str) -> list[str]:
    """The words that a program prints in a process of its own, where nothing is imported yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_modules_come_when_they_are_used() -> None:
    before, *after = run_alone(
        "import sys, headrace as hr\n"
        "late = ['sim', 'prepare', 'checkpoint', 'collate', 'transforms', 'decode']\n"
        "print(sum(f'headrace.{name}' in sys.modules for name in late))\n"
        "print(hr.sim.Server.__name__, hr.prepare.convert.__name__, hr.StoreOptions.__name__, "
        "hr.collate.pad.__name__)"
    )
    assert (before, after) == ("0", ["Server", "convert", "StoreOptions", "pad"])


def test_dir_shows_what_is_public_and_nothing_else() -> None:
    assert run_alone("import headrace as hr; print(*dir(hr))") == sorted(hr.__all__)
    assert run_alone("import headrace as hr, headrace.fsspec; print(*dir(hr))") == sorted(
        [*hr.__all__, "fsspec"]
    )


def test_what_must_be_imported_says_so() -> None:
    """A module that wants packages of others does not come by itself: hasattr() never raises ImportError."""
    (said,) = run_alone(
        "import headrace\ntry: headrace.jax\nexcept AttributeError as e: print(str(e).replace(' ', '_'))"
    )
    assert said == "headrace.jax_comes_with_`import_headrace.jax`"


def test_type_checkers_see_the_same_names() -> None:
    """Those that are imported for them, or at once, are those that are public."""
    tree = ast.parse(Path(hr.__file__).read_text())
    seen = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen - {"TYPE_CHECKING", "Any", "import_module"} == set(hr.__all__)


def test_every_module_is_installed() -> None:
    source = Path(__file__).resolve().parents[2] / "python" / "headrace"
    installed = Path(hr.__file__).parent
    missing = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if not (installed / path.relative_to(source)).exists()
    ]
    assert not missing


def test_the_extension_shows_python_one_symbol_and_nobody_else_any() -> None:
    """Other extensions of the process may have other versions of the libraries inside."""
    table = subprocess.run(
        ["readelf", "--wide", "--dyn-syms", _native.__file__], capture_output=True, text=True, check=True
    )
    assert re.findall(r"(?:GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+\d+ (\S+)", table.stdout) == ["PyInit__native"]
