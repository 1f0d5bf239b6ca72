"""Methods: from an AttentionGraph to an Attribution.

Enters: a graph, and which layers and positions to explain. Leaves: scores [layers, positions,
tokens] with their labels. Nothing here knows about models or edges.

Read `registry.py` first: it lists the methods and says how to add one. Then `raw.py` (the weights
of one layer), `rollout.py` (the product of the layers, and the only rollout arithmetic in the
project), `flow.py` (the exact maximum flow, computed by `attnflow.maxflow`), `joint_flow.py` (one
maximum flow to all tokens) and `heads.py` (one head on top of the layers below; appendix A.1 of the
paper).
"""
