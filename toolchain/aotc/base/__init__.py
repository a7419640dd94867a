"""What everything stands on: errors and their codes, records, files, locks, text, progress."""
