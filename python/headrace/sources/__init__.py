"""What a loader reads, and in whose order: datasets in a row, mixed, packed; other loaders' orders."""
