"""Readers of data sets, a grammar that makes examples, and where the sets are published."""
