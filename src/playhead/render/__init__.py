"""Output formats: tables for people; JSON, YAML, CSV and names for programs. Writes only to the given stream."""

from playhead.render.clean import clean
from playhead.render.listing import Column, Details, Listing, Rows, plain, render, render_pieces

__all__ = ["Column", "Details", "Listing", "Rows", "clean", "plain", "render", "render_pieces"]
