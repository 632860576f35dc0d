"""Headrace as a file system of fsspec (docs/design/0046-fsspec.md)."""
