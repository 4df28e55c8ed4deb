"""The same graph of model calls, recorded on SQLite by several libraries and killed in the middle: one module each.

A module has one function, `prepare(graph, ask, folder, way)`: it makes the library's own graph, in which every node
asks once, and yields a function that begins the run, or goes on with it after a kill.
"""
