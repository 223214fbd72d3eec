"""From a query specification and its data to a tree of perspectives, with every check."""
