"""Positions: which store holds them, what is stored there, and the one way to change it."""
