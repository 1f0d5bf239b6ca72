"""The models that come with attnflow."""
