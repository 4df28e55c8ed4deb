"""Teams to read and run; the example of `kairo demo` is installed with the library."""
