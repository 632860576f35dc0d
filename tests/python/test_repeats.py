"""tools/repeats.py counts places that repeat lines of another."""

from __future__ import annotations

from pathlib import Path

from tool_module import load_tool

repeats = load_tool("repeats")

SUM = """
int sum(int a) {
  int total = 0;
  for (int i = 0; i < a; ++i) total += i;
  log(total);  // told
  check(total);
  return total;
}
"""


def count(folder: Path, *texts: str, by_shape: bool = False, suffix: str = "cc") -> list[int]:
    """Lines of each pair."""
    files = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.{suffix}"
        path.write_text(text)
        files.append(repeats.lines_of(path, by_shape))
    return [lines for _, _, lines in repeats.find_pairs(files, 6)]


def test_the_same_lines_are_found_whatever_stands_between_them(tmp_path: Path) -> None:
    assert count(tmp_path, SUM, SUM.replace("\n", "\n\n  // why\n")) == [6]
    assert count(tmp_path, SUM, SUM.replace("check(total);", "")) == []
    assert count(tmp_path, SUM) == []


def test_of_three_places_two_count(tmp_path: Path) -> None:
    assert count(tmp_path, SUM, SUM, SUM) == [6, 6]
    assert count(tmp_path, SUM + SUM) == [6]


def test_names_and_values_matter_unless_the_shape_is_asked_for(tmp_path: Path) -> None:
    other = SUM.replace("total", "all").replace("0", "7")
    assert count(tmp_path, SUM, other) == []
    assert count(tmp_path, SUM, other, by_shape=True) == [6]
    assert count(tmp_path, SUM, other.replace("+=", "-="), by_shape=True) == []


def test_a_longer_run_is_one_pair(tmp_path: Path) -> None:
    longer = SUM + SUM.replace("sum", "product").replace("+=", "*=")
    assert count(tmp_path, longer, longer) == [12]


def test_rows_and_imports_and_docstrings_do_not_count(tmp_path: Path) -> None:
    rows = "\n".join(f"  row({i}, x{i})," for i in range(20))
    assert count(tmp_path, rows, rows) == []
    prose = "import a\n" * 3 + '"""\n' + "These lines are prose.\n" * 9 + '"""\n'
    assert count(tmp_path, prose, prose, suffix="py") == []


def test_it_says_what_repeats_what() -> None:
    lines = [repeats.Line(i, "f ( ) ;") for i in range(6)]
    assert repeats.kind_of(("src/a/b.cc", "src/a/b_test.cc"), lines) == "src/*.cc and tests"
    assert repeats.kind_of(("python/a.py", "python/b.py"), lines) == "python/, bench/, tools/"
    rows = [repeats.Line(i, "f ( ) ,") for i in range(6)]
    assert repeats.kind_of(("src/a.cc", "src/b.cc"), rows).startswith("rows")
    fields = [
        repeats.Line(0, "int n = 0 ;"),
        repeats.Line(1, "std :: string n ;"),
        repeats.Line(2, "n : str | None"),
    ]
    assert repeats.kind_of(("src/a.cc", "src/b.cc"), fields) == "fields"
    assert repeats.kind_of(("src/a.cc", "src/b.cc"), [repeats.Line(0, "n = f ( 1 ) ;")]) == "src/*.cc"
