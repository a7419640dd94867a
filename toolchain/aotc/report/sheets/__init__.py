"""The sheet of each answer: what it says, for every form that people read."""
