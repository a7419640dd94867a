"""From claims to partitions: which provider runs which nodes, and what crosses between them."""
