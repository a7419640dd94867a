"""What commands and the library answer, in Python and with `--json`; what a build measured."""
