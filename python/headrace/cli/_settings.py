"""The sweep of `headrace bench load`: what it tries, as a table and as a picture."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from headrace.base.pictures import COLOURS
from headrace.base.units import format_bytes, parse_bytes
from headrace.cli._knee import bar

TRIED: dict[str, list[Any]] = {
    "prefetch": [1, 4, 16, 64],
    "workers": [1, 2, 4, 8],
    "memory": ["64MiB", "256MiB", "1GiB", "4GiB"],
}
"""One setting at a time."""


def _amount(value: int | str) -> int:
    return parse_bytes(value) if isinstance(value, str) else value


def to_try(options: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings as given, then what differs from them in each other run."""
    return [
        {},
        *(
            {name: value}
            for name, values in TRIED.items()
            for value in values
            if _amount(value) != _amount(options[name])
        ),
    ]


HEAD = ("changed", "samples/s", "a CPU s", "first ms", "memory", "waited s", "mostly for")


def cells(row: dict[str, Any]) -> list[str]:
    """Of one run, as in HEAD."""
    stalls = row["stats"]["stall_seconds"]
    return [
        " ".join(f"{name}={value}" for name, value in row["changed"].items()) or "as given",
        f"{row['samples_per_s']:,.0f}",
        f"{row['samples_per_cpu_s']:,.0f}",
        f"{1000 * row['first_batch_s']:.0f}",
        format_bytes(row["stats"].get("pool.peak_bytes", 0)),
        f"{sum(stalls.values()):.2f}",
        max(stalls, key=lambda cause: float(stalls[cause])),
    ]


def table(rows: list[dict[str, Any]]) -> Table:
    out = Table(box=None, pad_edge=False)
    for name in (*HEAD, "speed"):
        is_text = name in ("changed", "mostly for", "speed")
        out.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    best = max(row["samples_per_s"] for row in rows)
    for row in rows:
        out.add_row(*cells(row), bar(row["samples_per_s"] / best, 8))
    return out


def draw(figure: Any, rows: list[dict[str, Any]], options: dict[str, Any]) -> None:
    """A panel for each setting: speed of the runs that differ in it alone; the one as given is ringed."""
    panels = figure.subplots(1, len(TRIED), sharey=True)
    for axes, name in zip(panels, TRIED, strict=True):
        mine = [row for row in rows if not row["changed"] or name in row["changed"]]
        mine.sort(key=lambda row: _amount(row["changed"].get(name, options[name])))
        places = range(len(mine))
        for column, label, colour, style in (
            ("samples_per_s", "a second", COLOURS[0], "-"),
            ("samples_per_cpu_s", "a CPU second", COLOURS[1], "--"),
        ):
            speeds = [row[column] for row in mine]
            axes.plot(places, speeds, style, marker="o", color=colour, label=label)
            given = next(place for place in places if not mine[place]["changed"])
            axes.plot(given, speeds[given], "o", ms=12, mfc="none", mec=colour)
        axes.set_xticks(places, [_tick(name, row["changed"].get(name, options[name])) for row in mine])
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    # Of all panels, and so after all of them are drawn.
    fastest = max(max(row["samples_per_s"], row["samples_per_cpu_s"]) for row in rows)
    panels[0].set_ylim(0, 1.05 * fastest)
    panels[0].yaxis.set_major_formatter(lambda speed, _: f"{speed:,.0f}")
    panels[0].set_ylabel("samples (ring: as given)")
    panels[0].legend()


def _tick(name: str, value: int | str) -> str:
    return "chosen" if name == "workers" and not value else str(value)
