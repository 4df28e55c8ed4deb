"""Jobs of a first hour, each as short as a user writes it, with this library and with the best peer."""
