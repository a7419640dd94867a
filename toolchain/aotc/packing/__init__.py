"""An artifact as one file for transport, and back."""
