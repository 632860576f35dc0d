"""tools/wrap_docs.py wraps prose and nothing else."""

from __future__ import annotations

from tool_module import load_tool

wrap_docs = load_tool("wrap_docs")

LONG = "word " * 30


def test_prose_and_list_items_are_wrapped() -> None:
    lines = wrap_docs.wrap(f"{LONG}\n\n* {LONG}\n").split("\n")
    assert max(map(len, lines)) <= wrap_docs.WIDTH
    assert [line for line in lines if line.startswith("*")] == [lines[3]]
    assert lines[4].startswith("  word")


def test_tables_code_headings_and_hard_breaks_stay() -> None:
    text = (
        f"# {LONG}\n\n| {LONG} |\n|---|\n\n```\n{LONG}\n```\n\n    {LONG}\n\n{LONG}  "
        f"\n{LONG}\n\n<p>{LONG}</p>\n"
    )
    assert wrap_docs.wrap(text) == text


def test_no_line_begins_a_list_by_chance() -> None:
    text = "word " * 19 + "and - then + two * stars 7. and # more of it " * 4
    for line in wrap_docs.wrap(text).split("\n"):
        assert not wrap_docs.ITEM.match(line), line
        assert not line.startswith("#"), line


def test_what_is_short_is_not_touched_and_wrapping_twice_changes_nothing() -> None:
    short = "one\ntwo\n\n* three\n  four\n"
    assert wrap_docs.wrap(short) == short
    once = wrap_docs.wrap(f"{LONG} `code with spaces` {LONG}")
    assert wrap_docs.wrap(once) == once
    assert "`code with spaces`" in once
