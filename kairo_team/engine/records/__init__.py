"""Recorded steps of a run: their keys and values, and what a replay does with them."""
