"""What an apply of connector files would do: made, checked, shown and kept."""
