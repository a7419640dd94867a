"""Which sizes and values a model runs with, and what it answers: the reference of every proof."""
