"""Agents of other libraries and programs, each in an environment of its own, at a governed address.

`python -m scripts.interop` makes the environments, lets each agent run and writes the table in docs/wrappers-matrix.md.
"""
