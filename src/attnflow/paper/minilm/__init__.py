"""Small adapters that make a classifier and a masked language model out of a MiniLM encoder.

The encoder comes as a package of its own, so that these models can be had without a hub.
"""
