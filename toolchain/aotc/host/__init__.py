"""What this machine is and what it has."""
