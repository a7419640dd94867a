"""Files and folders of the operating system: locks, work folders, atomic replacement, errors."""
