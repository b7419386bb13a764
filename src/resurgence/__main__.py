"""`python -m resurgence`."""

from resurgence.cli.app import main

main()
