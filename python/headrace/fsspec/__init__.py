"""Headrace as a file system of fsspec, for pandas, pyarrow, DuckDB, zarr, ``datasets`` and all that read
through it (docs/fsspec.md)."""

from headrace.fsspec.filesystem import HeadraceFileSystem
from headrace.fsspec.reading import ReadAhead
from headrace.fsspec.vendors import (
    AbfsFileSystem,
    AzureFileSystem,
    GcsFileSystem,
    HttpFileSystem,
    HubFileSystem,
    LocalFileSystem,
    S3FileSystem,
    fs,
    register,
)

__all__ = [
    "AbfsFileSystem",
    "AzureFileSystem",
    "GcsFileSystem",
    "HeadraceFileSystem",
    "HttpFileSystem",
    "HubFileSystem",
    "LocalFileSystem",
    "ReadAhead",
    "S3FileSystem",
    "fs",
    "register",
]
