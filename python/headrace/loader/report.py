"""The course of a run as a picture, and as a page."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from headrace import _native
from headrace.base.pictures import COLOURS, PICTURES, Table, entitle, find_figure, page
from headrace.base.secrets import without_secrets
from headrace.base.units import format_bytes
from headrace.errors import InvalidArgumentError
from headrace.loader.history import OF_STORES, Point, Record

__all__ = ["write_report"]

# More do not fit beside each other.
_MOST_COLUMNS = 240
_CAUSES = {
    "memory": "memory for a read or a batch",
    "throttled": "the turn of a read that the store had refused",
    "first_byte": "the first byte of an answer",
    "transfer": "the rest of an answer",
    "cache_read": "the cache on disk",
    "decompress": "decompression",
    "decode": "decode=",
    "transform": "functions of map(), filter(), collate()",
    "other": "planning, gathering, the scheduler",
}
_SOURCES = {
    "cache.hit_bytes": "cache on disk",
    "cache.memcached_hit_bytes": "memcached",
    "cache.store_hit_bytes": "hot store",
    "store.received_bytes": "store",
}


def check_ending(path: str | os.PathLike[str]) -> str:
    """The ending, in lower case. Raises InvalidArgumentError where it says of no kind of report."""
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in (".html", ".htm", *PICTURES):
        raise InvalidArgumentError(
            f"{os.fspath(path)}: a report is a page (.html) or a picture ({', '.join(PICTURES)})"
        )
    return ending


def write_report(
    path: str | os.PathLike[str], record: Record, title: str, facts: Mapping[str, object]
) -> None:
    """Writes the course of a run: as a page with the numbers, or with the ending of a picture as that alone.

    :param facts: what is said of the run beside its numbers.
    """
    ending = check_ending(path)
    figure_type = find_figure("a report needs")
    if len(record.points) < 2 or record.points[-1].seconds <= record.points[0].seconds:
        raise InvalidArgumentError("there is nothing to report yet: iterate the loader first")
    has_cache = any(record.points[-1].values[name] for name in list(_SOURCES)[:-1]) or bool(
        record.points[-1].values["cache.used_bytes"]
    )
    figure = figure_type(figsize=(10, 10 if has_cache else 7.8), layout="constrained")
    _draw(figure, record, has_cache)
    if ending in PICTURES:
        entitle(figure, title)
        figure.savefig(path, dpi=110)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(title, figure, [_facts(record, facts), _stalls(record), *_stores(record)]))


def _urls(point: Point) -> list[str]:
    """Of the stores, where there are several."""
    return [name.partition(" ")[2] for name in point.values if name.startswith(f"{OF_STORES[0]} ")]


class _Course:
    """The points of a run, as many as can be seen, and what was between each and the next."""

    def __init__(self, points: list[Point]) -> None:
        least = (points[-1].seconds - points[0].seconds) / _MOST_COLUMNS
        kept = points[:1]
        for point in points[1:-1]:
            if point.seconds - kept[-1].seconds >= least:
                kept.append(point)
        if len(kept) > 1 and points[-1].seconds - kept[-1].seconds < least:
            kept.pop()
        self._pairs = list(pairwise([*kept, points[-1]]))
        self.urls = _urls(points[-1])
        self.unit, self.seconds = ("s", 1.0) if points[-1].seconds < 600 else ("min", 60.0)
        self.edges = [point.seconds / self.seconds for point in (*kept, points[-1])]

    def rate(self, name: str) -> list[float]:
        """Of a counter, in each second. One value more than there are intervals, as steps are drawn."""
        rates = [max(b.values[name] - a.values[name], 0) / (b.seconds - a.seconds) for a, b in self._pairs]
        return [*rates, rates[-1]]

    def at(self, name: str) -> list[float]:
        """A gauge at the end of each interval; the last twice."""
        values = [b.values[name] for _, b in self._pairs]
        return [*values, values[-1]]


def _draw(figure: Any, record: Record, has_cache: bool) -> None:
    course = _Course(record.points)
    panels = figure.subplots(3 + has_cache, 1, sharex=True)
    _draw_throughput(panels[0], course)
    _draw_stalls(panels[1], course)
    _draw_latencies(panels[2], course)
    if has_cache:
        _draw_sources(panels[3], course)
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.set_xlim(course.edges[0], course.edges[-1])
        for seconds, _ in record.loops[1:]:
            axes.axvline(seconds / course.seconds, color="#57606a", lw=0.8, ls=":")
    panels[-1].set_xlabel(
        f"{course.unit} since the first loop began"
        + (" (dotted: another loop)" if len(record.loops) > 1 else "")
    )


def _draw_throughput(axes: Any, course: _Course) -> None:
    # Wide and pale: where all samples have one size, delivered bytes are the same line.
    samples = course.rate("loader.samples")
    axes.step(course.edges, samples, where="post", color=COLOURS[0], lw=4, alpha=0.4, label="samples")
    axes.set_ylabel("samples/s")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_ylim(bottom=0)
    axes.set_title("Throughput", loc="left", fontsize=10)
    other = axes.twinx()
    for name, label, colour in (
        ("loader.delivered_bytes", "delivered", COLOURS[2]),
        ("store.received_bytes", "from the store", COLOURS[1]),
    ):
        rates = [rate / 1e6 for rate in course.rate(name)]
        other.step(course.edges, rates, where="post", color=colour, lw=1, label=label)
    other.set_ylabel("MB/s")
    other.set_ylim(bottom=0)
    lines = [*axes.get_lines()[:1], *other.get_lines()]
    _legend(axes, lines)


def _draw_stalls(axes: Any, course: _Course) -> None:
    waits = {
        cause: [rate / 1e4 for rate in course.rate(f"stall.{cause}_us")] for cause in _native.STALL_CAUSES
    }
    _stack(axes, course, {cause: shares for cause, shares in waits.items() if max(shares) >= 0.1})
    axes.set_ylabel("% of the time")
    axes.set_ylim(0, max(1.0, min(105.0, 1.1 * max(map(sum, zip(*waits.values(), strict=True))))))
    axes.set_title("What the loop waited for", loc="left", fontsize=10)


def _draw_latencies(axes: Any, course: _Course) -> None:
    """Of network stores to the first byte, of others of whole reads."""
    from matplotlib.ticker import LogLocator  # type: ignore[import-untyped, unused-ignore]

    kind = "first_byte" if any(course.at("store.first_byte_p50_us")) else "request"
    urls = [url for url in course.urls if any(course.rate(f"store.answered_gets {url}"))]
    if kind == "first_byte" and len(urls) < 2:
        axes.step(course.edges, _means(course, ""), where="post", color=COLOURS[0], label="mean")
    for number, url in enumerate(urls if len(urls) > 1 else ()):
        colour = COLOURS[(number + 2) % len(COLOURS)]
        axes.step(
            course.edges,
            _means(course, f" {url}"),
            where="post",
            color=colour,
            label=f"mean of {_short(url)}",
        )
    for name, label, style in (("p50", "median since the start", "--"), ("p99", "99 % since the start", ":")):
        times = [value / 1000 if value else math.nan for value in course.at(f"store.{kind}_{name}_us")]
        axes.step(course.edges, times, style, where="post", color=COLOURS[1], label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_ylabel("ms to the first byte" if kind == "first_byte" else "ms for a read")
    axes.set_title("Latency of the store", loc="left", fontsize=10)
    _legend(axes, axes.get_lines())


def _means(course: _Course, store: str) -> list[float]:
    """Milliseconds to the first byte, where there were any."""
    gets, waits = course.rate(f"store.answered_gets{store}"), course.rate(f"store.answer_wait_us{store}")
    return [wait / count / 1000 if count else math.nan for count, wait in zip(gets, waits, strict=True)]


def _short(url: str) -> str:
    shown = without_secrets(url)
    return shown if len(shown) <= 28 else f"...{shown[-25:]}"


def _draw_sources(axes: Any, course: _Course) -> None:
    rates = {label: [rate / 1e6 for rate in course.rate(name)] for name, label in _SOURCES.items()}
    _stack(axes, course, {label: values for label, values in rates.items() if any(values)})
    axes.set_ylabel("MB/s")
    axes.set_ylim(bottom=0)
    axes.set_title("Where bytes came from", loc="left", fontsize=10)


def _stack(axes: Any, course: _Course, values: Mapping[str, list[float]]) -> None:
    """Areas on top of each other; each name has its colour in all reports."""
    if not values:
        axes.text(0.5, 0.5, "nothing", transform=axes.transAxes, ha="center", color="#57606a")
        return
    known = list(_CAUSES) if set(values) <= set(_CAUSES) else list(_SOURCES.values())
    colours = [COLOURS[known.index(name) % len(COLOURS)] for name in values]
    areas = axes.stackplot(
        course.edges, *values.values(), labels=list(values), colors=colours, step="post", lw=0
    )
    _legend(axes, list(reversed(areas)))


def _legend(axes: Any, lines: list[Any]) -> None:
    axes.legend(handles=lines, fontsize=8, loc="center left", bbox_to_anchor=(1.08, 0.5), frameon=False)


def _facts(record: Record, facts: Mapping[str, object]) -> Table:
    last = record.points[-1]
    found = last.values
    numbers = {
        **facts,
        "seconds": f"{last.seconds:,.1f}",
        "loops": len(record.loops),
        "batches": f"{found['loader.batches']:,.0f}",
        "samples": f"{found['loader.samples']:,.0f}",
        "samples a second": f"{found['loader.samples'] / last.seconds:,.1f}",
        "delivered": format_bytes(found["loader.delivered_bytes"]),
        **{f"from {label}": format_bytes(found[name]) for name, label in _SOURCES.items() if found[name]},
        "requests repeated": f"{found['store.retries']:,.0f}",
        "requests refused for their rate": f"{found['store.throttles']:,.0f}",
    }
    return [["", "the run"], *([name, value] for name, value in numbers.items())]


def _stalls(record: Record) -> Table:
    last = record.points[-1]
    waits = {cause: last.values[f"stall.{cause}_us"] / 1e6 for cause in _native.STALL_CAUSES}
    rows = [
        [cause, _CAUSES[cause], f"{seconds:,.2f}", f"{seconds / last.seconds:.1%}"]
        for cause, seconds in sorted(waits.items(), key=lambda each: -each[1])
    ]
    total = sum(waits.values())
    return [
        ["waited for (docs/stalls.md)", "", "seconds", "of the run"],
        *rows,
        ["all", "", f"{total:,.2f}", f"{total / last.seconds:.1%}"],
    ]


def _stores(record: Record) -> list[Table]:
    """A table, where there are several."""
    values = record.points[-1].values
    rows = []
    for url in _urls(record.points[-1]):
        received, gets, waited = (values[f"{name} {url}"] for name in OF_STORES)
        mean = f"{waited / gets / 1000:.3g}" if gets else ""
        rows.append([without_secrets(url), format_bytes(received), f"{gets:,.0f}", mean])
    return (
        [[["store", "received", "gets over the network", "mean ms to the first byte"], *rows]] if rows else []
    )
