"""The same graph of tasks, built and run by several libraries: one module each, with one function `build`.

`build(graph, work)` makes the library's own graph, in which every task awaits `work` with its name, and returns a
function that runs it. Building is timed apart from running.
"""
