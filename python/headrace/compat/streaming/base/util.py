"""Helper functions."""

from headrace.compat.streaming._merge import merge_index
from headrace.compat.streaming._units import bytes_to_int, number_abbrev_to_int
from headrace.compat.streaming._util import (
    clean_stale_shared_memory,
    get_import_exception_message,
    get_list_arg,
    retry,
    wait_for_file_to_exist,
)

__all__ = [
    "bytes_to_int",
    "clean_stale_shared_memory",
    "get_import_exception_message",
    "get_list_arg",
    "merge_index",
    "number_abbrev_to_int",
    "retry",
    "wait_for_file_to_exist",
]
