"""The folder that `loadeval run` puts first on PYTHONPATH."""
