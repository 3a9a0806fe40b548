"""`playhead replay`: a part of what a sink delivered is delivered again, without moving its position."""
