"""The engine: a process that holds the k-hot layers, and the way to it."""
