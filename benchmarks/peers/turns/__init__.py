"""One agent run of two turns with each library: a tool is called, then the answer comes.

Run it with `python -m benchmarks.peers turns`; `docs/speed.md` has the table.
"""
