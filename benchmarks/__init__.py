"""The project's promises in numbers, measured as ratios within one run: `make bench`.

Each benchmark alternates what it measures with what it compares to, so that a noisy machine
disturbs both alike, and reports medians.  No unit test asserts a time.
"""
