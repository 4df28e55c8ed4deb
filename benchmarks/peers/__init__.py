"""Four experiments, here and in other libraries: many callers under one limit, a graph, a kill, a worker that dies.

`python -m benchmarks.peers budget` installs each library in an environment of its own and prints its spending; `python
-m benchmarks.peers graph` prints what a task costs; `python -m benchmarks.peers durable` prints what it costs to record
a graph of model calls, and what is paid again after a kill; `python -m benchmarks.peers machines` lets one of two
workers die, or stand still. A module of this package runs alone, in any environment that has its library: `python -m
benchmarks.peers.inspect_ai --width 16`, `python -m benchmarks.peers.graph.langgraph --tasks 1000`.
"""
