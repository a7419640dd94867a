"""What the judge of answers misses, and what it refuses without need."""
