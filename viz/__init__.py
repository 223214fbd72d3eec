"""Pages: figures, and the page that shows a query sharpening. Data come through the web API alone."""
