"""Edge weightings."""
