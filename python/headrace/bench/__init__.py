"""Emulated training: what a store and this machine can feed, told in accelerators.

Behind ``headrace bench train``: workloads as MLPerf Storage defines them, their data, accelerators that sleep
instead of computing, and the arithmetic of the results.
"""
