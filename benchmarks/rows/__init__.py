"""The measurements, one file for each table of the page."""
