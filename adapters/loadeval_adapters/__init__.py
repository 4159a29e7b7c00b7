"""One module for each framework, found through the entry points `loadeval.adapters`."""
