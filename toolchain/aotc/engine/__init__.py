"""What build and run share: sessions, placement, parity, the sandboxed worker."""
