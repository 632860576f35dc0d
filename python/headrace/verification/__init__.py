"""Proof that data is what it was: every checksum, manifests, comparison of two datasets."""
