"""What the terminal shows of each answer: tables and figures, made with `aotc.cli.terminal`."""
