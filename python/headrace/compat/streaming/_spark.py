"""dataframe_to_mds: a Spark DataFrame as an MDS data set, each partition written where it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

try:
    import pandas as pd
    from pyspark import TaskContext
    from pyspark.sql import types
except ImportError as error:
    raise ImportError(
        "dataframe_to_mds needs Spark and pandas: pip install 'pyspark>=3,<4' pandas pyarrow"
    ) from error

from headrace.compat.streaming._encodings import find_encoder
from headrace.compat.streaming._merge import merge_index as merge
from headrace.compat.streaming._shards import INDEX
from headrace.compat.streaming._writer import MDSWriter

SPARK_TO_MDS: dict[Any, str | None] = {
    types.ByteType(): "uint8",
    types.ShortType(): "uint16",
    types.IntegerType(): "int32",
    types.LongType(): "int64",
    types.FloatType(): "float32",
    types.DoubleType(): "float64",
    types.DecimalType(): "str_decimal",
    types.StringType(): "str",
    types.BinaryType(): "bytes",
    types.ArrayType(types.IntegerType()): "ndarray:int32",
    types.ArrayType(types.ShortType()): "ndarray:int16",
    types.ArrayType(types.LongType()): "ndarray:int64",
    types.ArrayType(types.FloatType()): "ndarray:float32",
    types.ArrayType(types.DoubleType()): "ndarray:float64",
}
"""Encodings of columns, as Mosaic chooses them."""
_OF_BINARY = ("pil", "png", "jpeg", "pkl")


def is_json_compatible(data_type: Any) -> bool:
    """Whether values of a Spark type can be a ``json`` column."""
    if isinstance(data_type, types.StructType):
        return all(is_json_compatible(field.dataType) for field in data_type.fields)
    if isinstance(data_type, types.ArrayType):
        return is_json_compatible(data_type.elementType)
    if isinstance(data_type, types.MapType):
        return is_json_compatible(data_type.keyType) and is_json_compatible(data_type.valueType)
    return isinstance(
        data_type, (types.StringType, types.IntegerType, types.FloatType, types.BooleanType, types.NullType)
    )


def _encoding_of(data_type: Any) -> str:
    encoding = SPARK_TO_MDS.get(
        types.DecimalType() if isinstance(data_type, types.DecimalType) else data_type
    )
    if encoding is None or find_encoder(encoding) is None:
        raise ValueError(f"{data_type} is not supported by dataframe_to_mds")
    return encoding


def _check_column(name: str, encoding: str, data_type: Any) -> None:
    if encoding == "json":
        if not is_json_compatible(data_type):
            raise ValueError(f"{name} can not be encoded by MDS JSON.")
    elif encoding in _OF_BINARY:
        if not isinstance(data_type, types.BinaryType):
            raise ValueError(f"Non-binary col {name} cannot encode as {encoding}.")
    else:
        kind = ":".join(encoding.split(":")[:2])
        if kind not in SPARK_TO_MDS.values():
            raise ValueError(f"{encoding} is not supported by dataframe_to_mds")
        if kind != _encoding_of(data_type):
            raise ValueError(
                f"Mismatched types: column name `{name}` is `{_encoding_of(data_type)}` in DataFrame but "
                f"`{encoding}` in user_defined_cols"
            )


def infer_dataframe_schema(
    dataframe: Any, user_defined_cols: dict[str, str] | None = None
) -> dict[str, str] | None:
    """The columns of a DataFrame and their encodings; None for given ones, which are checked. Raises
    ValueError."""
    if user_defined_cols is None:
        return {field.name: _encoding_of(field.dataType) for field in dataframe.schema}
    for name, encoding in user_defined_cols.items():
        if name not in dataframe.columns:
            raise ValueError(f"{name} is not a column of input dataframe: {dataframe.columns}")
        _check_column(name, encoding, dataframe.schema[name].dataType)
    return None


def _part_writer(
    out: tuple[str, str],
    options: dict[str, Any],
    udf: Callable[..., Iterable[dict[str, Any]]] | None,
    udf_options: dict[str, Any],
) -> Any:
    def write(frames: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        if task is None:
            raise RuntimeError("TaskContext.get() returns None: dataframe_to_mds writes in Spark's tasks")
        part = [os.path.join(root, str(task.taskAttemptId())) if root else "" for root in out]
        with MDSWriter(**{**options, "out": tuple(part) if part[1] else part[0]}) as writer:
            for frame in frames:
                for sample in udf(frame, **udf_options) if udf else frame.to_dict("records"):
                    writer.write(sample)
        indexes = [os.path.join(root, INDEX) if root else "" for root in part]
        yield pd.DataFrame({"mds_path_local": indexes[:1], "mds_path_remote": indexes[1:]})

    return write


def dataframe_to_mds(
    dataframe: Any,
    merge_index: bool = True,
    mds_kwargs: dict[str, Any] | None = None,
    udf_iterable: Callable[..., Iterable[dict[str, Any]]] | None = None,
    udf_kwargs: dict[str, Any] | None = None,
) -> tuple[str, str]:
    """Writes a DataFrame; returns (directory, URL). Arguments as in mosaicml-streaming.

    ``mds_kwargs`` are those of :class:`MDSWriter`; without ``columns`` they follow from the DataFrame,
    without ``compression`` it is zstd. ``udf_iterable`` makes the samples of a pandas DataFrame of some rows;
    ``columns`` must be given then.
    """
    if dataframe is None or dataframe.isEmpty():
        raise ValueError("Input dataframe is None or Empty!")
    options = {"compression": "zstd", **(mds_kwargs or {})}
    if "out" not in options:
        raise ValueError("`out` and `columns` need to be specified in `mds_kwargs`")
    if udf_iterable is not None and "columns" not in options:
        raise ValueError(
            "If udf_iterable is specified, user must provide correct `columns` in the mds_kwargs"
        )
    if udf_iterable is None:
        inferred = infer_dataframe_schema(dataframe, options.get("columns"))
        options["columns"] = options.get("columns") or inferred
    given = options.pop("out")
    out = given if isinstance(given, tuple) else ("", given) if "://" in given else (given, "")
    keep_local = bool(options.pop("keep_local", False)) or not out[1]
    if out[1] and not out[0]:
        raise ValueError(
            f"out={given!r}: Spark's tasks write to a directory first; pass out=(directory, URL)"
        )
    schema = types.StructType(
        [types.StructField(name, types.StringType(), False) for name in ("mds_path_local", "mds_path_remote")]
    )
    write = _part_writer(out, {**options, "keep_local": True}, udf_iterable, udf_kwargs or {})
    rows = dataframe.mapInPandas(func=write, schema=schema).collect()
    if merge_index:
        merge(
            [(row["mds_path_local"], row["mds_path_remote"]) for row in rows],
            out if out[1] else out[0],
            keep_local=keep_local,
        )
    if not keep_local:
        shutil.rmtree(out[0], ignore_errors=True)
    return out
