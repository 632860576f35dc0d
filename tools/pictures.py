#!/usr/bin/env python3
"""Draws docs/pictures/: the idea, by the reference program of docs/order.md, and the speed, from the tables
of docs/performance.md. Needs matplotlib (tools/setup test brings it).

Usage: tools/pictures.py [DIRECTORY]   (default docs/pictures; the same input gives the same bytes)
Each picture holds the numbers that it shows as JSON, in its metadata: a test compares them with the
documents.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# The colours of Okabe and Ito, which people who see few colours tell apart, and lighter ones of them.
BLOCK_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
    "#8c8c8c", "#f0e442", "#7fb8d8", "#f2cf80", "#80cfb9", "#e5bcd3",
)  # fmt: skip
OURS, OTHERS = "#0072b2", "#a6a6a6"
OUR_SHADES = ("#003f66", "#0072b2", "#7fb8d8")
OTHER_SHADES = ("#606060", "#909090", "#c4c4c4")
BLOCKS, BLOCK_SAMPLES, LANES, WINDOW, BATCH, SEED = 12, 8, 4, 2, 8, 17
STOP = 5
"""Global batches that the run of the picture has received when it is killed."""


def section(page: str, heading: str) -> str:
    return (DOCS / page).read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def table_rows(text: str, first_cell: str) -> list[list[str]]:
    """Rows of the table of Markdown whose head begins with ``first_cell``."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(f"| {first_cell} |"))
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("*") for cell in line.strip("|").split("|")])
    return rows


def number(text: str) -> float:
    """The first one in a cell."""
    found = re.search(r"\d[\d,]*\.?\d*", text)
    assert found, text
    return float(found[0].replace(",", ""))


def format_ratios() -> list[dict[str, Any]]:
    """By format: how many times the samples for a CPU second of the format's own loader, and the spread."""
    rows, name = [], ""
    for case, _, peer, ratio, *_ in table_rows(
        section("performance.md", "Reading, format by format"), "case"
    ):
        name = peer.split(":")[0] if ":" in peer else name
        low, high = re.findall(r"[\d.]+", ratio.split("(")[1]) if "(" in ratio else [number(ratio)] * 2
        rows.append(
            {"case": case, "peer": name, "ratio": number(ratio), "low": float(low), "high": float(high)}
        )
    return rows


def range_costs() -> list[dict[str, Any]]:
    """By client: CPU seconds for a GB of ranges."""
    heading = "Range GETs: the Store API against the raw floor and other clients"
    return [
        {"client": name.strip("*").replace("`", ""), "sizes": [number(cell) for cell in cells]}
        for name, *cells in table_rows(section("performance.md", heading), "client")
    ]


def image_rates() -> list[dict[str, Any]]:
    """By loader: images for a CPU second, resized and cropped; what was not measured is None."""
    text = section("performance.md", "Images: JPEG to batches")
    return [
        {"loader": plain_name(name), "rates": [number(cell) if cell else None for cell in (resize, crop)]}
        for name, resize, _, crop, _ in table_rows(text, "loader")
    ]


def accelerator_counts() -> list[dict[str, Any]]:
    """By loader: accelerators a core, of resnet50, cosmoflow and unet3d."""
    text = section("performance.md", "Training without accelerators")
    rows = table_rows(text.split("Peers in the same emulation", 1)[1], "loader")
    return [
        {"loader": plain_name(name), "counts": [number(cell.split(", ")[2]) for cell in cells]}
        for name, *cells in rows
    ]


def plain_name(cell_text: str) -> str:
    return re.sub(r"[*`]|=True| \(.*\)", "", cell_text)


def dataset_order() -> list[list[int]]:
    """Dataset positions that each lane gives in epoch 0."""
    program = re.search(r"```python\n(.*?)```", section("order.md", "Reference program"), re.S)
    assert program
    names: dict[str, Any] = {}
    exec(program[1], names)
    lanes: list[list[int]] = names["lanes"]([BLOCK_SAMPLES] * BLOCKS, SEED, 0, LANES, WINDOW)
    return lanes


def idea_figures() -> list[list[int]]:
    """Blocks of the samples of each global batch, slot by slot: lanes are bundled by one here (m = 1)."""
    rows = BATCH // LANES
    return [
        [dataset_order()[slot // rows][batch * rows + slot % rows] // BLOCK_SAMPLES for slot in range(BATCH)]
        for batch in range(BLOCKS * BLOCK_SAMPLES // BATCH)
    ]


def cell(axes: Any, x: float, y: float, block: int, size: tuple[float, float] = (0.9, 0.9)) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), *size, facecolor=BLOCK_COLOURS[block], edgecolor="none"))


def brace(axes: Any, x: float, bottom: float, top: float, text: str, side: int) -> None:
    """A bracket beside rows; ``side`` is -1 for text on its left, 1 on its right."""
    axes.plot([x - 0.25 * side, x, x, x - 0.25 * side], [bottom, bottom, top, top], color="black", lw=1)
    place = "left" if side > 0 else "right"
    axes.text(x + 0.3 * side, (bottom + top) / 2, text, ha=place, va="center", fontsize=9)


def draw_blocks(axes: Any) -> None:
    axes.text(
        0, 13.9, "The dataset in the store: shards, cut into blocks of neighbouring samples", fontsize=10
    )
    for block in range(BLOCKS):
        for sample in range(BLOCK_SAMPLES):
            cell(axes, block * 2 + 0.9 * sample / BLOCK_SAMPLES * 2, 12.4, block, (0.17, 1.1))
    axes.annotate(
        "",
        (12, 9.75),
        (12, 12.1),
        arrowprops={"arrowstyle": "-|>", "color": "black", "shrinkA": 0, "shrinkB": 0},
    )
    axes.text(
        12.4,
        10.85,
        "order = f(dataset, seed, epoch): known before the first byte is read",
        fontsize=10,
        va="center",
    )


def draw_batches(axes: Any) -> None:
    scale = 2
    for batch, slots in enumerate(idea_figures()):
        x = batch * scale + (0 if batch < STOP else 0.6)
        for slot, block in enumerate(slots):
            cell(axes, x, BATCH - slot - 0.1, block, (1.6, 0.85))
        axes.text(x + 0.8, 0.35, str(batch), ha="center", va="center", fontsize=8)
    axes.text(12.3, -0.55, "global batches of the epoch, in order", ha="center", va="center", fontsize=9)
    stop = STOP * scale + 0.1
    axes.plot([stop, stop], [0.2, 9.3], color="#d00000", lw=1.6, ls=(0, (4, 2)))
    axes.text(
        stop - 0.25,
        9.1,
        "killed here by kill -9, resumed with four ranks",
        ha="right",
        color="#d00000",
        fontsize=9,
    )
    for rank in range(2):
        top = BATCH - 4 * rank + 0.75
        brace(axes, -0.4, top - 3.85, top, f"rank {rank}\nof 2", -1)
    for rank in range(4):
        top = BATCH - 2 * rank + 0.75
        brace(axes, 24.7, top - 1.85, top, f"rank {rank} of 4", 1)


def draw_idea(figure: Any) -> None:
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-3, 29)
    axes.set_ylim(-1.2, 14.9)
    axes.axis("off")
    draw_blocks(axes)
    draw_batches(axes)


def draw_ratios(axes: Any) -> None:
    rows = format_ratios()[::-1]
    for y, row in enumerate(rows):
        axes.barh(y, row["ratio"] - 1, left=1, color=OURS, height=0.62)
        axes.plot([row["low"], row["high"]], [y, y], color="black", lw=1.2)
        axes.text(row["high"] * 1.12, y, f"{row['ratio']:g} ×", va="center", fontsize=9)
    axes.axvline(1, color=OTHERS, lw=1.5)
    axes.set_xscale("log")
    axes.set_xlim(0.9, 320)
    axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.set_yticks(
        range(len(rows)), [f"{wrapped(row['case'])}\n/ {row['peer']}" for row in rows], fontsize=8
    )
    axes.set_title(
        "Samples for a CPU second: Headrace /\nthe format's own loader (line: spread)", fontsize=10
    )


def wrapped(case: str) -> str:
    return re.sub(r" \(.*\)", "", case).replace(", both CRCs", "").replace(" on loopback", "")


def draw_costs(axes: Any) -> None:
    rows = range_costs()[::-1]
    for y, row in enumerate(rows):
        colours = OUR_SHADES if "Headrace" in row["client"] else OTHER_SHADES
        for i, cost in enumerate(row["sizes"]):
            axes.barh(y + 0.26 * (1 - i), cost, color=colours[i], height=0.24)
            axes.text(cost * 1.08, y + 0.26 * (1 - i), f"{cost:#.3g}".rstrip("."), va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlim(0.1, 60)
    axes.set_xticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"])
    axes.minorticks_off()
    names = [row["client"].replace("floor", "floor: sockets alone, io_uring") for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_title(
        "CPU seconds to fetch a GB by ranges of\n8 MiB, 1 MiB, 64 KiB (dark to light)", fontsize=10
    )


def draw_speed(figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    draw_ratios(left)
    draw_costs(right)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlabel("logarithmic", fontsize=8)
    figure.tight_layout(w_pad=3)


def draw_bars(axes: Any, rows: list[tuple[str, list[float | None]]], title: str) -> None:
    """The values of a row below each other, dark to light; those of Headrace in its colour."""
    rows = rows[::-1]
    most = max(value for _, values in rows for value in values if value is not None)
    for y, (name, values) in enumerate(rows):
        colours = OUR_SHADES if "Headrace" in name else OTHER_SHADES
        height = 0.8 / len(values)
        for i, value in enumerate(values):
            at = y + height * ((len(values) - 1) / 2 - i)
            if value is not None:
                axes.barh(at, value, color=colours[i], height=height * 0.92)
                axes.text(value + most * 0.01, at, f"{value:,g}", va="center", fontsize=7)
    axes.set_xlim(0, most * 1.12)
    axes.set_yticks(range(len(rows)), [name.replace(", ", ",\n", 1) for name, _ in rows], fontsize=8)
    axes.set_title(title, fontsize=10)


def draw_peers(figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    draw_bars(
        left,
        [(row["loader"], row["rates"]) for row in image_rates()],
        "JPEGs to 224 x 224 for a CPU second:\nresized (dark), cropped and flipped (light)",
    )
    draw_bars(
        right,
        [(row["loader"], row["counts"]) for row in accelerator_counts()],
        "Emulated H100s that a core keeps busy:\nresnet50, cosmoflow, unet3d",
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelsize=8)
    figure.tight_layout(w_pad=3)


def pictures() -> Iterator[tuple[str, tuple[float, float], Any, Any]]:
    """Name, size in inches, the numbers that it shows, the function that draws it."""
    yield "idea.svg", (10, 5.05), idea_figures(), draw_idea
    yield "speed.svg", (10, 4.6), {"formats": format_ratios(), "ranges": range_costs()}, draw_speed
    numbers = {"images": image_rates(), "accelerators": accelerator_counts()}
    yield "peers.svg", (10, 5.2), numbers, draw_peers


def main() -> None:
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "pictures"
    directory.mkdir(parents=True, exist_ok=True)
    for name, size, numbers, draw in pictures():
        figure = Figure(figsize=size, facecolor="white")
        draw(figure)
        figure.savefig(directory / name, metadata={"Date": None, "Description": json.dumps(numbers)})


if __name__ == "__main__":
    main()
