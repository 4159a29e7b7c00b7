"""One HTML file that tells what runs found, with figures, and opens offline."""
