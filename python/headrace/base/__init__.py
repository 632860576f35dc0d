"""What every room uses: sizes, ranks, progress, objects that are open. Imports nothing of the other rooms."""
