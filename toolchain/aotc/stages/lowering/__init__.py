"""From claimed nodes to compiled parts."""
