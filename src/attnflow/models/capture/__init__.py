"""Attention captured while a model runs."""
