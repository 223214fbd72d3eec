"""The sample network: an invented alpine pass, its closed-form truth, and its station files.

``station_data.truth`` holds the truth fields, ``station_data.network`` the stations and ``station_data.generate`` the
files.
"""
