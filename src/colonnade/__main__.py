"""`python -m colonnade` is the `colonnade` command."""

from colonnade.cli import main

main()
