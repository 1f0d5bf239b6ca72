"""Exact maximum flow on layered graphs. Knows nothing of tokens or models.

Capacities [layers, n, n] enter; values of maximum flows with proofs leave (`max_flows`), or one
flow edge by edge with its minimum cut (`max_flow`); `group_flows` and `group_flow` do the same for
sets of positions and tokens. `joint_flows` computes one maximum flow to all tokens at once, and
divides its total among them. docs/flow-algorithm.md and docs/joint-flow.md explain the methods.

To read the code: `solver` divides a job among threads; `pair` solves a pair in stages: `greedy`
with `direct_flow` builds a blocking flow, `proofs` proves it maximum if it can, and `residual`
augments it; in decoders of few layers, `waves` does all of this. `groups` reduces sets to pairs.
`joint` divides a flow among all tokens, with `balance`. `network` validates and arranges the input,
`layout` lists all memory of the kernels, `jit` compiles them, and `compilation` reports how far
that is.
"""

from attnflow.maxflow.groups import group_flow, group_flows
from attnflow.maxflow.joint import JointFlow, JointFlows, joint_flow, joint_flows
from attnflow.maxflow.pair import PairFlow, max_flow
from attnflow.maxflow.solver import FlowValues, max_flows

__all__ = [
    "FlowValues",
    "JointFlow",
    "JointFlows",
    "PairFlow",
    "group_flow",
    "group_flows",
    "joint_flow",
    "joint_flows",
    "max_flow",
    "max_flows",
]
