"""Keys and certificates: making, loading and encrypting them, and signers in other programs."""
