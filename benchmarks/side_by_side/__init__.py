"""Four jobs done with several libraries, one program a library and job, in five situations: what each of them does.

`python -m benchmarks.side_by_side` runs all of them and prints the tables of docs/side-by-side.md.
"""
