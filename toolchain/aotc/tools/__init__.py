"""What works on models and artifacts besides building: bench, diff, debug, check, inspect."""
