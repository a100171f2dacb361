"""One file for each version of the tables; each names the one before it."""
