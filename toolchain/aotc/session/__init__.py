"""What build and run share: sessions, placement, parity, and sandboxed workers."""
