"""From partitions to compiled parts, and to what a session with them needs."""
