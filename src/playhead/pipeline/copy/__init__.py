"""A topic copied to another topic with any number of partitions, and what follows from it: the offset map, the comparison."""
