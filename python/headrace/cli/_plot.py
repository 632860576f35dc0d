"""Options for pictures, and writing them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from headrace.base.pictures import PICTURES, Table, entitle, find_figure, page
from headrace.errors import InvalidArgumentError

__all__ = ["Html", "Plot", "check_writable", "prepare_pictures", "write_pictures"]

Plot: TypeAlias = Annotated[
    str, typer.Option("--plot", metavar="FILE.png", help="Draw it (needs matplotlib).")
]
Html: TypeAlias = Annotated[
    str,
    typer.Option(
        "--html", metavar="FILE", help="Write picture and numbers as a page that needs no other file."
    ),
]


def prepare_pictures(plot: str, html: str = "") -> Any:
    """matplotlib's Figure where a picture or a page is asked for, else None. Raises what would go wrong when
    it is written: asked before, it costs no measurement."""
    figure = find_figure() if plot or html else None
    for path in filter(None, (plot, html)):
        check_writable(path)
    if plot and not plot.lower().endswith(PICTURES):
        raise InvalidArgumentError(f"--plot {plot}: the name of a picture ends in {', '.join(PICTURES)}")
    return figure


def check_writable(path: str) -> None:
    """Raises InvalidArgumentError where no file of this name can be written."""
    directory = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise InvalidArgumentError(f"{path} is a directory: name a file")
    if not os.path.isdir(directory):
        raise InvalidArgumentError(f"{path}: there is no directory {directory}")
    if not os.access(path if os.path.exists(path) else directory, os.W_OK):
        raise InvalidArgumentError(f"{path}: may not be written")


def write_pictures(
    figure: Any, plot: str, html: str, title: str, rows: Table, draw: Callable[[Any], None]
) -> None:
    """Writes what ``draw`` puts on a figure as a picture, as a page with the numbers, or both; "" stands for
    neither.

    :param figure: prepare_pictures().
    :param rows: of the page's table.
    """
    drawing = figure(figsize=(10, 4.2), layout="constrained")
    draw(drawing)
    if html:
        with open(html, "w", encoding="utf-8") as file:
            file.write(page(title, drawing, [rows]))
    if plot:
        entitle(drawing, title)
        drawing.savefig(plot, dpi=150)
