"""``python -m headrace.cli``."""

from headrace.cli import main

main()
