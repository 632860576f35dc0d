"""Options for pictures, and writing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from headrace.base.pictures import Table, find_figure, page

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


def write_pictures(
    figure: Any, plot: str, html: str, title: str, rows: Table, draw: Callable[[Any], None]
) -> None:
    """Writes what ``draw`` puts on a figure as PNG, as a page with the numbers, or both; "" stands for neither.

    :param figure: find_figure().
    :param rows: of the page's table.
    """
    drawing = figure(figsize=(10, 4.2), layout="constrained")
    draw(drawing)
    if plot:
        drawing.savefig(plot, dpi=150)
    if html:
        with open(html, "w", encoding="utf-8") as file:
            file.write(page(title, drawing, [rows]))
