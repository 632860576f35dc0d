"""A cache as people fill it, watch it and choose its size."""
