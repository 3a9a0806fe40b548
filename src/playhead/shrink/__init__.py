"""A topic with fewer partitions: a copy that takes every reader and writer along. One recorded plan, continued after a kill."""
