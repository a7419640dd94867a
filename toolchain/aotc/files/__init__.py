"""Files as the operating system has them: locks, work folders, replacing, writing whole, errors."""
