"""The research behind attnflow."""
