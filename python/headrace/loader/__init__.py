"""Batches of one rank, and the training loops of others that iterate it."""
