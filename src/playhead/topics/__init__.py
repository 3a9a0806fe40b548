"""Topics: which there are, what is in them, who uses them, and how to make, change and delete them."""
