"""How a call is written: options that commands share, reading, help and completion, on typer."""
