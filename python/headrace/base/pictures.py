"""Pictures of measurements by matplotlib, where it is installed, and pages around them."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.errors import UnsupportedError

__all__ = ["COLOURS", "PICTURES", "Table", "entitle", "find_figure", "page"]

COLOURS = ("#1f6feb", "#d1702a", "#2da44e", "#8250df", "#bf3989", "#57606a", "#9a6700", "#1b7c83", "#cf222e")

PICTURES = (".png", ".svg", ".pdf")
"""Endings of names."""

Table = Iterable[Sequence[object]]
"""Rows of a table; the first is its head."""


def find_figure(wants: str = "--plot and --html need") -> Any:
    """matplotlib's Figure, which needs no display. Raises UnsupportedError: ask before anything is measured.

    :param wants: the beginning of its message.
    """
    try:
        from matplotlib.figure import Figure  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise UnsupportedError(f"{wants} matplotlib: pip install matplotlib") from None
    return Figure


def entitle(figure: Any, title: str) -> None:
    """For a picture that stands alone: a page has its own heading. A URL is no formula, whatever is in it."""
    figure.suptitle(title, fontsize=10, parse_math=False)


def page(title: str, figure: Any, tables: Iterable[Table]) -> str:
    """A page of a picture and tables. No script, nothing from elsewhere."""
    image = io.StringIO()
    figure.savefig(image, format="svg", metadata={"Date": None})
    drawing = image.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }}
td, th {{ text-align: right; padding: .2rem .8rem; border-bottom: 1px solid #8884; }}
td:first-child, th:first-child {{ text-align: left; }}
</style></head><body>
<h1>{html.escape(title)}</h1>
{drawing}
{"".join(map(_table, tables))}</body></html>
"""  # noqa: E501


def _table(rows: Table) -> str:
    head, *body = [[html.escape(str(cell)) for cell in row] for row in rows]
    cells = "".join(f"<th>{cell}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in body)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>\n{lines}</tbody></table>\n"
