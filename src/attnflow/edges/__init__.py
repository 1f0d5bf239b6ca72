"""Edge weightings: what the edges of an attention graph measure.

A weighting takes the attention of one layer while a model runs, an AttentionCall, and returns
edges [batch, queries, keys]. `registry` lists all weightings and says how to add one; each family
has a file: `attention`, `effective`, `value` and `gradient`. `projection` finds the output
projection of an attention layer for those that need it. `capture_graphs(edges=...)` looks up
weightings by name.
"""
