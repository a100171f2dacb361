"""From many callers' items to few batches."""
