"""What is measured, a file for each table of the page."""
