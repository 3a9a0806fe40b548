"""Positions: which store keeps them, what lies in it, and the one way to change it."""

from playhead.offsets.select import Selection, select_entries, select_owner, select_store, store_of_worker

__all__ = ["Selection", "select_entries", "select_owner", "select_store", "store_of_worker"]
