"""Pieces of keys that signatures stumble over, whatever the vendor."""

ODD_EVERYWHERE = [" ", "+", "%", "%2F", "=", "&", "?", "#", "é", "日本", "\U0001f600", "~", "'"]
