"""Inside the loader: where the time goes that a batch takes to load, and why if it is known."""
