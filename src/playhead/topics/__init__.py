"""Topics: list, show, read their records, find their users, create, change and delete them."""
