"""Exact maximum flow on layered graphs; knows nothing of tokens or models."""

from attnflow.maxflow.single import PairFlow, max_flow
from attnflow.maxflow.solve import FlowValues, Progress, max_flows

__all__ = ["FlowValues", "PairFlow", "Progress", "max_flow", "max_flows"]
