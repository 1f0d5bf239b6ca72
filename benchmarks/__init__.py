"""Time and memory, side by side with peers; never part of the tests."""
