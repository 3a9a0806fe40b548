"""`playhead audit`: compares the tiers of a pipeline, and says for each row that differs what is wrong and which hop did it."""
