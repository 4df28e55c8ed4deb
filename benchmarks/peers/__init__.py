"""Three experiments, here and in other libraries: many callers under one limit, a graph of tasks, one that is killed.

`python -m benchmarks.peers budget` installs each library in an environment of its own and prints its spending; `python
-m benchmarks.peers graph` prints what a task costs; `python -m benchmarks.peers durable` prints what it costs to record
a graph of model calls, and what is paid again after a kill. A module of this package runs alone, in any environment
that has its library: `python -m benchmarks.peers.inspect_ai --width 16`, `python -m benchmarks.peers.graph.langgraph
--tasks 1000`.
"""
