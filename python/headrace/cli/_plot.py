"""Pictures of measurements, by matplotlib where it is installed."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from headrace.errors import UnsupportedError

__all__ = ["Html", "Plot", "find_figure", "write_pictures"]

Plot: TypeAlias = Annotated[
    str, typer.Option("--plot", metavar="FILE.png", help="Draw it (needs matplotlib).")
]
Html: TypeAlias = Annotated[
    str,
    typer.Option(
        "--html", metavar="FILE", help="Write picture and numbers as a page that needs no other file."
    ),
]


def find_figure() -> Any:
    """matplotlib's Figure, which needs no display. Raises UnsupportedError: ask before anything is measured."""
    try:
        from matplotlib.figure import Figure  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise UnsupportedError("--plot and --html need matplotlib: pip install matplotlib") from None
    return Figure


def write_pictures(
    figure: Any,
    plot: str,
    page: str,
    title: str,
    rows: Iterable[Sequence[object]],
    draw: Callable[[Any], None],
) -> None:
    """Writes what ``draw`` puts on a figure as PNG, as a page with the numbers, or both; "" stands for neither.

    :param figure: find_figure().
    :param rows: of the page's table; the first is its head.
    """
    drawing = figure(figsize=(10, 4.2), layout="constrained")
    draw(drawing)
    if plot:
        drawing.savefig(plot, dpi=150)
    if page:
        with open(page, "w", encoding="utf-8") as file:
            file.write(_page(drawing, title, rows))


def _page(figure: Any, title: str, rows: Iterable[Sequence[object]]) -> str:
    """No script, nothing from elsewhere."""
    image = io.StringIO()
    figure.savefig(image, format="svg", metadata={"Date": None})
    drawing = image.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    head, *body = [[html.escape(str(cell)) for cell in row] for row in rows]
    cells = "".join(f"<th>{cell}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in body)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
td, th {{ text-align: right; padding: .2rem .8rem; border-bottom: 1px solid #8884; }}
</style></head><body>
<h1>{html.escape(title)}</h1>
{drawing}
<table><thead><tr>{cells}</tr></thead><tbody>
{lines}</tbody></table>
</body></html>
"""
