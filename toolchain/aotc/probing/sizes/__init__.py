"""The sizes of the free dims at which a model runs: hints, trials and the search."""
