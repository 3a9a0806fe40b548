"""Plans for connector files: create, check, show, save."""
