"""From claims to partitions: which provider runs which nodes, and what is transferred."""
