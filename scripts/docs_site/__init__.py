"""Build the site of the documentation: `make docs-site`."""
