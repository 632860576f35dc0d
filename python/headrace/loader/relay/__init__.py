"""A loader in the workers of torch's DataLoader: read by one process, dealt out in turn (design note
0042)."""
