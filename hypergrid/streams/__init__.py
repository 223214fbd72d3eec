"""Streams: stations, series and readings, the elements that everything else is made of."""
