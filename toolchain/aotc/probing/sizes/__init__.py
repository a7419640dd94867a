"""Which sizes of its dims a model runs at: hints, trials, and the search between them."""
