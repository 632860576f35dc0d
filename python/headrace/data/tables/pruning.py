"""Parquet: which row groups can hold rows that match, by their statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from headrace.data.tables.arrow import arrow
from headrace.errors import InvalidArgumentError

_OPERATORS: dict[str, Callable[[Any, Any, Any], bool]] = {
    # (minimum, maximum, value): whether a value between them may match.
    "==": lambda low, high, value: bool(low <= value <= high),
    "!=": lambda low, high, value: not (low == high == value),
    "<": lambda low, high, value: bool(low < value),
    "<=": lambda low, high, value: bool(low <= value),
    ">": lambda low, high, value: bool(high > value),
    ">=": lambda low, high, value: bool(high >= value),
    "in": lambda low, high, value: any(low <= item <= high for item in value),
}


def _parse_where(text: str) -> list[tuple[str, str, Any]]:
    try:
        terms = [(str(column), str(operator), value) for column, operator, value in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f'row_groups_where={text!r}: must be JSON [["column", "op", value], ...] ({error})'
        ) from None
    for column, operator, value in terms:
        if operator not in _OPERATORS:
            raise InvalidArgumentError(
                f"row_groups_where: {column} {operator!r}: the operator must be one of {' '.join(_OPERATORS)}"
            )
        if operator == "in" and not isinstance(value, list):
            raise InvalidArgumentError(f"row_groups_where: {column} in: needs a list")
    return terms


def _like(value: Any, example: Any) -> Any:
    """A value of the predicate as statistics hold it: JSON has no bytes, dates or decimals."""
    if isinstance(value, list):
        return [_like(item, example) for item in value]
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    if isinstance(example, bytes) and isinstance(value, str):
        return value.encode()
    if hasattr(example, "isoformat") and isinstance(value, str):
        parsed = type(example).fromisoformat(value)
        if getattr(example, "tzinfo", None) is not None and parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=example.tzinfo)
        return parsed
    if type(example).__name__ == "Decimal" and isinstance(value, (str, int, float)):
        return type(example)(str(value))
    return value


def prune(where: str, head: memoryview) -> str:
    pa = arrow()
    metadata = pa.parquet.read_metadata(pa.BufferReader(bytes(head)))
    terms = _parse_where(where)
    leaf_of = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for column, _, _ in terms:
        if column not in leaf_of:
            raise InvalidArgumentError(
                f"row_groups_where: no column '{column}'; the columns are {', '.join(leaf_of)}"
            )

    def may_match(group: Any, column: str, operator: str, value: Any) -> bool:
        statistics = group.column(leaf_of[column]).statistics
        if statistics is None or not statistics.has_min_max:
            # All null: no value matches. Else nothing is known.
            return not (
                statistics is not None
                and statistics.has_null_count
                and statistics.null_count == group.num_rows > 0
            )
        try:
            return _OPERATORS[operator](statistics.min, statistics.max, _like(value, statistics.min))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"row_groups_where: {column} {operator} {value!r}: {error}") from None

    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return json.dumps([i for i, group in enumerate(groups) if all(may_match(group, *term) for term in terms)])
