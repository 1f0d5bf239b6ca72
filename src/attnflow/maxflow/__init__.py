"""Exact maximum flow on layered graphs. Knows nothing of tokens or models.

Capacities [layers, n, n] enter; values of maximum flows with proofs leave (`max_flows`), or one
flow edge by edge with its minimum cut (`max_flow`); `group_flows` and `group_flow` do the same for
sets of positions and tokens. docs/flow-algorithm.md explains the method.

To read the code: `solver` divides a job among threads; `pair` solves a pair in stages: `greedy`
with `direct_flow` builds a blocking flow, `proofs` proves it maximum if it can, and `residual`
augments it. `groups` reduces sets to pairs. `network` validates and arranges the input, `layout`
lists all memory of the kernels, and `jit` compiles them.
"""

from attnflow.maxflow.groups import group_flow, group_flows
from attnflow.maxflow.pair import PairFlow, max_flow
from attnflow.maxflow.solver import FlowValues, max_flows

__all__ = ["FlowValues", "PairFlow", "group_flow", "group_flows", "max_flow", "max_flows"]
