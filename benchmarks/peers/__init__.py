"""The fan-out experiment: many callers at once under one limit, here and in other libraries.

`python -m benchmarks.peers` installs each library in an environment of its own and prints a table. A module of
this package runs alone, in any environment that has its library: `python -m benchmarks.peers.inspect_ai --width 16`.
"""
