"""What was built before and need not be built again."""
