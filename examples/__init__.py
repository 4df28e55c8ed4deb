"""Teams to read and run; what `kairo demo` runs is installed with the library."""
