"""From partitions to compiled parts, and to the session that runs them."""
