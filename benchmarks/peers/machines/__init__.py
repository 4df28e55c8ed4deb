"""One job on two workers, one of which dies or stands still in the middle, done by several libraries: one module each.

A module has two functions. `work` is a worker and does not return; `do` hands the job in, waits for its end and returns
what it has to say of it. A module runs in a process, in any environment that has its library.
"""
