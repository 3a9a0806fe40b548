"""Positions: which store a worker uses, and what lies in it."""

from playhead.offsets.select import store_of_context, store_of_worker

__all__ = ["store_of_context", "store_of_worker"]
