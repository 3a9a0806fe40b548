"""Topics: see, create, alter, delete, and read their records."""
