"""The console: recorded runs in a browser, with the questions that wait for a person."""
