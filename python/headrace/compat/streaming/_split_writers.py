"""XSVWriter, CSVWriter, TSVWriter, JSONWriter: text and an index of it, byte for byte as mosaicml-streaming's
write them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from headrace.compat.streaming._writer import Writer

_TYPES = {"str": str, "int": int, "float": float}


class _SplitWriter(Writer):
    """A shard is two files: ``data``, and ``meta``, which says where each sample begins."""

    newline = "\n"

    def _set_columns(self) -> None:
        for name, encoding in self.columns.items():
            if encoding not in _TYPES:
                raise TypeError(
                    f"{type(self).__name__}: column `{name}` has encoding `{encoding}`; there are "
                    f"{', '.join(_TYPES)}"
                )

    def _check_type(self, name: str, value: Any) -> None:
        expected = _TYPES[self.columns[name]]
        if not isinstance(value, expected):
            raise AttributeError(
                f"column `{name}`: data should be of type {expected}, but instead, found as {type(value)}"
            )

    def _header(self) -> bytes:
        return b""

    def _encode_shard(self) -> dict[str, bytes]:
        header = self._header()
        meta = np.uint32(len(self._samples)).tobytes() + self._offsets(len(header)) + self._config
        return {"data": b"".join([header, *self._samples]), "meta": meta}


class XSVWriter(_SplitWriter):
    """Arguments as in mosaicml-streaming."""

    format = "xsv"

    def __init__(
        self, *, columns: dict[str, str], separator: str, newline: str = "\n", **options: Any
    ) -> None:
        self.separator, self.newline = separator, newline
        super().__init__(columns=columns, **options)

    def _check_text(self, text: str) -> str:
        if self.newline in text or self.separator in text:
            raise ValueError(
                f"{text!r} holds the separator {self.separator!r} or the newline {self.newline!r}, which "
                "nothing can escape here"
            )
        return text

    def _set_columns(self) -> None:
        super()._set_columns()
        self.column_names = [self._check_text(name) for name in sorted(self.columns)]
        self.column_encodings = [self.columns[name] for name in self.column_names]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config() | {
            "column_names": self.column_names,
            "column_encodings": self.column_encodings,
            "newline": self.newline,
        }
        return config | ({"separator": self.separator} if self.format == "xsv" else {})

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        for name in self.column_names:
            self._check_type(name, sample[name])
        return self._line([str(sample[name]) for name in self.column_names])

    def _line(self, values: list[str]) -> bytes:
        return (self.separator.join(map(self._check_text, values)) + self.newline).encode()

    def _header(self) -> bytes:
        return self._line(self.column_names)


class CSVWriter(XSVWriter):
    """Arguments as in mosaicml-streaming."""

    format = "csv"

    def __init__(self, *, columns: dict[str, str], newline: str = "\n", **options: Any) -> None:
        super().__init__(columns=columns, separator=",", newline=newline, **options)


class TSVWriter(XSVWriter):
    """Arguments as in mosaicml-streaming."""

    format = "tsv"

    def __init__(self, *, columns: dict[str, str], newline: str = "\n", **options: Any) -> None:
        super().__init__(columns=columns, separator="\t", newline=newline, **options)


class JSONWriter(_SplitWriter):
    """Arguments as in mosaicml-streaming."""

    format = "json"

    def __init__(self, *, columns: dict[str, str], newline: str = "\n", **options: Any) -> None:
        self.newline = newline
        super().__init__(columns=columns, **options)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"columns": self.columns, "newline": self.newline}

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        for name in self.columns:
            self._check_type(name, sample[name])
        return (
            json.dumps({name: sample[name] for name in self.columns}, sort_keys=True) + self.newline
        ).encode()
