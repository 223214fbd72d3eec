"""Query specifications: parsed, frozen user input."""
