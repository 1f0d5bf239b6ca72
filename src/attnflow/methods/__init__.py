"""Raw attention, rollout and flow: functions from an AttentionGraph to an Attribution."""
