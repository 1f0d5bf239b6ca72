"""Exact maximum flow on layered graphs; knows nothing of tokens or models."""

from attnflow.maxflow.pair import PairFlow, max_flow
from attnflow.maxflow.solver import FlowValues, Progress, max_flows

__all__ = ["FlowValues", "PairFlow", "Progress", "max_flow", "max_flows"]
