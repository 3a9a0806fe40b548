"""Positions: so far their export from the offsets topic."""
