"""Pages of HTML that hold all they need: no script, no other file, no network."""
