"""Ten tasks of a station network, each solved by hand with pandas, xarray and PyKrige, and with HyperGrid."""
