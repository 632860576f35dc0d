"""The sweep of `headrace bench fetch` as a picture."""

from __future__ import annotations

from typing import Any

from headrace.base.units import format_bytes

COLOURS = ("#1f6feb", "#d1702a", "#2da44e", "#8250df", "#bf3989", "#57606a")


def draw(figure: Any, rows: list[dict[str, Any]], advice: dict[str, Any]) -> None:
    """Throughput, and time to the first byte, against reads under way; the knee of each part size is
    ringed."""
    from matplotlib.ticker import LogLocator  # type: ignore[import-untyped, unused-ignore]

    rates, waits = figure.subplots(1, 2)
    sizes = sorted({row["part_bytes"] for row in rows})
    for number, size in enumerate(sizes):
        mine = [row for row in rows if row["part_bytes"] == size]
        colour, counts = COLOURS[number % len(COLOURS)], [row["in_flight"] for row in mine]
        label = f"reads of {format_bytes(size)}"
        rates.plot(counts, [row["gb_per_s"] for row in mine], marker=".", color=colour, label=label)
        for row in mine:
            if row.get("is_knee"):
                rates.plot(row["in_flight"], row["gb_per_s"], "o", ms=12, mfc="none", mec=colour)
        for name, style in (("p50", "-"), ("p99", ":")):
            times = [row[f"first_byte_{name}_us"] / 1000 for row in mine]
            waits.plot(counts, times, style, marker=".", color=colour, label=f"{label}, {name}")
    rates.axvline(advice["max_in_flight"], color="#8884", lw=6, zorder=0)
    rates.set_ylabel("GB/s (ring: the knee; grey: recommended)")
    rates.set_ylim(bottom=0)
    waits.set_ylabel("ms to the first byte")
    waits.set_yscale("log")
    waits.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    waits.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    waits.yaxis.set_minor_formatter(lambda value, _: "")
    for axes in (rates, waits):
        axes.set_xlabel("reads under way")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda count, _: f"{count:g}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """What the page shows beside the picture."""
    head = ["part", "in flight", "GB/s", "CPU s/GB", "p50 ms", "p99 ms", "retries", ""]
    body = [
        [
            format_bytes(row["part_bytes"]),
            str(row["in_flight"]),
            f"{row['gb_per_s']:.3f}",
            f"{row['cpu_seconds_per_gb']:.3f}",
            f"{row['first_byte_p50_us'] / 1000:.3g}",
            f"{row['first_byte_p99_us'] / 1000:.3g}",
            str(row["extra_attempts"]),
            "knee" if row.get("is_knee") else "",
        ]
        for row in rows
    ]
    return [head, *body]
