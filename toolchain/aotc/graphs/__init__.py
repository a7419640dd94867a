"""Reading and weighing models: what a graph holds, its weights, types and names."""
