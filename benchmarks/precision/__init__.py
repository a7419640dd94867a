"""What a lower precision gains, and how good it stays."""
