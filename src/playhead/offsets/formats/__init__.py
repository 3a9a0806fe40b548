"""Positions as text: the forms that are read and written."""
