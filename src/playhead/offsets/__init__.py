"""Positions: which store keeps them, what lies in it, and the one way to change it."""
