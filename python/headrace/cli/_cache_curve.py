"""Curves of a simulated cache: for a terminal, as a picture, and as a page that needs nothing else."""

from __future__ import annotations

import html
import os
from typing import Any

from rich.table import Table

from headrace.base.units import format_bytes
from headrace.caching.simulation import POLICIES, SimulatedCache, Simulation
from headrace.cli._knee import bar

NAMES = {"next_use": "by next use", "lru": "LRU"}
_COLOURS = {"next_use": "#1f6feb", "lru": "#d1702a"}


def rows_of(simulation: Simulation, policy: str) -> list[SimulatedCache]:
    return [row for row in simulation.rows if row.policy == policy]


def table(simulation: Simulation) -> Table:
    """A line a size: ours, and LRU beside it."""
    out = Table(box=None, pad_edge=False)
    for name in ("cache", "hits", "fetched", "stall", "LRU: hits", "fetched", "stall"):
        out.add_column(name, justify="right")
    out.add_column("hits", no_wrap=True, min_width=24)
    for ours, lru in zip(*(rows_of(simulation, policy) for policy in POLICIES), strict=True):
        out.add_row(
            format_bytes(ours.limit_bytes) if ours.limit_bytes else "none",
            f"{100 * ours.hit_rate:.1f}%",
            format_bytes(ours.fetched_bytes),
            f"{ours.stall_seconds:,.1f} s",
            f"{100 * lru.hit_rate:.1f}%",
            format_bytes(lru.fetched_bytes),
            f"{lru.stall_seconds:,.1f} s",
            bar(ours.hit_rate),
        )
    return out


def picture(simulation: Simulation, figure: Any, path: str | os.PathLike[str], title: str) -> None:
    """Hit rate and stall by size. ``figure``: matplotlib's Figure."""
    drawing = figure(figsize=(8, 6), layout="constrained")
    for number, (label, value) in enumerate(_PANELS, start=1):
        axes = drawing.add_subplot(2, 1, number)
        for policy in POLICIES:
            rows = rows_of(simulation, policy)
            axes.plot(
                [row.limit_bytes / 1e9 for row in rows],
                [value(row) for row in rows],
                marker="o",
                label=NAMES[policy],
                color=_COLOURS[policy],
            )
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    axes.set_xlabel("cache, GB")
    drawing.suptitle(title)
    drawing.savefig(path, dpi=150)


def _hits(row: SimulatedCache) -> float:
    return 100 * row.hit_rate


def _stall(row: SimulatedCache) -> float:
    return row.stall_seconds


_PANELS = (("hits, % of bytes", _hits), ("stall, s", _stall))
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 260, 64, 12, 14, 40


def page(simulation: Simulation, title: str) -> str:
    """A page with both curves and the numbers; no script, nothing from elsewhere."""
    machine = simulation.machine
    head = "".join(
        f"<th>{name}</th>"
        for name in ("cache", "policy", "hits", "fetched", "fetched by epoch", "stall", "run")
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td>{html.escape(cell)}</td>"
            for cell in (
                format_bytes(row.limit_bytes) if row.limit_bytes else "none",
                NAMES[row.policy],
                f"{100 * row.hit_rate:.1f}%",
                format_bytes(row.fetched_bytes),
                ", ".join(map(format_bytes, row.epoch_fetched_bytes)),
                f"{row.stall_seconds:,.1f} s",
                f"{row.run_seconds:,.1f} s",
            )
        )
        + "</tr>"
        for row in simulation.rows
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }}
svg {{ width: 100%; height: auto; }} svg text {{ font-size: 12px; fill: currentColor; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
td, th {{ text-align: right; padding: .2rem .5rem; border-bottom: 1px solid #8884; }}
</style></head><body>
<h1>{html.escape(title)}</h1>
<p>{format_bytes(simulation.data_bytes)} of data, {format_bytes(simulation.file_bytes)} of files when all of it is cached. Stall is modelled:
{format_bytes(machine.bandwidth)}/s and {1000 * machine.first_byte:g} ms to the first byte from the store, {format_bytes(machine.disk)}/s from the cache,
{1000 * machine.step:g} ms from batch to batch.</p>
<p>{" ".join(f'<span style="color:{_COLOURS[policy]}">&#9632; {NAMES[policy]}</span>' for policy in POLICIES)}</p>
{"".join(_panel(simulation, label, value) for label, value in _PANELS)}
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
</body></html>
"""  # noqa: E501


def _panel(simulation: Simulation, label: str, value: Any) -> str:
    largest = max((row.limit_bytes for row in simulation.rows), default=0) or 1
    highest = max((value(row) for row in simulation.rows), default=0.0) or 1.0

    def place(row: SimulatedCache) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * row.limit_bytes / largest
        return x, _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value(row) / highest

    parts = []
    for step in range(5):
        y = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * step / 4
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / 4
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{highest * step / 4:.3g}</text>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - 20}" '
            f'text-anchor="middle">{format_bytes(largest * step / 4)}</text>'
        )
    for policy in POLICIES:
        rows = sorted(rows_of(simulation, policy), key=lambda row: row.limit_bytes)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, rows))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[policy]}" stroke-width="2"/>'
        )
        for row in rows:
            x, y = place(row)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_COLOURS[policy]}"><title>'
                f"{NAMES[policy]}, {format_bytes(row.limit_bytes)}: {value(row):.4g} "
                f"{html.escape(label)}</title></circle>"
            )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(label)} by size of the '
        'cache">'
        f'<text x="4" y="11">{html.escape(label)}</text>{"".join(parts)}</svg>\n'
    )
