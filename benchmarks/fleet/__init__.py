"""What executors of fleets cost, and how far they carry."""
