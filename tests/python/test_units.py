"""Sizes as people write them."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("256MiB", 256 << 20),
        ("4GiB", 4 << 30),
        ("2TB", 2 * 10**12),
        ("64 kb", 64_000),
        ("1.5KiB", 1536),
        ("17", 17),
        ("9b", 9),
        (4096, 4096),
    ],
)
def test_sizes_are_understood(text: int | str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "4G", "many", "-1MiB", "0", 0, -5, "1e9", True, 2.5, 1 << 63])
def test_other_sizes_name_the_argument(text: object) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="cache_limit="):
        parse_bytes(text, "cache_limit")  # type: ignore[arg-type]


def test_sizes_are_printed_short() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1536, 5 << 30, 3 << 40)] == [
        "0 B",
        "1,023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]
